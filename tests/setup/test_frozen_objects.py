"""What a method `freeze` is called on: a model has weights, a config or a vocabulary has none (DS671)."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.evaluate.python.words import ALL_FLAGS
from dslint.frameworks.programs import read_python
from dslint.source.store import a_run
from tests.cases import table
from tests.setup.folder import Folder

PROGRAM = (
    "import deepspeed\nfrom deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict\n%s\n"
    "engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config='ds.json')\nengine.save_checkpoint('out')\n"
    "convert_zero_checkpoint_to_fp32_state_dict('out', 'whole.bin')\n"
)
ROWS = [
    ("model.encoder.freeze()", 1),
    ("self_attention.freeze_weights()", 1),
    ("for weight in model.parameters():\n    weight.requires_grad = False", 1),
    ("settings.defrost()\nsettings.rate = 1\nsettings.freeze()", 0),
    ("cfg.freeze()", 0),
    ("run_config.freeze()", 0),
    ("setup.defrost()\nsetup.freeze()", 0),
    ("import gc\ngc.freeze()", 0),
    ("self.vocab.freeze()", 0),
]


@table("line, expected", ROWS)
def test_freeze(line: str, expected: int, folder: Folder) -> None:
    config = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}'
    folder.write({"train.py": PROGRAM % line, "ds.json": config})
    assert [code for code, _, _ in folder.found("train.py")].count("DS671") == expected


def test_a_branch_that_options_leave_out_in_a_module_of_two_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module stands at another place behind a longer program; what is known of its branches is kept for both."""
    monkeypatch.chdir(tmp_path)
    module = "def prepare(model, settings):\n    if settings.freeze_layers > 0:\n        model.requires_grad_(False)\n%s"
    program = (
        "import argparse\nimport deepspeed\nfrom parts import prepare\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--freeze_layers', type=int, default=0)\nargs = parser.parse_args()\nprepare(model, settings_of(args))\n"
        "deepspeed.initialize(model=model, config='ds.json')\n"
    )
    longer = "# the same, after a comment that is longer than the module itself, and that says nothing else: " + "x" * 300 + "\n" + program
    for rest, line in (("", None), ("    model.requires_grad_(False)\n", 4)):
        Path("parts.py").write_text(module % rest)
        with a_run():
            for name, text in (("one.py", program), ("two.py", longer), ("three.py", program)):
                found = read_python(text, name, name, {ALL_FLAGS: None})
                assert found is not None
                freezes = found.program.freezes
                assert (freezes and freezes.range and freezes.range.start.line) == line
        with a_run():
            found = read_python(longer, "two.py", "two.py", {ALL_FLAGS: None, "freeze_layers": "2"})
            assert found is not None
            assert found.program.freezes is not None
