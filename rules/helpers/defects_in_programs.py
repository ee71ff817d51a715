"""Releases of DeepSpeed with a defect that some programs run into, or with some releases of torch."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.facts import Release
from dslint.job.arguments import SourcedValue
from dslint.job.events import Event
from dslint.rules.helpers.releases import ReleaseDefect
from dslint.rules.helpers.zero import STAGE

_EXPERTS = r"deepspeed\.moe\.(layer\.)?MoE"
_KEEPS_STREAMS = Release(2, 10, 0)
"""The first torch with which gradients of stage 3 are known to be copied too early."""
_PULL = "https://github.com/deepspeedai/DeepSpeed/pull/"


def _calls(config: Config, pattern: str) -> Iterator[Event]:
    """The calls of this name in the program, without those that a flag has to select."""
    program = config.setup.program if config.setup else None
    return (one for one in program.events.of(pattern) if not one.unlikely) if program is not None else iter(())


def _value(call: Event, name: str, index: int) -> object:
    given = call.argument(name, index)
    return given.value if given is not None else None


def _chooses_several_experts(config: Config) -> Event | None:
    for layer in _calls(config, _EXPERTS):
        chosen = _value(layer, "k", 4)
        if isinstance(chosen, int) and chosen > 2 and _value(layer, "drop_tokens", 11) is not False:
            return layer
    return None


def _divides_experts(config: Config) -> Event | None:
    if config.value(STAGE) not in (1, 2):
        return None
    sizes = ((layer, _value(layer, "ep_size", 3)) for layer in _calls(config, _EXPERTS))
    return next((layer for layer, size in sizes if isinstance(size, int) and size > 1), None)


def _attends_apart(config: Config) -> Event | None:
    return next(_calls(config, r"deepspeed\.sequence\.(layer\.)?DistributedAttention"), None)


def _tiles(config: Config) -> Event | None:
    tiled = r"deepspeed\.runtime\.sequence_parallel\.ulysses_sp\.(TiledMLP|SequenceTiledCompute)(\.apply)?"
    return next(_calls(config, tiled), None) if config.value("train_micro_batch_size_per_gpu") > 1 else None


def _accumulates_in_pipeline(config: Config) -> SourcedValue | None:
    program = config.setup.program if config.setup else None
    pipeline = program.pipeline if program is not None else None
    if pipeline is None or not config.value("gradient_accumulation_steps") > 1:
        return None
    return pipeline if isinstance(pipeline.value, int) and pipeline.value > 1 else None


def _reduces_early(config: Config) -> str | None:
    torch = config.context.at_least("torch")
    return STAGE if bool(config.value(STAGE) == 3) and torch is not None and torch >= _KEEPS_STREAMS else None


PROGRAM_DEFECTS = (
    ReleaseDefect(
        "deepspeed",
        Release(0, 15, 0),
        Release(0, 18, 9),
        _chooses_several_experts,
        "with k above 2, the gate of MoE chooses the tokens of an expert by their logits, and drops those with a negative one: few of the k experts "
        "of a token may be used",
        "Use DeepSpeed 0.19.0 or later, k=2, or drop_tokens=False.",
        f"{_PULL}7986",
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 13, 1),
        Release(0, 15, 3),
        _divides_experts,
        "ZeRO stages 1 and 2 divide the gradients of experts by the ranks that share an expert, and not by all: they are ep_size times too large",
        "Use DeepSpeed 0.15.4 or later.",
        f"{_PULL}6546",
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 12, 4),
        Release(0, 14, 3),
        _attends_apart,
        "DistributedAttention puts the heads of its output in a wrong order: the model does not converge",
        "Use DeepSpeed 0.14.5 or later.",
        f"{_PULL}5664",
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 14, 4),
        Release(0, 14, 4),
        _attends_apart,
        "DistributedAttention mixes up the samples of a micro batch of more than one",
        "Use DeepSpeed 0.14.5 or later, or a micro batch size of 1.",
        f"{_PULL}5823",
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 17, 0),
        Release(0, 17, 2),
        _tiles,
        "its tiled computations give gradients to other positions if the micro batch has more than one sample",
        "Use DeepSpeed 0.17.3 or later, or a micro batch size of 1.",
        f"{_PULL}7412",
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 18, 3),
        Release(0, 19, 2),
        _accumulates_in_pipeline,
        "each stage of a pipeline divides the gradients by the gradient accumulation steps again: those of all stages but the last are too small",
        "Use DeepSpeed 0.19.3 or later, or 0.18.2.",
        f"{_PULL}8154",
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 9, 2),
        Release(0, 18, 7),
        _reduces_early,
        "with torch 2.10 and later, ZeRO stage 3 may copy gradients before the backward pass has written them, and weights become NaN",
        "Use DeepSpeed 0.18.8 or later, or a torch before 2.10.",
        f"{_PULL}7898",
    ),
)
"""Defects that a program, or the release of torch, runs into."""
