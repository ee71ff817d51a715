"""Releases of DeepSpeed with a defect that some programs and launches run into, or with some releases of torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Release
from dslint.job.arguments import SourcedValue
from dslint.job.events import ENGINE, Event
from dslint.job.model import Launch
from dslint.rules.helpers.precision import dtype_of, model_dtype
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


_LATEST = Release(99, 0, 0)
"""For a defect that the newest release has, too."""


def _loads_tag(config: Config) -> Event | None:
    """A call that loads a tag without the states of the optimizer, at stage 3."""
    if not config.value(STAGE) >= 3:
        return None
    loads = _calls(config, rf"{re.escape(ENGINE)}\.load_checkpoint")
    return next((one for one in loads if _value(one, "load_optimizer_states", 3) is False and one.argument("tag", 1) is not None), None)


def _stages(config: Config) -> int:
    program = config.setup.program if config.setup else None
    stages = program.pipeline.value if program is not None and program.pipeline is not None else config.facts.pipeline_parallel
    return stages if isinstance(stages, int) else 0


def _sums_in_bf16(config: Config) -> str | None:
    """A pipeline in bf16 at stage 1 whose gradients are summed in bf16, too, as they are unless a type is written."""
    written = dtype_of(config, "data_types.grad_accum_dtype")
    is_bf16 = model_dtype(config) == "bf16" and (written == "bf16" or not config.has("data_types.grad_accum_dtype"))
    return "bf16.enabled" if is_bf16 and bool(config.value(STAGE) == 1) and _stages(config) > 1 else None


def _launch(config: Config) -> Launch | None:
    """The launch of DeepSpeed's launcher on several machines by ssh or MPI."""
    launch = config.setup.launch if config.setup else None
    if launch is None or launch.launcher != "deepspeed" or "no_ssh" in launch.flags:
        return None
    return launch if len(launch.hosts) > 1 or "force_multi" in launch.flags else None


def _by_mpi(config: Config) -> SourcedValue | None:
    launch = _launch(config)
    given = launch.flags.get("launcher") if launch is not None else None
    return given if given is not None and str(given.value).lower() == "openmpi" else None


def _by_pdsh(flag: str) -> Callable[[Config], SourcedValue | None]:
    def shows(config: Config) -> SourcedValue | None:
        launch = _launch(config)
        if launch is None or ("launcher" in launch.flags and str(launch.flags["launcher"].value).lower() != "pdsh"):
            return None
        return launch.flags.get(flag)

    return shows


def _without_ssh(config: Config) -> SourcedValue | None:
    launch = config.setup.launch if config.setup else None
    return launch.flags.get("no_ssh") if launch is not None and launch.launcher == "deepspeed" else None


PROGRAM_DEFECTS = (
    ReleaseDefect(
        "deepspeed",
        Release(0, 10, 2),
        _LATEST,
        _loads_tag,
        "at ZeRO stage 3, load_checkpoint without the states of the optimizer may load the weights of another checkpoint: it reads those of the tag "
        "in the file latest, not of the tag that is given",
        "Write the tag into the file latest of the folder, or load the states of the optimizer, too.",
        "https://github.com/deepspeedai/DeepSpeed/issues/8499",
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 9, 0),
        Release(0, 13, 2),
        _sums_in_bf16,
        "a pipeline in bf16 at ZeRO stage 1 sums its gradients in bf16, in an optimizer that pipelines do not support: the first step raises "
        "AttributeError \"'DeepSpeedZeroOptimizer' object has no attribute 'clear_lp_grads'\", and from 0.11.2 on AssertionError "
        '"allreduce_gradients() is not valid when bfloat+pipeline_parallelism is enabled"',
        'Write "data_types": {"grad_accum_dtype": "fp32"}, or use DeepSpeed 0.13.3 or later.',
        "https://github.com/deepspeedai/DeepSpeed/issues/3693",
        Effect.CRASH,
        Phase.STEP,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 16, 4),
        Release(0, 18, 3),
        _by_mpi,
        'the launcher looks for the variables of mpirun before it starts mpirun, and raises OSError "MPI environment variables are not set"',
        "Use DeepSpeed 0.18.4 or later, or start mpirun yourself, without DeepSpeed's launcher.",
        f"{_PULL}7751",
        Effect.CRASH,
        Phase.LOAD,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 11, 0),
        Release(0, 14, 0),
        _by_pdsh("ssh_port"),
        "with --ssh_port the launcher raises KeyError 'PDSH_SSH_ARGS_APPEND' unless that variable is set",
        'Set PDSH_SSH_ARGS_APPEND="", write the port into ~/.ssh/config, or use DeepSpeed 0.14.1 or later.',
        f"{_PULL}5318",
        Effect.CRASH,
        Phase.LOAD,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 9, 0),
        Release(0, 14, 4),
        _without_ssh,
        'the launcher has no --no_ssh yet, and raises "unrecognized arguments"',
        "Use DeepSpeed 0.14.5 or later, or torchrun on each machine.",
        f"{_PULL}5728",
        Effect.CRASH,
        Phase.LOAD,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 9, 0),
        Release(0, 16, 1),
        _by_pdsh("enable_each_rank_log"),
        "the launcher does not pass --enable_each_rank_log on to other machines, so no rank writes a log",
        "Use DeepSpeed 0.16.2 or later.",
        f"{_PULL}6863",
        Effect.IGNORED,
    ),
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
