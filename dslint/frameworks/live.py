"""Training arguments in a running program: the attributes of a `TrainingArguments`, as if they came from a file."""

from __future__ import annotations

from enum import Enum
from typing import Any

from dslint.frameworks.huggingface import TRAINER
from dslint.job.arguments import DEFAULTS, Arguments, SourcedValue, in_short
from dslint.job.model import Setup
from dslint.job.training import ARGUMENTS
from dslint.source.unknown import UNKNOWN

LIVE = "<TrainingArguments>"
"""The path shown for values that do not come from a file."""


def arguments_of(args: object) -> Arguments:
    """The arguments by attribute. An attribute that is not compared with the config counts as not set if it has its class's default."""
    fields = getattr(args, "__dataclass_fields__", {})
    values = {}
    for name in sorted(ARGUMENTS - {"deepspeed"}):
        value = _as_in_a_file(getattr(args, name, UNKNOWN if name in DEFAULTS else None))
        if value is None or (name not in DEFAULTS and name in fields and value == _as_in_a_file(fields[name].default)):
            continue
        raw = in_short(repr(value)) if value is not UNKNOWN else "..."
        values[name] = SourcedValue(value, name, raw, LIVE, empty=value in ("", 0, False))
    return Arguments(TRAINER, LIVE, values, sure=True, complete=True)


def setup_of(arguments: Arguments, config: str) -> Setup:
    """The setup that the arguments make with a config."""
    return Setup(arguments=arguments, link=SourcedValue(config, "deepspeed", repr(config), LIVE), config=config)


def _as_in_a_file(value: Any) -> Any:
    """A value as a file would hold it: the word of an enumeration; for a collection only whether it is empty."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, list | tuple | dict | set):
        return UNKNOWN if value else ""
    return value if isinstance(value, str | int | float | bool) or value is None else UNKNOWN
