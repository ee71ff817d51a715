"""What the plug-ins fill in that a program makes for Accelerate."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

CONFIG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": "auto", "offload_param": {"device": "cpu"}}}'
PLUGIN = "DeepSpeedPlugin(hf_ds_config='ds.json', zero_stage=%d)"


@pytest.mark.parametrize(("stages", "is_found"), [((2, 2), True), ((3, 3), False), ((2, 3), False)])
def test_plugins_that_differ_fill_in_nothing(folder: Folder, stages: tuple[int, int], *, is_found: bool) -> None:
    """Only one of them is active at a time."""
    first, second = (PLUGIN % stage for stage in stages)
    program = f"from accelerate import Accelerator, DeepSpeedPlugin\nAccelerator(deepspeed_plugins={{'a': {first}, 'b': {second}}})\n"
    folder.write({"train.py": program, "ds.json": CONFIG})
    assert any(one.code == "DS501" for one in folder.diagnostics("train.py", "ds.json")) is is_found
