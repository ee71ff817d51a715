"""DS6: the schedule OneCycle."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.rule import Finding, bad, good, path_of, rule, unsafe
from dslint.rules.helpers.examples import ADAMW, MINIMAL
from dslint.rules.helpers.fixes import without
from dslint.rules.helpers.parameters import implementation, is_passed_by_program, parameter
from dslint.rules.helpers.schedule import PARAMS, SCHEDULES_SOURCE, quote_or_default, schedule_param, schedule_type
from dslint.schemas.typed import find_type
from dslint.source.change import Set


@rule("DS641", effect=Effect.SILENT, watches=("scheduler.params.cycle_min_lr",), references=(SCHEDULES_SOURCE,))
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-3, "cycle_max_lr": 1e-5}}}}}}',
    at="scheduler.params.cycle_min_lr",
    message="cycle_min_lr 1e-3 is not below cycle_max_lr 1e-5: the learning rate starts at 0.001, falls to 1e-05 and rises again.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3}}}',
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3}}}}}}')
def one_cycle_starts_high(config: Config) -> Iterator[Finding]:
    """`cycle_min_lr` is not below `cycle_max_lr`: the cycle starts with a falling learning rate.

    DeepSpeed goes from `cycle_min_lr` to `cycle_max_lr` and back, even if the first is larger, and stays at `cycle_min_lr` after the cycle.

    Swap the two values.
    """
    low, high = schedule_param(config, "cycle_min_lr"), schedule_param(config, "cycle_max_lr")
    if schedule_type(config) == "OneCycle" and low >= high:
        start, end = (f"{PARAMS}.cycle_{side}_lr" for side in ("min", "max"))
        course = "never changes" if low == high else f"starts at {low:g}, falls to {high:g} and rises again"
        yield Finding(
            start,
            f"cycle_min_lr {config.quote(start)} is not below cycle_max_lr {config.quote(end)}: the learning rate {course}.",
            help="Swap the two values.",
            related=((end, "the other end of the cycle"),),
            fix=unsafe("swap the two values", Set(path_of(start), config.quote(end)), Set(path_of(end), config.quote(start)))
            if low > high
            else None,
        )


@rule(
    "DS642",
    effect=Effect.IGNORED,
    watches=("scheduler.params.decay_lr_rate", "scheduler.params.decay_mom_rate", "scheduler.params.decay_step_size"),
    references=(SCHEDULES_SOURCE,),
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3, "decay_lr_rate": 0.1}}}}}}',
    at="scheduler.params.decay_lr_rate",
    message="decay_lr_rate 0.1 does nothing: decay_step_size 0, the default, disables decay.",
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3, "decay_step_size": 100}}}}}}',
    at="scheduler.params.decay_step_size",
    message="decay_step_size 100 does nothing: decay_lr_rate and decay_mom_rate are 0.",
)
@good(
    f'{{{ADAMW}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3, "decay_lr_rate": 0.1, "decay_step_size": 100}}}}}}'
)
def one_cycle_without_decay(config: Config) -> Iterator[Finding]:
    """The decay after the cycle requires a rate and a step size; one without the other does nothing.

    Without `decay_step_size`, 0 by default, DeepSpeed skips every decay. Without `decay_lr_rate` and `decay_mom_rate` there is nothing to
    decay.

    Write both, or neither.
    """
    if schedule_type(config) != "OneCycle":
        return
    size, rates = (
        schedule_param(config, "decay_step_size"),
        {name: schedule_param(config, name) for name in ("decay_lr_rate", "decay_mom_rate")},
    )
    if size == 0:
        for name, rate in rates.items():
            if rate > 0 and config.has(f"{PARAMS}.{name}"):
                yield Finding(
                    f"{PARAMS}.{name}",
                    f"{name} {config.quote(f'{PARAMS}.{name}')} does nothing: {quote_or_default(config, 'decay_step_size')}, disables decay.",
                    help='Add "decay_step_size", the number of steps between two decays.',
                )
    elif size > 0 and all(rate == 0 for rate in rates.values()):
        key = f"{PARAMS}.decay_step_size"
        yield Finding(
            key,
            f"decay_step_size {config.quote(key)} does nothing: decay_lr_rate and decay_mom_rate are 0.",
            help='Add "decay_lr_rate".',
        )


@rule(
    "DS643",
    effect=Effect.IGNORED,
    watches=(
        "scheduler.params.cycle_momentum",
        "scheduler.params.cycle_min_mom",
        "scheduler.params.cycle_max_mom",
        "scheduler.params.decay_mom_rate",
    ),
    references=(SCHEDULES_SOURCE,),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1, "momentum": 0.9}}}}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-3, "cycle_max_lr": 0.1, "cycle_max_mom": 0.95}}}}}}',
    at="scheduler.params.cycle_max_mom",
    message="cycle_max_mom does nothing with SGD, which has no betas: DeepSpeed disables momentum cycling.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}, "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-3, "cycle_max_lr": 0.1}}}',
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3, "cycle_max_mom": 0.95}}}}}}')
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1}}}}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-3, "cycle_max_lr": 0.1, "cycle_max_mom": 0.95}}}}}}',
    program="import deepspeed\nimport torch\nopt = torch.optim.AdamW(model.parameters(), lr=5e-4)\n"
    "engine, optimizer, *_ = deepspeed.initialize(model=model, optimizer=opt, config='ds_config.json')\n",
    integration="deepspeed",
)
def momentum_not_cycled(config: Config) -> Iterator[Finding]:
    """OneCycle cycles the first of an optimizer's betas; it does nothing to the momentum of an optimizer without betas.

    SGD has `momentum`, but no betas: DeepSpeed logs that cycling is disabled, and the momentum stays constant.

    Remove the momentum settings, or use an optimizer with betas.
    """
    entry = find_type("optimizer", config.value("optimizer.type")) if not is_passed_by_program(config) else None
    if schedule_type(config) != "OneCycle" or entry is None or "betas" in entry["params"] or implementation(config) is None:
        return
    written = [name for name in ("cycle_momentum", "cycle_min_mom", "cycle_max_mom", "decay_mom_rate") if config.has(f"{PARAMS}.{name}")]
    if written and parameter(config, "scheduler", "cycle_momentum") is True:
        yield Finding(
            f"{PARAMS}.{written[-1]}",
            f"{written[-1]} does nothing with {config.value('optimizer.type')}, which has no betas: DeepSpeed disables momentum cycling.",
            help="Remove it.",
            related=(("optimizer.type", "the optimizer is set here"),),
            fix=without(config, f"{PARAMS}.{written[-1]}"),
        )
