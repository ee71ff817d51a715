"""A launch whose folder and program are there, and whose config is not (DS919)."""

from __future__ import annotations

import shutil

from tests.cases import table
from tests.setup.folder import Folder

FILE = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: %s\n"
PROGRAM = "from accelerate import Accelerator\naccelerator = Accelerator()\nmodel = accelerator.prepare(model)\n"
ROWS = [
    ("setup/stages/three.json", ["warning"]),
    ("elsewhere/three.json", ["info"]),  # the folder may be elsewhere
    ("../three.json", ["info"]),
    ("/data/three.json", []),
    ("setup/stages/two.json", []),
]


@table("name, expected", ROWS)
def test_config_of_an_accelerate_file(name: str, expected: list[str], folder: Folder) -> None:
    folder.write({"setup/eight.yaml": FILE % name, "train.py": PROGRAM, "setup/stages/two.json": '{"train_micro_batch_size_per_gpu": 1}'})
    shutil.rmtree(folder.path / ".git", ignore_errors=True)  # in a repository every path is meant from its top
    found = folder.diagnostics(command="accelerate launch --config_file setup/eight.yaml train.py")
    assert [one.severity for one in found if one.code == "DS919"] == expected


@table(
    "name, expected",
    [
        ("setup/nine.yaml", ["warning"]),
        ("elsewhere/nine.yaml", ["info"]),
        ("nine.yaml", ["info"]),
        ("~/nine.yaml", []),
        ("/data/nine.yaml", []),
        ("$HOME/nine.yaml", []),
    ],
)
def test_the_accelerate_file_itself(name: str, expected: list[str], folder: Folder) -> None:
    folder.write({"setup/eight.yaml": FILE % "two.json", "train.py": PROGRAM})
    found = folder.diagnostics(command=f"accelerate launch --config_file {name} train.py")
    assert [one.severity for one in found if one.code == "DS919"] == expected
    assert all("The passed configuration file `" in one.message for one in found if one.code == "DS919")
