"""DS6: how DeepSpeed builds a learning rate schedule, the end of a cosine, and the step a schedule starts at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Integration
from dslint.rule import Finding, FixPlan, bad, good, rule, safe
from dslint.rules.helpers.examples import ADAMW, MINIMAL
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.optimizer import lower_type
from dslint.rules.helpers.parameters import is_passed_by_program, number, parameter, runs_scheduler
from dslint.rules.helpers.precision import model_dtype
from dslint.rules.helpers.schedule import HAS_COSINE, PARAMS, SCHEDULES_SOURCE, schedule_param, schedule_type
from dslint.rules.helpers.zero import STAGE
from dslint.schemas.typed import find_type
from dslint.source.change import Replace
from dslint.source.tree import Mapping, Scalar, Span

_RETURNED = (
    "import deepspeed\nimport torch\n"
    "engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
)
_FABRIC = (
    "import lightning as L; from lightning.fabric.strategies import DeepSpeedStrategy\nfrom transformers import get_scheduler\n"
    "fabric = L.Fabric(devices=8, strategy=DeepSpeedStrategy(config='ds_config.json'))\n"
    "model, optimizer = fabric.setup(model, optimizer)\n"
)


@rule(
    "DS633",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("scheduler.type", "setup"),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine._scheduler_from_config",
        "deepspeed/runtime/base_optimizer.py, DeepSpeedOptimizer",
        "https://github.com/deepspeedai/DeepSpeed/issues/122",
    ),
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "StepLR", "params": {{"step_size": 10}}}}, "zero_optimization": {{"stage": 1}}}}',
    at="scheduler.type",
    message='"StepLR" is a PyTorch schedule and requires an unwrapped optimizer, but ZeRO stage 1 wraps it: DeepSpeed raises TypeError "... is not an Optimizer" in deepspeed.initialize.',
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "CosineAnnealingLR", "params": {{"T_max": 10}}}}, "bf16": {{"enabled": true}}}}',
    at="scheduler.type",
    message='"CosineAnnealingLR" is a PyTorch schedule and requires an unwrapped optimizer, but bf16 wraps it: DeepSpeed raises TypeError "... is not an Optimizer" in deepspeed.initialize.',
)
@bad(
    f'{{{ADAMW}, "zero_optimization": {{"stage": 2}}}}',
    at="",
    program=_RETURNED + "schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)\n",
    integration="deepspeed",
    message='train.py:4 builds a schedule with the optimizer that deepspeed.initialize returns, and ZeRO stage 2 wraps it: PyTorch raises TypeError "... is not an Optimizer".',
)
@bad(
    f'{{{ADAMW}, "fp16": {{"enabled": true}}}}',
    at="",
    program=_RETURNED
    + "from transformers import get_linear_schedule_with_warmup\nschedule = get_linear_schedule_with_warmup(optimizer, 10, 100)\n",
    integration="deepspeed",
    message='train.py:5 builds a schedule with the optimizer that deepspeed.initialize returns, and fp16 wraps it: PyTorch raises TypeError "... is not an Optimizer".',
)
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 2}}}}',
    at="",
    program=_FABRIC + "schedule = get_scheduler('linear', optimizer, 10, 100)\n",
    integration="lightning",
    message='train.py:5 builds a schedule with the optimizer that fabric.setup returns, and ZeRO stage 2 wraps it: PyTorch raises TypeError "... is not an Optimizer".',
)
@good(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 2}}}}',
    program=_FABRIC.replace("model, optimizer = fabric.setup(model, optimizer)", "")
    + "schedule = get_scheduler('linear', optimizer, 10, 100)\nmodel, optimizer, schedule = fabric.setup(model, optimizer, scheduler=schedule)\n",
    integration="lightning",
)
@good(
    f'{{{ADAMW}, "zero_optimization": {{"stage": 2}}}}',
    program=_RETURNED + "schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer.optimizer, 10)\n",
    integration="deepspeed",
)
@good(
    f"{{{ADAMW}}}",
    program=_RETURNED + "schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)\n",
    integration="deepspeed",
)
@good(
    f'{{{ADAMW}, "zero_optimization": {{"stage": 2}}}}',
    program=_RETURNED
    + "if isinstance(optimizer, torch.optim.Optimizer):\n    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)\n",
    integration="deepspeed",
)
@good(
    f'{{{ADAMW}, "zero_optimization": {{"stage": 2}}}}',
    program=_RETURNED + "if args.zero_stage == 0:\n    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)\n",
    integration="deepspeed",
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "StepLR", "params": {{"step_size": 10}}}}}}')
def torch_schedule_on_wrapped_optimizer(config: Config) -> Iterator[Finding]:
    """PyTorch's schedules require an unwrapped optimizer, and ZeRO, fp16 and bf16 wrap it.

    DeepSpeed passes its wrapper to the constructor of the schedule, which requires a `torch.optim.Optimizer` and raises a `TypeError`. So does
    a program that builds a schedule with the optimizer that `deepspeed.initialize` or `fabric.setup` returns. At stage 0 in fp32 DeepSpeed does not wrap the optimizer.

    Use one of DeepSpeed's schedules (WarmupCosineLR, WarmupDecayLR, WarmupLR, OneCycle), or build PyTorch's schedule in the program, on
    the optimizer that the program builds.
    """
    entry, stage = find_type("scheduler", config.value("scheduler.type")), config.value(STAGE)
    half = next((section for section in ("bf16", "fp16") if config.value(f"{section}.enabled") is True), None)
    if stage >= 1:
        at, wrapper = STAGE, f"ZeRO stage {stage}"
    elif half is not None:
        at, wrapper = f"{half}.enabled", half
    else:
        return
    yield from _built_by_program(config, wrapper)
    if entry is None or "wrapped" not in entry:
        return
    decay = "WarmupCosineLR" if config.release >= HAS_COSINE else "WarmupDecayLR"
    yield Finding(
        "scheduler.type",
        f"{config.quote('scheduler.type')} is a PyTorch schedule and requires an unwrapped optimizer, but {wrapper} wraps it: "
        'DeepSpeed raises TypeError "... is not an Optimizer" in deepspeed.initialize.',
        help=f"Use one of DeepSpeed's schedules, such as {decay}, or build this one in the program.",
        related=((at, "this wraps the optimizer"),) if config.has(at) else (),
    )


_SCHEDULES = r"torch\.optim\.lr_scheduler\.(?!Sequential)\w+|(transformers|diffusers)\.(\w+\.)*get_(scheduler|\w+_schedule(_with_\w+)?)"
"""What makes a schedule of an optimizer. SequentialLR compares the optimizer with that of its schedules."""


def _built_by_program(config: Config, wrapper: str) -> Iterator[Finding]:
    """The schedule that a program builds with the optimizer that its one call of `deepspeed.initialize` or of Fabric's `setup` returns."""
    program = config.setup.program if config.setup is not None else None
    if program is None:
        return
    from dslint.job.events import ENGINE, FABRIC_SETUP, RETURNED_OPTIMIZER  # it imports what a check of a config alone does not need

    makers = list(program.events.of(re.escape(ENGINE), FABRIC_SETUP))
    if len(makers) != 1:
        return
    returned_by = "deepspeed.initialize" if makers[0].name == ENGINE else "fabric.setup"
    instead = (
        ", and pass both to deepspeed.initialize (optimizer=, lr_scheduler=)" if returned_by != "fabric.setup" else " before fabric.setup"
    )
    for event in program.events.of(_SCHEDULES):
        given = event.argument("optimizer", 1 if event.name.endswith(".get_scheduler") else 0)
        if given is None or event.tells_setups_apart or event.handled or any(given.raw in one.text for one in event.conditions):
            continue
        if re.fullmatch(RETURNED_OPTIMIZER, given.made):
            yield Finding(
                "",
                f"{event.at.where} builds a schedule with the optimizer that {returned_by} returns, and {wrapper} wraps it: PyTorch "
                'raises TypeError "... is not an Optimizer".',
                help=f"Build it with the torch optimizer{instead}.",
                elsewhere=event.at.related(""),
                phase=Phase.LATER,
                certain=event.always,
            )
            return


