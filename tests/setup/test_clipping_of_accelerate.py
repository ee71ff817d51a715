"""Whether anything in a project clips gradients: only then Accelerate leaves something out that was written (DS632)."""

from __future__ import annotations

from click.testing import CliRunner

from dslint.cli import cli
from tests.cases import table
from tests.setup.folder import Folder

LOOP = "from accelerate import Accelerator\naccelerator = Accelerator()\nmodel = accelerator.prepare(model)\n"


@table("line, expected", [("accelerator.clip_grad_norm_(model.parameters(), 1.0)\n", True), ("accelerator.backward(loss)\n", False)])
def test_a_loop(line: str, expected: bool, folder: Folder) -> None:
    folder.write({"train.py": LOOP + line, "ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}'})
    shown = CliRunner().invoke(cli, ["check", "ds.json", "--deepspeed", "0.18.9", "--integration", "accelerate"]).output
    assert ("DS632" in shown, "does not clip gradients" in shown) == (expected, expected)
