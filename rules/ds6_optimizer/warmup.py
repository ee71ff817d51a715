"""DS6: the warm-up of WarmupLR, WarmupDecayLR and WarmupCosineLR."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Applicability, Effect
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ADAMW
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.loaders import trainer_arguments
from dslint.rules.helpers.parameters import is_passed_by_program, number, parameter
from dslint.rules.helpers.project import is_set_elsewhere
from dslint.rules.helpers.schedule import (
    HAS_COSINE,
    PARAMS,
    PLACEHOLDER,
    REQUIRES_WARMUP,
    SCHEDULERS_DOCS,
    SCHEDULES_SOURCE,
    quote_or_default,
    schedule_param,
    schedule_type,
)

WARMUPS = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")


def _first_written(config: Config, *names: str) -> str:
    """The first of these parameters that is written, else the section."""
    return next((f"{PARAMS}.{name}" for name in names if config.has(f"{PARAMS}.{name}")), PARAMS)


def _warmup_progress(config: Config, step: float, steps: float) -> float:
    """The progress of the warm-up at a step, from 0 to 1."""
    steps = max(2, steps)
    step = min(max(step, 0), steps)
    return step / steps if parameter(config, "scheduler", "warmup_type") == "linear" else math.log(max(step, 1)) / math.log(steps)


def _peak(config: Config) -> Any:
    """The learning rate at the end of the warm-up; `UNKNOWN` if the config does not set it."""
    if schedule_type(config) == "WarmupCosineLR" or parameter(config, "scheduler", "warmup_max_lr") is None:
        return UNKNOWN if is_passed_by_program(config) else number(parameter(config, "optimizer", "lr"))
    return schedule_param(config, "warmup_max_lr")


@rule(
    "DS635",
    effect=Effect.SILENT,
    watches=("scheduler.params.total_num_steps",),
    references=(SCHEDULES_SOURCE, SCHEDULERS_DOCS),
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupDecayLR", "params": {{"warmup_max_lr": 1e-4, "warmup_num_steps": 1000, "total_num_steps": 100}}}}}}',
    at="scheduler.params.total_num_steps",
    message="total_num_steps 100 is not more than warmup_num_steps 1000: the run ends within the warm-up, at 6.7e-05 instead of 0.0001, and the learning rate never falls.",
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"total_num_steps": 500}}}}}}',
    at="scheduler.params.total_num_steps",
    message="total_num_steps 500 is not more than warmup_num_steps 1000, the default: the run ends within the warm-up, at 9e-05 instead of 0.0001, and the learning rate never falls.",
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"warmup_num_steps": 50, "total_num_steps": 500}}}}}}')
@good(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupDecayLR", "params": {{"warmup_max_lr": -1, "warmup_num_steps": 10, "total_num_steps": -1}}}}}}'
)
def warmup_beyond_the_run(config: Config) -> Iterator[Finding]:
    """The warm-up is at least as long as the run: the learning rate never falls, and may not reach its peak.

    `total_num_steps` counts from the first step of the run and includes the warm-up; `warmup_num_steps` defaults to 1000. If the total
    is smaller, DeepSpeed logs a warning and continues.

    Count both in optimizer steps: samples divided by train_batch_size, times epochs.
    """
    if schedule_type(config) not in WARMUPS[1:]:
        return
    total, warmup, peak = schedule_param(config, "total_num_steps"), schedule_param(config, "warmup_num_steps"), _peak(config)
    if not total <= warmup or PLACEHOLDER in (total, warmup) or is_set_elsewhere(config, "total_num_steps", "warmup_num_steps"):
        return
    key = f"{PARAMS}.warmup_num_steps"
    progress = _warmup_progress(config, total, warmup)
    end = f", at {peak * progress:.2g} instead of {peak:g}" if peak > 0 and progress < 1 else ""
    yield Finding(
        _first_written(config, "total_num_steps"),
        f"total_num_steps {config.quote(f'{PARAMS}.total_num_steps')} is not more than {quote_or_default(config, 'warmup_num_steps')}: "
        f"the run ends within the warm-up{end}, and the learning rate never falls.",
        help="Write a warm-up that is shorter than the run; count both in optimizer steps.",
        related=((key, "the warm-up"),) if config.has(key) else (),
    )


@rule(
    "DS636",
    effect=Effect.SILENT,
    watches=("scheduler.params.warmup_min_lr", "scheduler.params.warmup_min_ratio"),
    references=(SCHEDULES_SOURCE,),
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_min_lr": 1e-3, "warmup_max_lr": 1e-4, "warmup_num_steps": 10}}}}}}',
    at="scheduler.params.warmup_min_lr",
    message="warmup_min_lr 1e-3 is above the end of the warm-up at 0.0001: the learning rate starts at its highest value and falls.",
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"warmup_min_ratio": 2, "warmup_num_steps": 10, "total_num_steps": 100}}}}}}',
    at="scheduler.params.warmup_min_ratio",
    message="warmup_min_ratio 2 is above the end of the warm-up at 1, the optimizer's learning rate: the learning rate starts at its highest value and falls.",
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_min_lr": 0, "warmup_max_lr": 1e-4, "warmup_num_steps": 10}}}}}}')
def warmup_downwards(config: Config) -> Iterator[Finding]:
    """The warm-up starts above the learning rate that it ends at.

    DeepSpeed goes from `warmup_min_lr` to `warmup_max_lr`, even if the first is larger: training starts with the highest learning rate,
    which a warm-up is meant to avoid. For WarmupCosineLR, `warmup_min_ratio` is a share of the optimizer's learning rate; the warm-up ends
    at a share of 1.

    Swap the two values, or write 0 for the start.
    """
    schedule = schedule_type(config)
    name = "warmup_min_ratio" if schedule == "WarmupCosineLR" else "warmup_min_lr"
    if schedule not in WARMUPS or not config.has(f"{PARAMS}.{name}"):
        return
    start = schedule_param(config, name)
    peak = 1.0 if name == "warmup_min_ratio" else _peak(config)
    if start > peak and peak != PLACEHOLDER:
        end = "1, the optimizer's learning rate" if name == "warmup_min_ratio" else f"{peak:g}"
        key = f"{PARAMS}.warmup_max_lr"
        yield Finding(
            f"{PARAMS}.{name}",
            f"{name} {config.quote(f'{PARAMS}.{name}')} is above the end of the warm-up at {end}: "
            "the learning rate starts at its highest value and falls.",
            help="Write 0, or a start below the end of the warm-up.",
            related=((key, "the end of the warm-up"),) if config.has(key) else (),
        )


_OF_TRAINER = (
    '{"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "scheduler": {"type": "WarmupLR", "params": '
    '{"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}}, "zero_optimization": {"stage": 2}}'
)
_ARGUMENTS = "output_dir: o\nmodel_name_or_path: m\nstage: sft\nfinetuning_type: full\nlearning_rate: 1e-4\ndeepspeed: ds_config.json\n"


@rule(
    "DS658",
    effect=Effect.ADVICE,
    watches=("scheduler.type", "setup"),
    references=(SCHEDULES_SOURCE, "https://github.com/huggingface/transformers/issues/15508"),
)
@bad(
    _OF_TRAINER,
    at="scheduler.type",
    training=_ARGUMENTS,
    message="WarmupLR keeps the learning rate after its warm-up, and the training arguments in train.yaml have no warm-up: from the third step on the rate is the same. The schedule of the Trainer is not used.",
)
@good(_OF_TRAINER, training=_ARGUMENTS + "warmup_steps: 100\n")
@good(_OF_TRAINER, training=_ARGUMENTS + "warmup_ratio: 0.03\n")
@good(_OF_TRAINER, training=_ARGUMENTS + "lr_scheduler_type: constant\n")
@good(
    _OF_TRAINER.replace("WarmupLR", "WarmupDecayLR").replace('"warmup_num_steps"', '"total_num_steps": "auto", "warmup_num_steps"'),
    training=_ARGUMENTS,
)
@good(_OF_TRAINER.replace('"warmup_num_steps": "auto"', '"warmup_num_steps": 100'), training=_ARGUMENTS + "warmup_steps: 100\n")
def learning_rate_never_changes(config: Config) -> Iterator[Finding]:
    """The config's schedule is WarmupLR, and the training arguments have no warm-up: the learning rate is constant.

    WarmupLR keeps the rate after the warm-up, which has at least two steps. A section `scheduler` replaces the schedule of the Hugging Face Trainer, which goes down to 0
    (`lr_scheduler_type: linear`) where nothing names another one. Many examples of configs have this section.

    Remove the section `scheduler` to use the Trainer's schedule, or write WarmupDecayLR or WarmupCosineLR.
    """
    arguments = trainer_arguments(config)
    if arguments is None or schedule_type(config) != "WarmupLR" or not config.is_auto(f"{PARAMS}.warmup_num_steps"):
        return
    said = [arguments.said(name).value for name in ("warmup_steps", "warmup_ratio")]
    if not arguments.is_left_out("lr_scheduler_type") or any(value not in (0, None) for value in said):
        return
    from dslint.frameworks.filling import from_arguments  # a plain check does not import what arguments need

    if config.release >= REQUIRES_WARMUP and from_arguments(f"{PARAMS}.warmup_num_steps", arguments, config.facts).value == 0:
        return  # DeepSpeed raises: DS931
    yield Finding(
        "scheduler.type",
        f"WarmupLR keeps the learning rate after its warm-up, and the training arguments in {arguments.path} have no warm-up: from the third step "
        f"on the rate is the same. The schedule of the Trainer is not used.",
        help="Remove the section scheduler to use the Trainer's, or set the type WarmupDecayLR.",
    )


@rule("DS637", effect=Effect.SILENT, watches=("scheduler.params.warmup_type",), references=(SCHEDULES_SOURCE,))
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 10, "warmup_type": "cosine"}}}}}}',
    at="scheduler.params.warmup_type",
    message='warmup_type "cosine" is neither "log" nor "linear": DeepSpeed uses "log".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "warmup_type": "log"}}}',
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 10, "warmup_type": "linear"}}}}}}')
def unknown_warmup_type(config: Config) -> Iterator[Finding]:
    """DeepSpeed replaces a `warmup_type` other than "log" and "linear" with "log".

    DeepSpeed logs a warning and uses a logarithmic warm-up, which is fast at first: after a tenth of 1000 steps the learning rate is at
    two thirds of its peak.

    Write "linear" or "log", in lower case.
    """
    key = f"{PARAMS}.warmup_type"
    word = config.literal(key)
    if schedule_type(config) in WARMUPS and isinstance(word, str) and word not in ("log", "linear", "auto"):
        yield Finding(
            key,
            f'warmup_type {config.quote(key)} is neither "log" nor "linear": DeepSpeed uses "log".',
            help='Write "linear" or "log".',
            fix=write(config, key, '"linear"') if word.lower().startswith("lin") else write(config, key, '"log"', Applicability.SAFE),
        )


@rule("DS638", effect=Effect.ADVICE, watches=("scheduler.params.warmup_num_steps",), references=(SCHEDULES_SOURCE,), pedantic=True)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 1}}}}}}',
    at="scheduler.params.warmup_num_steps",
    message="warmup_num_steps 1 counts as 2: the first two steps run at the learning rate at which the warm-up starts.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 2}}}',
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 2}}}}}}')
def one_step_of_warmup(config: Config) -> Iterator[Finding]:
    """DeepSpeed warms up for at least two steps, even if `warmup_num_steps` is 1.

    The first two steps run at `warmup_min_lr`, 0 by default. The warm-up cannot be disabled, except by starting it at its peak.

    To train without a warm-up, set `"warmup_min_lr"` to the peak, or remove the schedule.
    """
    key = f"{PARAMS}.warmup_num_steps"
    if schedule_type(config) in WARMUPS and not config.is_auto(key) and schedule_param(config, "warmup_num_steps") == 1:
        yield Finding(
            key,
            f"warmup_num_steps {config.quote(key)} counts as 2: the first two steps run at the learning rate at which the warm-up starts.",
            help="To train without a warm-up, start it at its peak, or remove the schedule.",
            fix=write(config, key, "2", Applicability.SAFE),
        )


@rule("DS646", effect=Effect.ADVICE, watches=("scheduler.type",), references=(SCHEDULES_SOURCE,), pedantic=True)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 1000}}}}}}',
    at="scheduler.params",
    message="warmup_type is not set, and the warm-up is logarithmic: after a tenth of its 1,000 steps the learning rate is at 67% of its peak, compared to 10% for a linear warm-up.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1000, "warmup_type": "log"}}}',
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 1000, "warmup_type": "linear"}}}}}}')
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 1000, "warmup_type": "log"}}}}}}')
def logarithmic_warmup(config: Config) -> Iterator[Finding]:
    """Without `warmup_type` the warm-up is logarithmic; most other libraries use a linear one.

    A logarithmic warm-up is fast at first: after a tenth of 1000 steps the learning rate is at two thirds of its peak. The recipes in
    papers mean a linear warm-up.

    Write `"warmup_type": "linear"`, or "log" to make the choice explicit.
    """
    steps = schedule_param(config, "warmup_num_steps")
    if schedule_type(config) in WARMUPS and config.lacks(f"{PARAMS}.warmup_type") and steps >= 10:
        tenth = _warmup_progress(config, steps / 10 + 1, steps)  # DeepSpeed counts the steps from 0, and takes the logarithm of 1 more
        yield Finding(
            PARAMS,
            "warmup_type is not set, and the warm-up is logarithmic: "
            f"after a tenth of its {steps:,.0f} steps the learning rate is at {tenth:.0%} of its peak, compared to 10% for a linear warm-up.",
            help='Write "warmup_type": "linear", or "log" to make the choice explicit.',
            on="key",
            fix=write(config, f"{PARAMS}.warmup_type", '"log"', Applicability.SAFE),
        )


@rule("DS647", effect=Effect.ADVICE, watches=("scheduler.type",), references=(SCHEDULES_SOURCE,), pedantic=True)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 1000}}}}}}',
    at="scheduler.type",
    message="WarmupLR stays at its peak of 0.0001 from the end of the warm-up to the end of the run.",
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupDecayLR", "params": {{"warmup_max_lr": 1e-4, "total_num_steps": 9000}}}}}}')
def constant_after_warmup(config: Config) -> Iterator[Finding]:
    """WarmupLR keeps its peak until the end of the run.

    It has no decay. Under the Hugging Face Trainer it replaces the schedule of `lr_scheduler_type`, such as cosine or linear.

    To let the learning rate fall, use WarmupDecayLR or WarmupCosineLR, or remove the schedule and let the loader build one.
    """
    if schedule_type(config) == "WarmupLR":
        peak = _peak(config)
        yield Finding(
            "scheduler.type",
            f"WarmupLR stays at its peak{f' of {peak:g}' if peak > 0 else ''} from the end of the warm-up to the end of the run.",
            help=f"To let the learning rate fall, use WarmupDecayLR{' or WarmupCosineLR' if config.release >= HAS_COSINE else ''}.",
        )
