"""DS6: learning rate schedules."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Integration
from dslint.rule import Finding, FixPlan, bad, good, rule, safe
from dslint.rules.helpers.examples import ADAMW
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.optimizer import STAGE
from dslint.rules.helpers.parameters import number, parameter, runs_scheduler
from dslint.rules.helpers.schedule import PARAMS, SCHEDULERS_DOCS, SOURCE, placed, schedule_of, schedule_param
from dslint.schemas.typed import find_type
from dslint.source.change import Replace
from dslint.source.tree import Mapping, Scalar, Span

WARMUPS = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")


def _at(config: Config, *names: str) -> str:
    """The first of these parameters that is written, or the section."""
    return next((f"{PARAMS}.{name}" for name in names if config.has(f"{PARAMS}.{name}")), PARAMS)


def _warmed_up(config: Config, step: float, steps: float) -> float:
    """How far the warm-up has come at a step, from 0 to 1."""
    steps = max(2, steps)
    step = min(max(step, 0), steps)
    return step / steps if parameter(config, "scheduler", "warmup_type") == "linear" else math.log(max(step, 1)) / math.log(steps)


def _peak(config: Config) -> Any:
    """The learning rate at the end of the warm-up; `UNKNOWN` where somebody else says it."""
    if schedule_of(config) == "WarmupCosineLR" or parameter(config, "scheduler", "warmup_max_lr") is None:
        return number(parameter(config, "optimizer", "lr"))
    return schedule_param(config, "warmup_max_lr")


@rule(
    "DS633",
    "torch-schedule-on-wrapped-optimizer",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("scheduler.type",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._scheduler_from_config",),
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "StepLR", "params": {{"step_size": 10}}}}, "zero_optimization": {{"stage": 1}}}}',
    at="scheduler.type",
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "CosineAnnealingLR", "params": {{"T_max": 10}}}}, "bf16": {{"enabled": true}}}}',
    at="scheduler.type",
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "StepLR", "params": {{"step_size": 10}}}}}}')
def torch_schedule_on_wrapped_optimizer(config: Config) -> Iterator[Finding]:
    """PyTorch's schedules work on a bare optimizer only, and ZeRO, fp16 and bf16 wrap it.

    DeepSpeed hands its wrapper to the schedule's constructor, which wants a `torch.optim.Optimizer` and raises a `TypeError`. At stage 0 in fp32 nothing is wrapped.

    Take one of DeepSpeed's schedules (WarmupCosineLR, WarmupDecayLR, WarmupLR, OneCycle), or build PyTorch's in the program over the optimizer
    it brings.
    """
    entry, stage = find_type("scheduler", config.value("scheduler.type")), config.value(STAGE)
    if entry is None or "wrapped" not in entry:
        return
    half = next((section for section in ("bf16", "fp16") if config.value(f"{section}.enabled") is True), None)
    if stage >= 1:
        at, why = STAGE, f"ZeRO stage {stage}"
    elif half is not None:
        at, why = f"{half}.enabled", half
    else:
        return
    yield Finding(
        "scheduler.type",
        f'{config.quote("scheduler.type")} is a schedule of PyTorch, which takes a bare optimizer, and {why} wraps it: DeepSpeed raises TypeError "... is not an Optimizer" in deepspeed.initialize.',
        help="Take one of DeepSpeed's schedules, such as WarmupCosineLR, or build this one in the program.",
        related=((at, "the optimizer is wrapped because of this"),) if config.has(at) else (),
    )


@rule(
    "DS634",
    "scheduler-without-params",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("scheduler.type",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._scheduler_from_config",),
)
@bad(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR"}}}}', at="scheduler.type")
@bad(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "warmup_num_steps": 100}}}}', at="scheduler.type")
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{}}}}}}')
def scheduler_without_params(config: Config) -> Iterator[Finding]:
    """A schedule needs `params`, if only an empty one.

    DeepSpeed unpacks `params` into the constructor's arguments, and raises a `TypeError` where there is none. An optimizer is built without `params`; a schedule is not.

    Add `"params": {}`, or put into it what stands beside `type`.
    """
    if not schedule_of(config) or config.has(PARAMS) or any(violation.meant == ("scheduler", "params") for violation in config.violations):
        return
    yield Finding(
        "scheduler.type",
        f'{config.value("scheduler.type")} has no "params": DeepSpeed raises TypeError "argument after ** must be a mapping, not NoneType" in deepspeed.initialize.',
        help='Add "params": {...} with the settings of the schedule, or "params": {} for its defaults.',
        fix=_with_params(config),
    )


def _with_params(config: Config) -> FixPlan | None:
    """Put what stands beside the type into `params`, or make an empty one where nothing does and the schedule needs nothing."""
    section, entry = config.node("scheduler"), find_type("scheduler", config.value("scheduler.type"))
    if not isinstance(section, Mapping) or entry is None:
        return None
    beside = [member for member in section.members if member.key.value != "type"]
    needed = [name for name, spec in entry["params"].items() if spec.get("required")]
    if not beside:
        if needed == ["total_num_steps"] and config.facts.integration is Integration.TRANSFORMERS:
            return write(config, PARAMS, '{"total_num_steps": "auto"}')
        return None if needed else write(config, PARAMS, "{}", Applicability.SAFE)
    first = section.members.index(beside[0])
    together = list(section.members[first : first + len(beside)]) == beside
    last, names = beside[-1].value, {member.key.value for member in beside}
    bare = isinstance(last, Scalar) and last.style == "bare"
    if not together or bare or not names <= set(entry["params"]) or not names >= set(needed) or config.document.language == "yaml":
        return None
    start, end = beside[0].span.start, beside[-1].span.end
    return safe("put the settings into params", Replace(Span(start, end), f'"params": {{{config.document.text[start:end]}}}'))


@rule(
    "DS635",
    "warmup-beyond-the-run",
    effect=Effect.SILENT,
    watches=("scheduler.params.total_num_steps",),
    references=(SOURCE, SCHEDULERS_DOCS),
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupDecayLR", "params": {{"warmup_max_lr": 1e-4, "warmup_num_steps": 1000, "total_num_steps": 100}}}}}}',
    at="scheduler.params.total_num_steps",
)
@bad(f'{{{ADAMW}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"total_num_steps": 500}}}}}}', at="scheduler.params.total_num_steps")
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"warmup_num_steps": 50, "total_num_steps": 500}}}}}}')
def warmup_beyond_the_run(config: Config) -> Iterator[Finding]:
    """The warm-up is as long as the run, or longer: the learning rate never falls, and may never reach its peak.

    `total_num_steps` counts from the first step of the run, warm-up included; `warmup_num_steps` is 1000 where it is not written. DeepSpeed logs a warning, and
    goes on.

    Count both in optimizer steps: samples divided by train_batch_size, times epochs.
    """
    if schedule_of(config) not in WARMUPS[1:]:
        return
    total, warmup, peak = schedule_param(config, "total_num_steps"), schedule_param(config, "warmup_num_steps"), _peak(config)
    if not total <= warmup:
        return
    key = f"{PARAMS}.warmup_num_steps"
    reached = _warmed_up(config, total, warmup)
    end = f", at {peak * reached:.2g} in place of {peak:g}" if peak > 0 and reached < 1 else ""
    yield Finding(
        _at(config, "total_num_steps"),
        f"total_num_steps {config.quote(f'{PARAMS}.total_num_steps')} is not more than {placed(config, 'warmup_num_steps')}: the run ends within the warm-up{end}, and the learning rate never falls.",
        help="Write a warm-up that is shorter than the run; both count optimizer steps.",
        related=((key, "the warm-up"),) if config.has(key) else (),
    )


@rule(
    "DS636",
    "warmup-downwards",
    effect=Effect.SILENT,
    watches=("scheduler.params.warmup_min_lr", "scheduler.params.warmup_min_ratio"),
    references=(SOURCE,),
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_min_lr": 1e-3, "warmup_max_lr": 1e-4, "warmup_num_steps": 10}}}}}}',
    at="scheduler.params.warmup_min_lr",
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"warmup_min_ratio": 2, "warmup_num_steps": 10, "total_num_steps": 100}}}}}}',
    at="scheduler.params.warmup_min_ratio",
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_min_lr": 0, "warmup_max_lr": 1e-4, "warmup_num_steps": 10}}}}}}')
def warmup_downwards(config: Config) -> Iterator[Finding]:
    """The warm-up begins above the learning rate it ends at.

    DeepSpeed goes from `warmup_min_lr` to `warmup_max_lr` whichever is larger: training starts with the highest learning rate, which is what a warm-up is there to
    avoid. For WarmupCosineLR `warmup_min_ratio` is a share of the optimizer's learning rate, 1 at the end of the warm-up.

    Exchange the two, or write 0 for the start.
    """
    schedule = schedule_of(config)
    name = "warmup_min_ratio" if schedule == "WarmupCosineLR" else "warmup_min_lr"
    if schedule not in WARMUPS or not config.has(f"{PARAMS}.{name}"):
        return
    start = schedule_param(config, name)
    peak = 1.0 if name == "warmup_min_ratio" else _peak(config)
    if start > peak:
        end = "1, the optimizer's learning rate" if name == "warmup_min_ratio" else f"{peak:g}"
        key = f"{PARAMS}.warmup_max_lr"
        yield Finding(
            f"{PARAMS}.{name}",
            f"{name} {config.quote(f'{PARAMS}.{name}')} is above {end}, where the warm-up ends: the learning rate starts at its highest and falls.",
            help="Write 0, or what is meant as the start of the warm-up.",
            related=((key, "the end of the warm-up"),) if config.has(key) else (),
        )


@rule("DS637", "unknown-warmup-type", effect=Effect.SILENT, watches=("scheduler.params.warmup_type",), references=(SOURCE,))
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 10, "warmup_type": "cosine"}}}}}}',
    at="scheduler.params.warmup_type",
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 10, "warmup_type": "linear"}}}}}}')
def unknown_warmup_type(config: Config) -> Iterator[Finding]:
    """A `warmup_type` that is neither "log" nor "linear" is "log".

    DeepSpeed logs a warning, and warms up along a logarithm, which is fast at first: after a tenth of 1000 steps the learning rate is at two thirds of its peak.

    Write "linear" or "log", in lower case.
    """
    key = f"{PARAMS}.warmup_type"
    node = config.node(key)
    written = getattr(node, "value", None)
    if schedule_of(config) in WARMUPS and isinstance(written, str) and written not in ("log", "linear", "auto"):
        yield Finding(
            key,
            f'warmup_type {config.quote(key)} is neither "log" nor "linear": DeepSpeed warms up along a logarithm.',
            help='Write "linear" or "log".',
            fix=write(config, key, '"linear"') if written.lower().startswith("lin") else write(config, key, '"log"', Applicability.SAFE),
        )


@rule("DS638", "one-step-of-warmup", effect=Effect.ADVICE, watches=("scheduler.params.warmup_num_steps",), references=(SOURCE,))
@bad(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 1}}}}}}', at="scheduler.params.warmup_num_steps")
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 2}}}}}}')
def one_step_of_warmup(config: Config) -> Iterator[Finding]:
    """A warm-up of one step is one of two.

    DeepSpeed takes at least 2, and the first steps run at `warmup_min_lr`, which is 0 unless it is written. There is no way to switch the warm-up off but
    to start it at its peak.

    For no warm-up write `"warmup_min_lr"` equal to the peak, or leave the schedule out.
    """
    key = f"{PARAMS}.warmup_num_steps"
    if schedule_of(config) in WARMUPS and config.has(key) and schedule_param(config, "warmup_num_steps") == 1:
        yield Finding(
            key,
            f"warmup_num_steps {config.quote(key)} counts as 2, and the first two steps run at the learning rate where the warm-up starts.",
            help="For no warm-up, let it start at its peak, or leave the schedule out.",
            fix=write(config, key, "2", Applicability.SAFE),
        )


@rule("DS639", "cosine-that-does-not-fall", effect=Effect.SILENT, watches=("scheduler.params.cos_min_ratio",), references=(SOURCE,))
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"cos_min_ratio": 1.5, "warmup_num_steps": 10, "total_num_steps": 100}}}}}}',
    at="scheduler.params.cos_min_ratio",
)
@good(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"cos_min_ratio": 0.1, "warmup_num_steps": 10, "total_num_steps": 100}}}}}}'
)
def cosine_that_does_not_fall(config: Config) -> Iterator[Finding]:
    """`cos_min_ratio` is the share of the learning rate that is left at the end: between 0 and 1.

    With 1 the learning rate stays where it is, above 1 it rises, and below 0 it is 0 for the last part of the run.

    Write the share, such as 0.1, and not the learning rate at the end.
    """
    key = f"{PARAMS}.cos_min_ratio"
    ratio = schedule_param(config, "cos_min_ratio") if config.has(key) and schedule_of(config) == "WarmupCosineLR" else UNKNOWN
    if ratio >= 1 or ratio < 0:
        lr = number(parameter(config, "optimizer", "lr"))
        what = "falls to 0 before the end" if ratio < 0 else "stays at its peak" if ratio == 1 else "rises"
        end = f", from {lr:g} to {lr * ratio:g}" if ratio > 1 and lr > 0 else ""
        yield Finding(
            key,
            f"cos_min_ratio {config.quote(key)} is not between 0 and 1: after the warm-up the learning rate {what}{end}.",
            help="Write the share of the learning rate that is left at the end, such as 0.1.",
        )


@rule("DS640", "late-schedule", effect=Effect.ADVICE, watches=("scheduler.params.last_batch_iteration",), references=(SOURCE,))
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 100, "last_batch_iteration": 500}}}}}}',
    at="scheduler.params.last_batch_iteration",
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 100, "last_batch_iteration": -1}}}}}}')
def lateschedule_of(config: Config) -> Iterator[Finding]:
    """`last_batch_iteration` starts the schedule in the middle.

    A new run then has no warm-up, or a part of it; its very first step takes the optimizer's own learning rate. A run that resumes from a checkpoint gets the number
    from there, whatever stands here.

    Remove it.
    """
    key = f"{PARAMS}.last_batch_iteration"
    last: Any = schedule_param(config, "last_batch_iteration") if config.has(key) and runs_scheduler(config) else UNKNOWN
    if last >= 0:
        yield Finding(
            key,
            f"last_batch_iteration {config.quote(key)}: a new run starts its schedule at step {int(last) + 1:,}; one that resumes takes the number from the checkpoint.",
            help="Remove it.",
            fix=without(config, key, Applicability.UNSAFE),
        )


@rule("DS646", "logarithmic-warmup", effect=Effect.ADVICE, watches=("scheduler.type",), references=(SOURCE,), pedantic=True)
@bad(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 1000}}}}}}', at="scheduler.params")
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 1000, "warmup_type": "linear"}}}}}}')
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 1000, "warmup_type": "log"}}}}}}')
def logarithmic_warmup(config: Config) -> Iterator[Finding]:
    """Without `warmup_type` the warm-up is logarithmic, and not linear as nearly everywhere else.

    It is fast at first: a tenth of the way through 1000 steps the learning rate is at two thirds of its peak. Recipes of papers mean a linear one.

    Write `"warmup_type": "linear"`, or "log" to say that it is meant.
    """
    steps = schedule_param(config, "warmup_num_steps")
    if schedule_of(config) in WARMUPS and not config.has(f"{PARAMS}.warmup_type") and steps >= 10:
        tenth = _warmed_up(config, steps / 10, steps)
        yield Finding(
            PARAMS,
            f"warmup_type is not written, and the warm-up is logarithmic: after a tenth of its {steps:,.0f} steps the learning rate is at {tenth:.0%} of its peak, where a linear one is at 10%.",
            help='Write "warmup_type": "linear", or "log" to say that it is meant.',
            on="key",
            fix=write(config, f"{PARAMS}.warmup_type", '"log"', Applicability.SAFE),
        )


@rule("DS647", "constant-after-warmup", effect=Effect.ADVICE, watches=("scheduler.type",), references=(SOURCE,), pedantic=True)
@bad(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 1000}}}}}}', at="scheduler.type")
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupDecayLR", "params": {{"warmup_max_lr": 1e-4, "total_num_steps": 9000}}}}}}')
def constant_after_warmup(config: Config) -> Iterator[Finding]:
    """WarmupLR keeps its peak to the end of the run.

    It has no decay. Under the Hugging Face Trainer it takes the place of whatever `lr_scheduler_type` says, cosine or linear.

    Where the learning rate is to fall, take WarmupDecayLR or WarmupCosineLR, or leave the schedule to the loader.
    """
    if schedule_of(config) == "WarmupLR":
        peak = _peak(config)
        yield Finding(
            "scheduler.type",
            f"WarmupLR stays at its peak{f' of {peak:g}' if peak > 0 else ''} after the warm-up, to the end of the run.",
            help="Where the learning rate is to fall, take WarmupDecayLR or WarmupCosineLR.",
        )
