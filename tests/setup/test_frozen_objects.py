"""What a method `freeze` is called on: a model has weights, a config or a vocabulary has none (DS671)."""

from __future__ import annotations

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
