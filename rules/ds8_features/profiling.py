"""DS8: timers, profilers and what DeepSpeed prints."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config, Origin
from dslint.diagnostics import Applicability, Effect
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.cost import lost_overlap, waits
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.project import programs_of

MEASUREMENTS = {
    "wall_clock_breakdown": "waits for the GPU before and after every forward pass, backward pass and step, and prints their times",
    "memory_breakdown": "reads and prints the memory use at every step",
    "comms_logger.enabled": "waits for every collective to finish, so that no communication overlaps with computation",
    "flops_profiler.enabled": "enables wall_clock_breakdown for the whole run, not only for the profiled step",
}
"""Keys that enable a measurement, with what it costs."""

WAITS = 3
"""How often the timers of a micro batch wait for the GPU: after the forward, the backward and the step."""

PROFILE_STEP = "flops_profiler.profile_step"
PROF_ALL, PROF_OPS = "comms_logger.prof_all", "comms_logger.prof_ops"


@rule(
    "DS805",
    effect=Effect.SLOW,
    watches=tuple(MEASUREMENTS),
    references=("https://www.deepspeed.ai/docs/config-json/#logging", "deepspeed/runtime/config.py, DeepSpeedConfig._initialize_params"),
    pedantic=True,
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "wall_clock_breakdown": true}',
    at="wall_clock_breakdown",
    message="wall_clock_breakdown waits for the GPU before and after every forward pass, backward pass and step, and prints their times.",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "flops_profiler": {"enabled": true, "profile_step": 5}}',
    at="flops_profiler.enabled",
    message="flops_profiler enables wall_clock_breakdown for the whole run, not only for the profiled step.",
)
@good('{"train_micro_batch_size_per_gpu": 4, "wall_clock_breakdown": false, "flops_profiler": {"enabled": false}}')
def measuring_left_on(config: Config) -> Iterator[Finding]:
    """Timers and profilers slow down every step while they are enabled.

    A time is correct only after the GPU has finished, so each measurement waits for the GPU, which then idles while the next work is
    launched. The flops profiler profiles one step, but leaves `wall_clock_breakdown` on for all others.

    Disable them once you have the numbers.
    """
    if config.enabled("autotuning") is True:
        return
    for key, cost in MEASUREMENTS.items():
        if config.has(key) and config.value(key) is True and config.origin(key) is not Origin.DERIVED:
            more = lost_overlap(config) if key == "comms_logger.enabled" else waits(config, lambda _: WAITS)
            yield Finding(key, f"{key.removesuffix('.enabled')} {cost}.", help=f"Disable it for the real run.{more}")


@rule(
    "DS806",
    effect=Effect.IGNORED,
    watches=(PROFILE_STEP,),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._forward_prologue",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "flops_profiler": {"enabled": true, "profile_step": -1}}',
    at=PROFILE_STEP,
    message="profile_step -1 never comes, because steps are counted from 0: DeepSpeed profiles nothing.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "flops_profiler": {"enabled": true, "profile_step": 5}}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "flops_profiler": {"enabled": true, "profile_step": 5}}')
def profile_step_never_comes(config: Config) -> Iterator[Finding]:
    """The flops profiler profiles nothing, because `profile_step` is negative.

    It profiles only the step with this number, and steps are counted from 0. It still enables `wall_clock_breakdown`.

    Write a step after the first few, such as 5.
    """
    if config.enabled("flops_profiler") is True and config.has(PROFILE_STEP) and config.value(PROFILE_STEP) < 0:
        yield Finding(
            PROFILE_STEP,
            f"profile_step {config.quote(PROFILE_STEP)} never comes, because steps are counted from 0: DeepSpeed profiles nothing.",
            help="Write a step after the first few, such as 5.",
            fix=write(config, PROFILE_STEP, "5"),
        )


_MARKS = re.compile(r"\bprof\s*=\s*True\b")
"""A call of deepspeed.comm that the program marks, which the logger logs in any case."""


@rule(
    "DS807",
    effect=Effect.IGNORED,
    watches=(PROF_ALL, PROF_OPS),
    references=("https://www.deepspeed.ai/docs/config-json/#communication-logging", "deepspeed/comm/comm.py, timed_op"),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "comms_logger": {"enabled": true, "prof_all": false}}',
    at=PROF_ALL,
    message="comms_logger logs nothing: prof_all is false, and prof_ops names no operation.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "comms_logger": {"enabled": true}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "comms_logger": {"enabled": true, "prof_ops": ["all_reduce"]}}',
    at=PROF_OPS,
    message="DeepSpeed ignores prof_ops because prof_all defaults to true: it logs every operation.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "comms_logger": {"enabled": true, "prof_ops": ["all_reduce"], "prof_all": false}}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "comms_logger": {"enabled": true, "prof_all": false, "prof_ops": ["all_reduce"]}}')
@good('{"train_micro_batch_size_per_gpu": 4, "comms_logger": {"enabled": true, "prof_ops": []}}')
@good(
    '{"train_micro_batch_size_per_gpu": 4, "comms_logger": {"enabled": true, "prof_all": false}}',
    program='deepspeed.initialize(model=model, config="ds_config.json")\ndeepspeed.comm.all_reduce(loss, prof=True)\n',
)
def comms_logger_selection(config: Config) -> Iterator[Finding]:
    """The communication logger logs either every operation or those in `prof_ops`, never both.

    `prof_all` defaults to true, and DeepSpeed then ignores `prof_ops`. If `prof_all` is false and `prof_ops` is empty, the logger logs only
    the calls that the program marks.

    To log some operations, write `"prof_all": false` and list them in `prof_ops`.
    """
    if config.enabled("comms_logger") is not True:
        return
    everything, names = config.value(PROF_ALL), config.value(PROF_OPS)
    if everything is False and names == []:
        if any(_MARKS.search(text) for text in programs_of(config)):
            return
        yield Finding(
            PROF_ALL,
            "comms_logger logs nothing: prof_all is false, and prof_ops names no operation.",
            help='Add "prof_ops": ["all_reduce", ...], or remove "prof_all".',
            fix=without(config, PROF_ALL, Applicability.UNSAFE),
        )
    elif everything is True and isinstance(names, list) and names:
        written = config.has(PROF_ALL)
        yield Finding(
            PROF_OPS,
            f"DeepSpeed ignores prof_ops because prof_all {'is' if written else 'defaults to'} true: it logs every operation.",
            help='Write "prof_all": false.',
            fix=without(config, PROF_OPS) if written else write(config, PROF_ALL, "false"),
        )


@rule(
    "DS808",
    effect=Effect.ADVICE,
    watches=("steps_per_print",),
    references=("accelerate/utils/dataclasses.py, DeepSpeedPlugin",),
    pedantic=True,
)
@bad(
    '{"train_batch_size": "auto", "steps_per_print": 2000}',
    at="steps_per_print",
    integration="transformers",
    message="steps_per_print 2000 has no effect under the Hugging Face Trainer, which overwrites it with infinity: DeepSpeed prints nothing.",
    fixed='{"train_batch_size": "auto"}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "steps_per_print": 2000}')
def steps_per_print_overwritten(config: Config) -> Iterator[Finding]:
    """Accelerate, and the Hugging Face Trainer through it, overwrites `steps_per_print` with infinity.

    DeepSpeed then prints nothing, whatever the file says.

    Remove the key, and use the logging of Accelerate or the Trainer.
    """
    key, loader = "steps_per_print", config.facts.integration
    if loader not in (Integration.TRANSFORMERS, Integration.ACCELERATE) or not config.has(key):
        return
    if config.is_null(key) or config.is_auto(key) or config.quote(key) == "Infinity":
        return
    assert loader is not None
    yield Finding(
        key,
        f"steps_per_print {config.quote(key)} has no effect under {loader.label}, which overwrites it with infinity: DeepSpeed prints nothing.",
        help=f"Remove it, and use the logging of {loader.label}.",
        fix=without(config, key),
    )