@rule(
    "DS653",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("scheduler.type",),
    references=("https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.CyclicLR.html",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Adagrad", "params": {{"lr": 1e-3}}}}, "scheduler": {{"type": "CyclicLR", "params": {{"base_lr": 1e-5, "max_lr": 1e-3}}}}}}',
    at="scheduler.type",
    message='CyclicLR cycles the momentum, and Adagrad has none: torch raises ValueError "optimizer must support momentum or beta1" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Adagrad", "params": {"lr": 1e-3}}, "scheduler": {"type": "CyclicLR", "params": {"base_lr": 1e-5, "max_lr": 1e-3, "cycle_momentum": false}}}',
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "Adagrad", "params": {{"lr": 1e-3}}}}, "scheduler": {{"type": "CyclicLR", "params": {{"base_lr": 1e-5, "max_lr": 1e-3, "cycle_momentum": false}}}}}}'
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "OneCycleLR", "params": {{"max_lr": 1e-3, "total_steps": 100}}}}}}')
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "Adagrad", "params": {{"lr": 1e-3}}}}, "scheduler": {{"type": "CyclicLR", "params": {{"base_lr": 1e-5, "max_lr": 1e-3}}}}}}',
    program="import deepspeed\nimport torch\nopt = torch.optim.AdamW(model.parameters(), lr=5e-4)\n"
    "engine, optimizer, *_ = deepspeed.initialize(model=model, optimizer=opt, config='ds_config.json')\n",
    integration="deepspeed",
)
def momentum_cycle_without_momentum(config: Config) -> Iterator[Finding]:
    """CyclicLR and OneCycleLR cycle the momentum by default, and the optimizer has none.

    Both change `momentum` or the first of the `betas`. For an optimizer without either, torch raises a `ValueError` when DeepSpeed builds the
    schedule.

    Write `"cycle_momentum": false`.
    """
    schedule, entry = schedule_type(config), find_type("optimizer", config.value("optimizer.type"))
    if schedule not in ("CyclicLR", "OneCycleLR") or entry is None or parameter(config, "scheduler", "cycle_momentum") is not True:
        return
    if is_passed_by_program(config) or not (config.value(STAGE) == 0 and model_dtype(config) == "fp32"):
        return  # DS633 reports it: the optimizer is wrapped
    if not entry["params"].keys() & {"momentum", "betas"} or lower_type(config) == "muon":
        yield Finding(
            "scheduler.type",
            f'{schedule} cycles the momentum, and {config.value("optimizer.type")} has none: torch raises ValueError "optimizer must support momentum or beta1" in deepspeed.initialize.',
            help='Add "cycle_momentum": false to the params of the schedule.',
            fix=write(config, f"{PARAMS}.cycle_momentum", "false"),
        )


