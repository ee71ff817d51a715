"""DS9: variables that a launch sets and that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Release
from dslint.frameworks.registry import of_arguments
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import BF16_ZERO_2
from dslint.rules.helpers.project import programs_of

_LAUNCH = "%s deepspeed train.py --deepspeed --deepspeed_config ds_config.json\n"
_FACTORY = "FORCE_TORCHRUN=1 NNODES=2 %s MASTER_ADDR=10.0.0.1 llamafactory-cli train train.yaml\n"
_TRAINING = (
    "stage: sft\nmodel_name_or_path: m\ntemplate: qwen\ndataset: d\ndo_train: true\noutput_dir: out\nbf16: true\nper_device_train_batch_size: 4\n"
    "gradient_accumulation_steps: 1\nlearning_rate: 1e-4\ndeepspeed: ds_config.json\n"
)


@rule(
    "DS942",
    effect=Effect.IGNORED,
    watches=("setup",),
    references=(
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars",
        "llamafactory/cli.py, main of 0.9.0 and 0.9.1",
    ),
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
@bad(
    BF16_ZERO_2,
    at="",
    launch=_FACTORY % "RANK=1",
    training=_TRAINING,
    pins={"llamafactory": Release(0, 9, 3)},
    message="LLaMA-Factory 0.9.3 does not read RANK: without NODE_RANK this machine starts as number 0, and the machines wait for each other.",
)
@good(
    BF16_ZERO_2,
    launch=_FACTORY % "RANK=1",
    training=_TRAINING,
    pins={"llamafactory": Release(0, 9, 0)},
)
@good(BF16_ZERO_2, launch=_FACTORY % "NODE_RANK=1", training=_TRAINING)
@good(BF16_ZERO_2, launch=_LAUNCH % "CUDA_VISIBLE_DEVICES=0,1 CUDA_DEVICE_ORDER=PCI_BUS_ID", integration="deepspeed")
@good(BF16_ZERO_2, launch=_LAUNCH % "export CUDA_VISIBLE_DEVICE=0\nCUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICE", integration="deepspeed")
def misspelt_variable(config: Config) -> Iterator[Finding]:
    """A launch misspells CUDA_VISIBLE_DEVICES, or numbers its machines by a variable that only older releases read.

    CUDA and the launchers read only the variable with the right name, and nobody warns about another one: the training sees all GPUs of the
    machine or the job. Without
    a number of ranks, `deepspeed` starts one on each of them; with one it uses the first GPUs, also those that the variable should leave out.

    LLaMA-Factory takes the number of a machine from NODE_RANK since 0.9.1, and from RANK before. With the other name each machine is number 0:
    it waits for the others, and they wait for it.

    Write the name as CUDA has it, or as the release of LLaMA-Factory has it.
    """
    launch = config.setup.launch if config.setup else None
    yield from _node_rank(config)
    wrong = launch.misspelt if launch is not None else None
    if wrong is None or any(wrong.name in text for text in programs_of(config)):
        return
    yield Finding(
        "",
        f"Nothing reads {wrong.name}: the variable for the GPUs is CUDA_VISIBLE_DEVICES, and the training sees the same GPUs as without it.",
        help="Write CUDA_VISIBLE_DEVICES.",
        elsewhere=wrong.related(""),
    )


def _node_rank(config: Config) -> Iterator[Finding]:
    """The finding for the number of a machine that the release of a framework does not read."""
    launch = config.setup.launch if config.setup else None
    given = launch.former_node_rank if launch is not None else None
    if given is None:
        return
    framework = of_arguments(config.arguments)
    former = framework.former_node_rank if framework is not None else None
    if framework is None or former is None or former[0] != given.name:
        return
    pinned = config.context.pinned(framework.packages[0])
    if pinned is not None and pinned < former[1]:
        return
    which = f"{framework.name} {pinned} does" if pinned is not None else f"{framework.name} {former[1]} and later do"
    yield Finding(
        "",
        f"{which} not read {given.name}: without NODE_RANK this machine {'starts' if pinned is not None else 'may start'} as number 0, and the machines "
        "wait for each other.",
        help="Write NODE_RANK.",
        elsewhere=given.related(""),
        certain=pinned is not None,
    )
