"""The section that the writer of a single value meant: `"bf16": true` means `"bf16": {"enabled": true}`."""

from __future__ import annotations

from typing import Any

from dslint.config import Config, Violation
from dslint.diagnostics import Applicability
from dslint.rule import FixPlan
from dslint.rules.helpers.fixes import json_text
from dslint.schemas.key_table import KEYS
from dslint.schemas.typed import find_type
from dslint.source.change import Set
from dslint.source.tree import Scalar

DYNAMIC_LOSS_SCALE = 0
"""The `loss_scale` with which DeepSpeed scales the loss dynamically."""

OFFLOAD_DEVICES = ("cpu", "nvme", "none")


def intended_value(config: Config, violation: Violation) -> FixPlan | None:
    """Write the value that a value of the wrong type plainly stands for; None if that is not plain.

    Safe where the meaning is certain; unsafe where DeepSpeed's defaults fill in what is not written.
    """
    node = config.node(violation.path)
    if not isinstance(node, Scalar):
        return None
    value, key = _unquoted(node.value), ".".join(map(str, violation.path))
    if violation.path[-1] == "loss_scale" and value == "dynamic":
        return _write(violation, str(DYNAMIC_LOSS_SCALE))
    if "section" not in violation.spec["types"]:
        return None
    if isinstance(value, bool) and f"{key}.enabled" in KEYS:
        return _write(violation, json_text({"enabled": value}))
    if f"{key}.device" in KEYS and (value is True or value in OFFLOAD_DEVICES):
        return _write(violation, json_text({"device": "cpu" if value is True else value}))
    if key == "zero_optimization" and isinstance(value, int) and 0 <= value <= 3:
        return _write(violation, json_text({"stage": int(value)}))
    if key in ("optimizer", "scheduler") and isinstance(value, str) and find_type(key, value) is not None:
        return _write(violation, json_text({"type": value}), Applicability.UNSAFE)
    return None


def _write(violation: Violation, text: str, kind: Applicability = Applicability.SAFE) -> FixPlan:
    return FixPlan(f'write "{violation.path[-1]}": {text}', (Set(violation.path, text),), kind)


def _unquoted(value: Any) -> Any:
    """A value without the quotes around a number or a boolean."""
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    if word.isdecimal() and len(word) == 1:
        return int(word)
    return word if word in (*OFFLOAD_DEVICES, "dynamic") else value
