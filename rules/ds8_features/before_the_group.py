"""DS8: calls that need the process group, before the program has made it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.job.events import ENGINE, TRAINER_ARGUMENTS, Event
from dslint.job.model import Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ADAMW
from dslint.rules.helpers.project import programs_of

_CONFIG = f'{{{ADAMW}, "zero_optimization": {{"stage": 2}}}}'
_ENGINE = "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
_LOADER = "loader = DataLoader(data, batch_size=4, sampler=%s)\n"
_PROGRAM = "import deepspeed\nimport torch.distributed as dist\nfrom torch.utils.data import DataLoader, DistributedSampler\n"
_SAMPLER = _LOADER % "DistributedSampler(data)"
_MAKES = (
    rf"{re.escape(ENGINE)}|deepspeed\.(comm\.)?init_distributed|torch\.distributed\.init_process_group|deepspeed\.(\w+\.)*zero\.(\w+\.)*Init"
    rf"|deepspeed\.init_inference|accelerate\.(\w+\.)*(Accelerator|PartialState|AcceleratorState)|{TRAINER_ARGUMENTS}"
)
"""What makes the process group, if there is none."""

_SAMPLERS = r"torch\.utils\.data\.(distributed\.)?DistributedSampler"
_NEEDS = rf"{_SAMPLERS}|torch\.distributed\.(get_rank|get_world_size|barrier|all_reduce|all_gather\w*|broadcast\w*|new_group)"
_MAY_MAKE = re.compile(
    r"(?<![\w.])(?:\w+\.)*(\w*(?:init|set_?up|distribut|dist_|ddp|launch|spawn|engine|backend|parallel)\w*)\s*\(", re.IGNORECASE
)
"""The names of functions that may make the process group, where they are not followed."""

_OTHERS = re.compile(
    r"HfArgumentParser|TrlParser|\bAccelerat|Fabric|lightning|colossalai|horovod|\bray\b|mpi4py|megatron|fairscale|mmengine|monai|ignite"
)
"""Libraries and classes that make the group, or start ranks."""

_MAKE_NONE = re.compile(
    r"__init__|init_weights|_init_weights|initialize|init|init_distributed|init_process_group|Distributed(Batch)?Sampler|is_initialized|is_distributed|__post_init__"
    r"|(xavier|kaiming)_\w+|DistributedDataParallel|DataParallel|parallelize|(?!create|build|init|get|make|set|prepare|start)(\w+_)?engine"
)


@rule(
    "DS884",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(
        "torch/utils/data/distributed.py, DistributedSampler.__init__",
        "torch/distributed/distributed_c10d.py, _get_default_group",
        "https://github.com/deepspeedai/DeepSpeed/issues/510",
    ),
    untried="raised by PyTorch, before the engine exists",
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=f"{_PROGRAM}{_SAMPLER}{_ENGINE}",
    integration="deepspeed",
    message='train.py:4 calls DistributedSampler before there is a process group, which deepspeed.initialize in train.py:5 makes: it raises "Default process group has not been initialized".',
)
@bad(
    _CONFIG,
    at="",
    program=f"{_PROGRAM}if dist.get_rank() == 0:\n    print('starts')\ndeepspeed.init_distributed()\n{_SAMPLER}{_ENGINE}",
    integration="deepspeed",
    message='train.py:4 calls dist.get_rank before there is a process group, which deepspeed.init_distributed in train.py:6 makes: it raises "Default process group has not been initialized".',
)
@good(_CONFIG, program=f"{_PROGRAM}{_ENGINE}{_SAMPLER}", integration="deepspeed")
@good(_CONFIG, program=f"{_PROGRAM}deepspeed.init_distributed()\n{_SAMPLER}{_ENGINE}", integration="deepspeed")
@good(_CONFIG, program=f"{_PROGRAM}dist.init_process_group('nccl')\n{_SAMPLER}{_ENGINE}", integration="deepspeed")
@good(_CONFIG, program=f"from own import setup_ranks\n{_PROGRAM}setup_ranks()\n{_SAMPLER}{_ENGINE}", integration="deepspeed")
@good(_CONFIG, program=f"{_PROGRAM}{_LOADER % 'DistributedSampler(data, num_replicas=8, rank=rank)'}{_ENGINE}", integration="deepspeed")
@good(_CONFIG, program=f"{_PROGRAM}rank = dist.get_rank() if dist.is_initialized() else 0\n{_ENGINE}", integration="deepspeed")
@good(
    _CONFIG,
    program=f"{_PROGRAM}def loader_of(data):\n    return {_SAMPLER.partition(' = ')[2]}{_ENGINE}loader = loader_of(data)\n",
    integration="deepspeed",
)
@good(
    _CONFIG,
    program=f"{_PROGRAM}with deepspeed.zero.Init():\n    model = Net()\n{_SAMPLER}{_ENGINE}",
    integration="deepspeed",
)
def before_the_group(config: Config) -> Iterator[Finding]:
    """A program makes a call that needs the process group before there is one.

    A launcher only sets the variables of the ranks. The process group is made by `deepspeed.initialize`, unless the program calls
    `deepspeed.init_distributed` or `torch.distributed.init_process_group` before. A `DistributedSampler` without `num_replicas` and `rank`
    asks the group for them, as `torch.distributed.get_rank` does.

    Call `deepspeed.init_distributed()` at the start of the program, or make the data loader after the engine.
    """
    program = config.setup.program if config.setup else None
    if program is None or program.is_posted:  # what is left out may make it
        return
    events = program.events
    made = next((one for one in events.of(_MAKES) if one.flow == 0), None)
    early = next((one for one in events.of(_NEEDS) if one.always and not _knows_ranks(one)), None) if made is not None else None
    if made is None or early is None or events.all.index(made) < events.all.index(early) or _may_be_made(program, programs_of(config)):
        return
    yield Finding(
        "",
        f"{early.at.where} calls {early.called} before there is a process group, which {_maker(made)} in {made.at.where} makes: it raises "
        '"Default process group has not been initialized".',
        help="Call deepspeed.init_distributed() before it, or move it behind the call that makes the group.",
        elsewhere=early.at.related(""),
        related=(made.at.related("made here"),),
    )


def _knows_ranks(event: Event) -> bool:
    """Whether a sampler gets the number of ranks and its own rank."""
    is_sampler = re.fullmatch(_SAMPLERS, event.name) is not None
    given = event.argument("num_replicas", 1) is not None and event.argument("rank", 2) is not None
    return is_sampler and (given or not event.complete)


def _may_be_made(program: Program, texts: list[str]) -> bool:
    """Whether something that is not followed may make the group: a function of that kind of name, another library, or a call that no event
    tells of.
    """
    if any(_OTHERS.search(text) for text in texts) or any(
        _MAKE_NONE.fullmatch(name) is None for text in texts for name in _MAY_MAKE.findall(text)
    ):
        return True
    written = sum(len(re.findall(r"\b(?:init_distributed|init_process_group)\s*\(", text)) for text in texts)
    return written > sum(1 for _ in program.events.of(r"deepspeed\.(comm\.)?init_distributed|torch\.distributed\.init_process_group"))


def _maker(event: Event) -> str:
    return event.name if event.name.startswith("deepspeed.") else event.called
