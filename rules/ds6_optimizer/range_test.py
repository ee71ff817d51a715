"""DS6: the schedule LRRangeTest."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ADAMW
from dslint.rules.helpers.schedule import PARAMS, SCHEDULES_SOURCE, schedule_param, schedule_type


@rule(
    "DS644",
    effect=Effect.ADVICE,
    watches=("scheduler.type",),
    references=(SCHEDULES_SOURCE, "https://www.deepspeed.ai/tutorials/lrrt/"),
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "LRRangeTest", "params": {{"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 200}}}}}}',
    at="scheduler.type",
    message="LRRangeTest raises the learning rate without bound: 0.0001 at first, 0.0051 after 10,000 steps. It is a test for the largest usable learning rate.",
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 100}}}}}}')
def range_test_as_schedule(config: Config) -> Iterator[Finding]:
    """LRRangeTest raises the learning rate without bound: it is a test, not a schedule for a run.

    It finds the largest learning rate at which the model still trains. A longer run with it diverges.

    Use it only for the test, and another schedule for the run.
    """
    low, rate, size = (schedule_param(config, f"lr_range_test_{name}") for name in ("min_lr", "step_rate", "step_size"))
    if schedule_type(config) == "LRRangeTest" and low > 0 and rate > 0 and size > 0:
        yield Finding(
            "scheduler.type",
            f"LRRangeTest raises the learning rate without bound: {low:g} at first, {low * (1 + rate * 10_000 / size):.3g} after 10,000 steps. "
            "It is a test for the largest usable learning rate.",
            help="Use another schedule for a real run.",
        )


@rule(
    "DS645",
    effect=Effect.SILENT,
    watches=("scheduler.params.lr_range_test_min_lr", "scheduler.params.lr_range_test_step_rate"),
    references=(SCHEDULES_SOURCE,),
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "LRRangeTest", "params": {{"lr_range_test_min_lr": 0}}}}}}',
    at="scheduler.params.lr_range_test_min_lr",
    message="lr_range_test_min_lr 0: the learning rate is 0 for the whole run, and the model does not learn.",
)
@bad(
    f'{{{ADAMW}, "scheduler": {{"type": "LRRangeTest", "params": {{"lr_range_test_min_lr": 1e-5, "lr_range_test_step_rate": 0}}}}}}',
    at="scheduler.params.lr_range_test_step_rate",
    message="lr_range_test_step_rate 0: the learning rate never rises.",
)
@good(f'{{{ADAMW}, "scheduler": {{"type": "LRRangeTest", "params": {{"lr_range_test_min_lr": 1e-5}}}}}}')
def range_test_constant(config: Config) -> Iterator[Finding]:
    """LRRangeTest multiplies the learning rate: with a start of 0 or a rate of 0 it never changes.

    The learning rate is `lr_range_test_min_lr` times 1 + step_rate * steps / step_size. If it starts at 0, it stays at 0.

    Write a small start, such as 1e-6, and a rate above 0.
    """
    if schedule_type(config) != "LRRangeTest":
        return
    for name in ("min_lr", "step_rate"):
        key = f"{PARAMS}.lr_range_test_{name}"
        if config.has(key) and schedule_param(config, f"lr_range_test_{name}") == 0:
            course = "is 0 for the whole run, and the model does not learn" if name == "min_lr" else "never rises"
            yield Finding(key, f"lr_range_test_{name} {config.quote(key)}: the learning rate {course}.", help="Write a number above 0.")
