"""What the plug-ins fill in that a program makes for Accelerate."""

from __future__ import annotations

import pytest

from dslint.facts import Facts, Release
from tests.setup.folder import Folder

CONFIG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": "auto", "offload_param": {"device": "cpu"}}}'
NOT_CLIPPING = Facts(deepspeed=Release(0, 15, 0))
"""A release that does not clip by default."""
PLUGIN = "DeepSpeedPlugin(hf_ds_config='ds.json', zero_stage=%d)"


@pytest.mark.parametrize(("stages", "is_found"), [((2, 2), True), ((3, 3), False), ((2, 3), False)])
def test_plugins_that_differ_fill_in_nothing(folder: Folder, stages: tuple[int, int], *, is_found: bool) -> None:
    """Only one of them is active at a time."""
    first, second = (PLUGIN % stage for stage in stages)
    program = f"from accelerate import Accelerator, DeepSpeedPlugin\nAccelerator(deepspeed_plugins={{'a': {first}, 'b': {second}}})\n"
    folder.write({"train.py": program, "ds.json": CONFIG})
    assert any(one.code == "DS501" for one in folder.diagnostics("train.py", "ds.json")) is is_found


@pytest.mark.parametrize(("clipping", "is_found"), [("0", True), ("0.0", True), ("0.5", False), ("None", False)])
def test_a_clipping_of_0_is_not_written(folder: Folder, clipping: str, *, is_found: bool) -> None:
    program = (
        "from accelerate import Accelerator, DeepSpeedPlugin\n"
        f"accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=2, gradient_clipping={clipping}))\n"
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\naccelerator.backward(model(next(loader)))\n"
        "accelerator.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()\n"
    )
    folder.write({"train.py": program})
    assert any(one.code == "DS632" for one in folder.diagnostics("train.py", facts=NOT_CLIPPING)) is is_found


@pytest.mark.parametrize(("clipping", "is_found"), [("0.0", True), ("1.0", False)])
def test_a_clipping_of_0_in_the_file_of_accelerate_is_not_written(folder: Folder, clipping: str, *, is_found: bool) -> None:
    block = f"distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  zero_stage: 2\n  gradient_clipping: {clipping}\n"
    folder.write({"acc.yaml": block})
    found = {one.code for one in folder.diagnostics("acc.yaml", facts=NOT_CLIPPING)}
    assert ("DS632" in found) is is_found, found


SEVERAL = (
    "import torch\nfrom accelerate import Accelerator, DeepSpeedPlugin\nfrom accelerate.utils import DummyOptim\n"
    "plugins = {%s}\naccelerator = Accelerator(%s=plugins)\nmodel = torch.nn.Linear(2, 2)\nopt = DummyOptim(model.parameters())\n"
    "loader = torch.utils.data.DataLoader([1], batch_size=4)\nmodel, opt, loader = accelerator.prepare(model, opt, loader)\n"
)
STUDENT = "'student': DeepSpeedPlugin(hf_ds_config='student.json')"
TEACHER = "'teacher': DeepSpeedPlugin(zero_stage=3, offload_param_device='cpu')"


@pytest.mark.parametrize(
    ("plugins", "name", "is_found"),
    [
        (f"{STUDENT}, {TEACHER}", "deepspeed_plugin", False),
        (f"{STUDENT}, {TEACHER}", "deepspeed_plugins", False),
        (TEACHER, "deepspeed_plugin", True),
    ],
)
def test_which_of_several_plugins_a_prepare_is_for(folder: Folder, plugins: str, name: str, *, is_found: bool) -> None:
    """The first one has the optimizer that the stand-in needs."""
    folder.write({"train.py": SEVERAL % (plugins, name)})
    assert any(one.code == "DS926" for one in folder.diagnostics("train.py")) is is_found
