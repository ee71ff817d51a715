"""Programs that call `deepspeed.init_inference`, and take no config of a training."""

from __future__ import annotations

import pytest

from dslint.facts import Facts, Release
from dslint.frameworks.loader import with_loaders
from dslint.lint.files import lint_subject
from dslint.setups.open import open_text
from dslint.source.read import read
from tests.setup.folder import RULES, Folder

HEAD = "import deepspeed, torch\nfrom transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('gpt2')\n"


@pytest.mark.parametrize(
    ("call", "codes"),
    [
        ("deepspeed.init_inference(model, replace_with_kernel_injection=True)", ["DS871"]),
        ("deepspeed.init_inference(model, config=dict(dtype='fp16', train_batch_size=8))", ["DS871"]),
        ("deepspeed.init_inference(model, mp_size=1, dtype=torch.half, replace_method='auto', replace_with_kernel_inject=True)", []),
        ("deepspeed.init_inference(model, **settings)", []),
    ],
)
def test_a_program_is_judged_alone(folder: Folder, call: str, codes: list[str]) -> None:
    folder.write({"infer.py": f"{HEAD}engine = {call}\n"})
    assert [one.code for one in folder.diagnostics("infer.py")] == codes


@pytest.mark.parametrize("launcher", ["deepspeed --num_gpus {}", "torchrun --nproc_per_node {}"])
def test_a_group_larger_than_the_launch_is_an_error(folder: Folder, launcher: str) -> None:
    folder.write({"infer.py": f"{HEAD}engine = deepspeed.init_inference(model, tensor_parallel={{'tp_size': 4}}, dtype=torch.half)\n"})
    folder.write({"run.sh": f"{launcher.format(2)} infer.py\n"})
    (result,) = (one for one in folder.results("run.sh").values() if one.path == "run.sh")
    assert ["init_inference" in str(one) for one in result.not_judged] == [True]
    (found,) = (one for one in folder.diagnostics("run.sh") if one.code == "DS871")
    assert "tp_size 4, but the launch starts 2 ranks" in found.message
    folder.write({"run.sh": f"{launcher.format(4)} infer.py\n"})
    assert [one.code for one in folder.diagnostics("run.sh") if one.code == "DS871"] == []


def test_a_call_that_only_some_runs_make_may_raise(folder: Folder) -> None:
    folder.write({"infer.py": f"{HEAD}import sys\nif len(sys.argv) > 1:\n    model = deepspeed.init_inference(model, kernels=True)\n"})
    (found,) = folder.diagnostics("infer.py")
    assert "may raise ValidationError" in found.message


def test_a_call_whose_error_is_handled_may_raise(folder: Folder) -> None:
    handled = "try:\n    engine = deepspeed.init_inference(model, kernels=True)\nexcept Exception:\n    engine = deepspeed.init_inference(model)\n"
    folder.write({"infer.py": f"{HEAD}{handled}"})
    (found,) = folder.diagnostics("infer.py")
    assert "may raise ValidationError" in found.message


def test_a_release_before_0_9_has_arguments_of_its_own(folder: Folder) -> None:
    call = "engine = deepspeed.init_inference(model, mp_size=1, quantization_setting=(False, 64))\n"
    folder.write({"infer.py": f"{HEAD}{call}"})
    given = with_loaders(Facts(deepspeed=Release(0, 9, 0)))
    for context, codes in ((given, ["DS871"]), (given._replace(outside=Release(0, 6, 0)), [])):
        subject = open_text(read("infer.py"), "infer.py", context, named=True)
        assert [one.code for result in lint_subject(subject, context, RULES) for one in result.diagnostics] == codes
