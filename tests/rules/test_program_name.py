"""A program that is named like a library, in the folder of a job."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

_PROGRAM = "import deepspeed\n\n\ndef main():\n    deepspeed.initialize(model=model, config='ds.json')\n\n\nif __name__ == '__main__':\n    main()\n"


@pytest.mark.parametrize(
    ("launch", "name", "found"),
    [
        ("deepspeed --num_gpus 2 deepspeed.py", "deepspeed.py", True),
        ("torchrun --nproc_per_node 2 tools/deepspeed.py", "tools/deepspeed.py", True),
        ("torchrun --nproc_per_node 2 -m tools.deepspeed", "tools/deepspeed.py", False),
        ("torchrun --nproc_per_node 2 --module=tools.deepspeed", "tools/deepspeed.py", False),
        ("python -P tools/deepspeed.py", "tools/deepspeed.py", False),
        ("export PYTHONSAFEPATH=1\ntorchrun --nproc_per_node 2 tools/deepspeed.py", "tools/deepspeed.py", False),
        ("deepspeed --num_gpus 2 train.py", "train.py", False),
    ],
)
def test_a_program_named_deepspeed(folder: Folder, launch: str, name: str, found: bool) -> None:
    folder.write({"ds.json": '{"train_micro_batch_size_per_gpu": 1}', "run.sh": launch + "\n", name: _PROGRAM})
    assert ("DS877" in {code for code, _, _ in folder.found("run.sh")}) is found


_AT_ONCE = "import deepspeed\ndeepspeed.initialize(model=model, config='ds.json')\n"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"tools/deepspeed.py": _AT_ONCE}, True),
        ({"tools/deepspeed.py": f"if __name__ == '__main__':\n    pass\n{_AT_ONCE}", "tools/__init__.py": ""}, True),
        ({"tools/deepspeed.py": _AT_ONCE, "tools/__init__.py": ""}, False),
        ({"tools/deepspeed.py": f"from . import data\n{_AT_ONCE}", "tools/data.py": ""}, False),
        ({"tools/deepspeed.py": f"from .data import rows\n{_AT_ONCE}", "tools/data.py": "rows = []\n"}, False),
    ],
)
def test_a_module_that_no_launch_names(folder: Folder, files: dict[str, str], found: bool) -> None:
    folder.write({"ds.json": '{"train_micro_batch_size_per_gpu": 1}', **files})
    assert ("DS877" in {code for code, _, _ in folder.found("tools/deepspeed.py")}) is found
