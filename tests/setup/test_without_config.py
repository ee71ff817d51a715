"""Programs for Accelerate whose DeepSpeed config nothing names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dslint.facts import Facts, Integration
from tests.command import dslint
from tests.setup.folder import Folder

PROGRAM = (
    "from accelerate import Accelerator\naccelerator = Accelerator()\n%s\n"
    'model = accelerator.prepare(model)\nif accelerator.is_main_process:\n    accelerator.save_state("out")\n'
)


@pytest.mark.parametrize(
    ("line", "facts", "codes"),
    [
        ("", Facts(integration=Integration.ACCELERATE), ["DS964"]),
        ("print(accelerator.state.deepspeed_plugin)", None, ["DS964"]),
        ("", None, []),
        ("", Facts(integration=Integration.TRANSFORMERS), []),
    ],
)
def test_its_calls_are_checked_where_deepspeed_is_used(folder: Folder, line: str, facts: Facts | None, codes: list[str]) -> None:
    folder.write({"train.py": PROGRAM % line})
    assert [code for code, _, _ in folder.found("train.py", facts=facts)] == codes
    if codes:
        [reason] = folder.results("train.py", facts=facts)["train.py"].not_judged
        assert "the DeepSpeed config for Accelerate is given at launch" in reason.reason


def test_a_folder_for_accelerate_is_checked_without_a_config(tmp_path: Path) -> None:
    """Nothing in the files names DeepSpeed; the integration that a person gives does."""
    (tmp_path / "train.py").write_text(PROGRAM % "")
    (tmp_path / "run.sh").write_text("accelerate launch train.py --learning_rate 1e-4\n")
    (tmp_path / "plot.py").write_text("import matplotlib\n")
    found = json.loads(dslint("check", ".", "--integration", "accelerate", "--output-format", "json", cwd=tmp_path).stdout)
    assert [(one["code"], one["path"]) for one in found["diagnostics"]] == [("DS964", "train.py")]
    done = dslint("check", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "nothing to check" in done.stderr
