"""DS9: variables that a launch sets and that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import BF16_ZERO_2
from dslint.rules.helpers.project import programs_of

_LAUNCH = "%s deepspeed train.py --deepspeed --deepspeed_config ds_config.json\n"


@rule(
    "DS942",
    effect=Effect.IGNORED,
    watches=("setup",),
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars",),
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH % "CUDA_VISIBLE_DEVICE=0,1",
    integration="deepspeed",
    message="Nothing reads CUDA_VISIBLE_DEVICE: the variable for the GPUs is CUDA_VISIBLE_DEVICES, and the training sees the same GPUs as without it.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH % "export CUDA_VISIABLE_DEVICES=2\n",
    integration="deepspeed",
    message="Nothing reads CUDA_VISIABLE_DEVICES: the variable for the GPUs is CUDA_VISIBLE_DEVICES, and the training sees the same GPUs as without it.",
)
@good(BF16_ZERO_2, launch=_LAUNCH % "CUDA_VISIBLE_DEVICES=0,1 CUDA_DEVICE_ORDER=PCI_BUS_ID", integration="deepspeed")
@good(BF16_ZERO_2, launch=_LAUNCH % "export CUDA_VISIBLE_DEVICE=0\nCUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICE", integration="deepspeed")
def misspelt_variable(config: Config) -> Iterator[Finding]:
    """A launch misspells CUDA_VISIBLE_DEVICES.

    CUDA and the launchers read only the variable with the right name, and nobody warns about another one: the training sees all GPUs of the
    machine or the job. Without
    a number of ranks, `deepspeed` starts one on each of them; with one it uses the first GPUs, also those that the variable should leave out.

    Write the name as CUDA has it.
    """
    launch = config.setup.launch if config.setup else None
    wrong = launch.misspelt if launch is not None else None
    if wrong is None or any(wrong.name in text for text in programs_of(config)):
        return
    yield Finding(
        "",
        f"Nothing reads {wrong.name}: the variable for the GPUs is CUDA_VISIBLE_DEVICES, and the training sees the same GPUs as without it.",
        help="Write CUDA_VISIBLE_DEVICES.",
        elsewhere=wrong.related(""),
    )