@rule(
    "DS634",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("scheduler.type",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._scheduler_from_config",),
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR"}}}}',
    at="scheduler.type",
    message='WarmupLR has no "params": DeepSpeed raises TypeError "argument after ** must be a mapping, not NoneType" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "scheduler": {"type": "WarmupLR", "params": {}}}',
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "warmup_num_steps": 100}}}}',
    at="scheduler.type",
    message='WarmupLR has no "params": DeepSpeed raises TypeError "argument after ** must be a mapping, not NoneType" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}}',
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{}}}}}}')
def scheduler_without_params(config: Config) -> Iterator[Finding]:
    """A schedule requires `params`, even if empty.

    DeepSpeed unpacks `params` into the constructor's arguments, and raises a `TypeError` if it is missing. An optimizer does not require
    `params`; a schedule does.

    Add `"params": {}`, or move the settings next to `type` into `params`.
    """
    if not schedule_type(config) or not config.lacks(PARAMS) or config.is_meant(PARAMS):
        return
    yield Finding(
        "scheduler.type",
        f'{config.value("scheduler.type")} has no "params": '
        'DeepSpeed raises TypeError "argument after ** must be a mapping, not NoneType" in deepspeed.initialize.',
        help='Add "params": {...} with the settings of the schedule, or "params": {} for its defaults.',
        fix=_with_params(config),
    )


