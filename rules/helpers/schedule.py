"""What rules about learning rate schedules share: references, the type, parameters and their defaults."""

from __future__ import annotations

from typing import Any

from dslint.config import Config
from dslint.rules.helpers.parameters import number, parameter, runs_scheduler

SCHEDULERS_DOCS = "https://www.deepspeed.ai/docs/config-json/#scheduler-parameters"
SCHEDULES_SOURCE = "deepspeed/runtime/lr_schedules.py"
PARAMS = "scheduler.params"

HAS_COSINE = (0, 12, 3)
"""The first release with WarmupCosineLR."""

REQUIRES_WARMUP = (0, 19, 3)
"""The first release that raises for warmup_num_steps 0."""

PLACEHOLDER = -1
"""A number that templates write for a value that the program fills in."""


def schedule_type(config: Config) -> str:
    """The schedule's type; empty if the type is absent or unknown."""
    return str(config.value("scheduler.type")) if runs_scheduler(config) else ""


def schedule_param(config: Config, name: str) -> Any:
    """A parameter of the schedule that is a number, with its default; otherwise `UNKNOWN`."""
    return number(parameter(config, "scheduler", name))


def quote_or_default(config: Config, name: str) -> str:
    """A parameter of the schedule for a message: as it is written, or with its default."""
    key = f"{PARAMS}.{name}"
    return f"{name} {config.quote(key)}" if config.has(key) else f"{name} {schedule_param(config, name):g}, the default"


def overrides_lr(config: Config) -> bool:
    """Whether the schedule overwrites the optimizer's learning rate from the first step, and does not scale it."""
    name = config.value("scheduler.type")
    if not runs_scheduler(config) or name not in ("WarmupLR", "WarmupDecayLR", "OneCycle", "LRRangeTest"):
        return False
    return not (name == "WarmupLR" and parameter(config, "scheduler", "warmup_max_lr") is None)
