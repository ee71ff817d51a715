"""Type coercion of JSON values as in pydantic's lax mode, which DeepSpeed's pydantic sections use.

DeepSpeed's models are pydantic 2's since 0.15.0. Before, they were pydantic 1's (`pydantic.v1` where 2 is installed), which accepts more.
The test suite compares this module with pydantic; importing pydantic here would take longer than the whole check.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

INVALID: Final = object()
"""The result of `coerce` for a value that pydantic rejects."""

_TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})
_FALSE = frozenset({"0", "off", "f", "false", "n", "no"})
_INTEGER = r"[+-]?[0-9]+(?:_[0-9]+)*(?:\.0*)?"


def coerce(value: Any, kind: str) -> Any:
    """The value that pydantic 2 returns for `value` and the type `kind`, or `INVALID`.

    `kind` is one of "bool", "int", "float", "str", "list", "dict", "section", "null".
    """
    return _COERCE[kind](value)


def coerce_1(value: Any, kind: str) -> Any:
    """The value that pydantic 1 returns: it truncates fractions, converts numbers to strings, and accepts what `dict()` accepts."""
    return _COERCE_1.get(kind, _COERCE[kind])(value)


def _bool(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return bool(value) if value in (0, 1) else INVALID
    if isinstance(value, str):
        word = value.lower()
        return True if word in _TRUE else False if word in _FALSE else INVALID
    return INVALID


def _int(value: Any) -> Any:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value == int(value) and abs(value) < 2**63 else INVALID
    if isinstance(value, str) and len(value) <= 4300 and re.fullmatch(_INTEGER, value.strip()):
        return int(value.strip().partition(".")[0])
    return INVALID


def _float(value: Any) -> Any:
    if isinstance(value, bool | int):
        try:
            return float(value)
        except OverflowError:
            return INVALID
    if isinstance(value, float):
        return value
    if isinstance(value, str):
        try:
            return float(value.strip())
        except ValueError:
            return INVALID
    return INVALID


_COERCE: dict[str, Callable[[Any], Any]] = {
    "bool": _bool,
    "int": _int,
    "float": _float,
    "str": lambda value: value if isinstance(value, str) else INVALID,
    "list": lambda value: value if isinstance(value, list) else INVALID,
    "dict": lambda value: value if isinstance(value, dict) else INVALID,
    "section": lambda value: value if isinstance(value, dict) else INVALID,
    "null": lambda value: value if value is None else INVALID,
    "quoted int": lambda value: _int_1(value) if isinstance(value, str) else INVALID,
    "quoted float": lambda value: _float(value) if isinstance(value, str) else INVALID,
}


def _int_1(value: Any) -> Any:
    try:
        return int(value) if isinstance(value, int | float | str) else INVALID
    except (ValueError, OverflowError):
        return INVALID


def _dict_1(value: Any) -> Any:
    try:
        return dict(value)
    except (TypeError, ValueError):
        return INVALID


_COERCE_1: dict[str, Callable[[Any], Any]] = {
    "int": _int_1,
    "str": lambda value: str(value) if isinstance(value, int | float | str) else INVALID,
    "dict": _dict_1,
    "section": _dict_1,
}


def is_kind(value: Any, kind: str) -> bool:
    """Whether a value that DeepSpeed reads without pydantic has the type. A whole float is an integer, as in `5e8`."""
    if kind == "bool":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind == "int":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if kind == "float":
        return isinstance(value, int | float)
    return _COERCE[kind](value) is not INVALID