def _with_params(config: Config) -> FixPlan | None:
    """Wrap the settings next to `type` in `params`. If there are none and the schedule requires none, add an empty `params`."""
    section, entry = config.node("scheduler"), find_type("scheduler", config.value("scheduler.type"))
    if not isinstance(section, Mapping) or entry is None:
        return None
    settings = [member for member in section.members if member.key.value != "type"]
    required = [name for name, spec in entry["params"].items() if spec.get("required")]
    if not settings:
        if required == ["total_num_steps"] and config.facts.integration is Integration.TRANSFORMERS:
            return write(config, PARAMS, '{"total_num_steps": "auto"}')
        return None if required else write(config, PARAMS, "{}", Applicability.SAFE)
    first = section.members.index(settings[0])
    adjacent = list(section.members[first : first + len(settings)]) == settings
    last, names = settings[-1].value, {member.key.value for member in settings}
    bare = isinstance(last, Scalar) and last.style == "bare"
    if not adjacent or bare or not names <= set(entry["params"]) or not names >= set(required) or config.document.language == "yaml":
        return None
    start, end = settings[0].span.start, settings[-1].span.end
    return safe("move the settings into params", Replace(Span(start, end), f'"params": {{{config.document.text[start:end]}}}'))


@rule("DS639", effect=Effect.SILENT, watches=("scheduler.params.cos_min_ratio",), references=(SCHEDULES_SOURCE,))
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"cos_min_ratio": 1.5, "warmup_num_steps": 10, "total_num_steps": 100}}}}}}',
    at="scheduler.params.cos_min_ratio",
    message="cos_min_ratio 1.5 is not between 0 and 1: after the warm-up the learning rate rises, from 0.0001 to 0.00015.",
)
@good(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"cos_min_ratio": 0.1, "warmup_num_steps": 10, "total_num_steps": 100}}}}}}'
)
def cosine_that_does_not_fall(config: Config) -> Iterator[Finding]:
    """`cos_min_ratio` is the final share of the learning rate, between 0 and 1.

    With 1 the learning rate stays constant, above 1 it rises, and below 0 it is 0 for the last part of the run.

    Write the share, such as 0.1, not the final learning rate.
    """
    key = f"{PARAMS}.cos_min_ratio"
    ratio = schedule_param(config, "cos_min_ratio") if config.has(key) and schedule_type(config) == "WarmupCosineLR" else UNKNOWN
    if ratio >= 1 or ratio < 0:
        lr = number(parameter(config, "optimizer", "lr"))
        course = "falls to 0 before the end" if ratio < 0 else "stays at its peak" if ratio == 1 else "rises"
        rates = f", from {lr:g} to {lr * ratio:g}" if ratio > 1 and lr > 0 else ""
        yield Finding(
            key,
            f"cos_min_ratio {config.quote(key)} is not between 0 and 1: after the warm-up the learning rate {course}{rates}.",
            help="Write the final share of the learning rate, such as 0.1.",
        )


@rule(
    "DS640",
    effect=Effect.ADVICE,
    watches=("scheduler.params.last_batch_iteration",),
    references=(SCHEDULES_SOURCE,),
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 100, "last_batch_iteration": 500}}}}}}',
    at="scheduler.params.last_batch_iteration",
    message="last_batch_iteration 500: a new run starts its schedule at step 501; a run that resumes reads the number from the checkpoint.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}}',
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 100, "last_batch_iteration": -1}}}}}}')
def schedule_starts_late(config: Config) -> Iterator[Finding]:
    """With `last_batch_iteration` a new run starts in the middle of the schedule.

    The run then skips the warm-up or a part of it, and its first step uses the optimizer's own learning rate. A run that resumes reads
    the number from the checkpoint and ignores this key.

    Remove it.
    """
    key = f"{PARAMS}.last_batch_iteration"
    last: Any = schedule_param(config, "last_batch_iteration") if config.has(key) and runs_scheduler(config) else UNKNOWN
    if last >= 0:
        yield Finding(
            key,
            f"last_batch_iteration {config.quote(key)}: a new run starts its schedule at step {int(last) + 1:,}; "
            "a run that resumes reads the number from the checkpoint.",
            help="Remove it.",
            fix=without(config, key, Applicability.UNSAFE),
        )
