"""DS6: schedules that cycle: OneCycle and LRRangeTest."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.rule import Finding, bad, good, path_of, rule, unsafe
from dslint.rules.helpers.examples import ADAMW, MINIMAL
from dslint.rules.helpers.fixes import without
from dslint.rules.helpers.parameters import implementation, parameter
from dslint.rules.helpers.schedule import PARAMS, SOURCE, placed, schedule_of, schedule_param
from dslint.schemas.typed import find_type
from dslint.source.change import Set


@rule("DS641", "one-cycle-upside-down", effect=Effect.SILENT, watches=("scheduler.params.cycle_min_lr",), references=(SOURCE,))
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-3, "cycle_max_lr": 1e-5}}}}}}',
    at="scheduler.params.cycle_min_lr",
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3}}}}}}')
def one_cycle_upside_down(config: Config) -> Iterator[Finding]:
    """The cycle goes down first: `cycle_min_lr` is above `cycle_max_lr`.

    DeepSpeed goes from one to the other and back, whichever is larger, and stays at `cycle_min_lr` when the cycle is over.

    Exchange the two.
    """
    low, high = schedule_param(config, "cycle_min_lr"), schedule_param(config, "cycle_max_lr")
    if schedule_of(config) == "OneCycle" and low >= high:
        start, end = (f"{PARAMS}.cycle_{side}_lr" for side in ("min", "max"))
        what = "never changes" if low == high else f"starts at {low:g}, falls to {high:g}, and comes back"
        yield Finding(
            f"{PARAMS}.cycle_min_lr",
            f"cycle_min_lr {config.quote(f'{PARAMS}.cycle_min_lr')} is not below cycle_max_lr {config.quote(f'{PARAMS}.cycle_max_lr')}: the learning rate {what}.",
            help="Exchange the two.",
            related=((f"{PARAMS}.cycle_max_lr", "the other end of the cycle"),),
            fix=unsafe("exchange the two", Set(path_of(start), config.quote(end)), Set(path_of(end), config.quote(start)))
            if low > high
            else None,
        )


@rule(
    "DS642",
    "one-cycle-without-decay",
    effect=Effect.IGNORED,
    watches=("scheduler.params.decay_lr_rate", "scheduler.params.decay_mom_rate", "scheduler.params.decay_step_size"),
    references=(SOURCE,),
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3, "decay_lr_rate": 0.1}}}}}}',
    at="scheduler.params.decay_lr_rate",
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3, "decay_step_size": 100}}}}}}',
    at="scheduler.params.decay_step_size",
)
@good(
    f'{{{ADAMW}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3, "decay_lr_rate": 0.1, "decay_step_size": 100}}}}}}'
)
def one_cycle_without_decay(config: Config) -> Iterator[Finding]:
    """The decay after the cycle needs a rate and a step size, and one of them alone does nothing.

    Without `decay_step_size` (0 unless it is written) DeepSpeed skips every decay; without `decay_lr_rate` or `decay_mom_rate` there is nothing to decay.

    Write both, or neither.
    """
    if schedule_of(config) != "OneCycle":
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
                    f"{name} {config.quote(f'{PARAMS}.{name}')} does nothing: {placed(config, 'decay_step_size')}, switches decay off.",
                    help='Add "decay_step_size": the steps between two decays.',
                    fix=without(config, f"{PARAMS}.{name}"),
                )
    elif size > 0 and all(rate == 0 for rate in rates.values()):
        key = f"{PARAMS}.decay_step_size"
        yield Finding(
            key,
            f"decay_step_size {config.quote(key)} does nothing: decay_lr_rate and decay_mom_rate are 0.",
            help='Add "decay_lr_rate".',
            fix=without(config, key),
        )


@rule(
    "DS643",
    "momentum-not-cycled",
    effect=Effect.IGNORED,
    watches=(
        "scheduler.params.cycle_momentum",
        "scheduler.params.cycle_min_mom",
        "scheduler.params.cycle_max_mom",
        "scheduler.params.decay_mom_rate",
    ),
    references=(SOURCE,),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1, "momentum": 0.9}}}}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-3, "cycle_max_lr": 0.1, "cycle_max_mom": 0.95}}}}}}',
    at="scheduler.params.cycle_max_mom",
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3, "cycle_max_mom": 0.95}}}}}}')
def momentum_not_cycled(config: Config) -> Iterator[Finding]:
    """OneCycle cycles the first of an optimizer's betas, and leaves an optimizer without betas alone.

    SGD's `momentum` is none: DeepSpeed logs that cycling is disabled, and momentum stays what it was.

    Remove the settings of momentum, or take an optimizer with betas.
    """
    entry = find_type("optimizer", config.value("optimizer.type"))
    if schedule_of(config) != "OneCycle" or entry is None or "betas" in entry["params"] or implementation(config) is None:
        return
    written = [name for name in ("cycle_momentum", "cycle_min_mom", "cycle_max_mom", "decay_mom_rate") if config.has(f"{PARAMS}.{name}")]
    if written and parameter(config, "scheduler", "cycle_momentum") is True:
        yield Finding(
            f"{PARAMS}.{written[-1]}",
            f"{written[-1]} does nothing with {config.value('optimizer.type')}, which has no betas: DeepSpeed disables the cycling of momentum.",
            help="Remove it.",
            related=(("optimizer.type", "the optimizer is chosen here"),),
            fix=without(config, f"{PARAMS}.{written[-1]}"),
        )


@rule(
    "DS644",
    "range-test-as-schedule",
    effect=Effect.ADVICE,
    watches=("scheduler.type",),
    references=(SOURCE, "https://www.deepspeed.ai/tutorials/lrrt/"),
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "LRRangeTest", "params": {{"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 200}}}}}}',
    at="scheduler.type",
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 100}}}}}}')
def range_test_asschedule_of(config: Config) -> Iterator[Finding]:
    """LRRangeTest is a test: the learning rate rises without end.

    It finds the largest learning rate with which the model still trains. A real run that keeps it diverges sooner or later.

    Use it for the test alone, and another schedule for the run.
    """
    low, rate, size = (schedule_param(config, f"lr_range_test_{name}") for name in ("min_lr", "step_rate", "step_size"))
    if schedule_of(config) == "LRRangeTest" and low > 0 and rate > 0 and size > 0:
        yield Finding(
            "scheduler.type",
            f"LRRangeTest raises the learning rate without end: {low:g} at first, {low * (1 + rate * 10_000 / size):.3g} after 10,000 steps. It is a test for the largest usable learning rate.",
            help="For a real run take another schedule.",
        )


@rule(
    "DS645",
    "range-test-stands-still",
    effect=Effect.SILENT,
    watches=("scheduler.params.lr_range_test_min_lr", "scheduler.params.lr_range_test_step_rate"),
    references=(SOURCE,),
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "LRRangeTest", "params": {{"lr_range_test_min_lr": 0}}}}}}',
    at="scheduler.params.lr_range_test_min_lr",
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "LRRangeTest", "params": {{"lr_range_test_min_lr": 1e-5, "lr_range_test_step_rate": 0}}}}}}',
    at="scheduler.params.lr_range_test_step_rate",
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "LRRangeTest", "params": {{"lr_range_test_min_lr": 1e-5}}}}}}')
def range_test_stands_still(config: Config) -> Iterator[Finding]:
    """LRRangeTest multiplies: from 0, or by a rate of 0, it goes nowhere.

    The learning rate is `lr_range_test_min_lr` times 1 + step_rate * steps / step_size, and so 0 for ever where it starts at 0.

    Write a small start, such as 1e-6, and a rate above 0.
    """
    if schedule_of(config) != "LRRangeTest":
        return
    for name in ("min_lr", "step_rate"):
        key = f"{PARAMS}.lr_range_test_{name}"
        if config.has(key) and schedule_param(config, f"lr_range_test_{name}") == 0:
            what = "is 0 for the whole run, and nothing is learnt" if name == "min_lr" else "never rises"
            yield Finding(key, f"lr_range_test_{name} {config.quote(key)}: the learning rate {what}.", help="Write a number above 0.")
