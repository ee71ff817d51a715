"""What a program of Accelerate has to call for whole weights, besides the key that gathers them (DS819)."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

PROGRAM = (
    "from accelerate import Accelerator, DeepSpeedPlugin\nimport torch\n"
    'accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config="ds.json"))\n'
    "model, optimizer = accelerator.prepare(model, optimizer)\n%s\n"
)
CONFIG = (
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, '
    '"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": false}}'
)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ('torch.save(accelerator.unwrap_model(model).state_dict(), "out.pt")', "Save what accelerator.get_state_dict(model) returns"),
        (
            'args.zero3_save_16bit_model = True\ntorch.save(accelerator.unwrap_model(model).state_dict(), "out.pt")',
            "Save what accelerator.get_state_dict(model) returns",
        ),
        ('accelerator.save_state("out")', None),
        ("state = accelerator.get_state_dict(model)", 'Write "stage3'),
        ('accelerator.save_model(model, "out")', 'Write "stage3'),
    ],
)
def test_the_help_names_what_the_program_lacks(folder: Folder, call: str, says: str | None) -> None:
    folder.write({"train.py": PROGRAM % call, "ds.json": CONFIG})
    found = [d for d in folder.diagnostics("train.py") if d.code == "DS819"]
    assert [(d.help or "").startswith(says or "") for d in found] == ([True] if says else [])
    for one in found:
        assert ("calls no get_state_dict" in one.message) is (says or "").startswith("Save")
        assert ("Cannot get 16bit model weights" in one.message) is (says or "").startswith("Write")
