"""What rules about learning rate schedules share."""

from __future__ import annotations

from typing import Any

from dslint.config import Config
from dslint.rules.helpers.parameters import number, parameter, runs_scheduler

SCHEDULERS_DOCS = "https://www.deepspeed.ai/docs/config-json/#scheduler-parameters"
SOURCE = "deepspeed/runtime/lr_schedules.py"
PARAMS = "scheduler.params"


def schedule_of(config: Config) -> str:
    """The type of the schedule; empty where there is none that is known."""
    return str(config.value("scheduler.type")) if runs_scheduler(config) else ""


def schedule_param(config: Config, name: str) -> Any:
    """A number among the parameters of the schedule; see `parameter`."""
    return number(parameter(config, "scheduler", name))


def placed(config: Config, name: str) -> str:
    """A parameter for a message: as it is written, or with its default."""
    key = f"{PARAMS}.{name}"
    return f"{name} {config.quote(key)}" if config.has(key) else f"{name} {schedule_param(config, name):g}, the default"
