"""What Python's json makes of a value that the parser has read as hjson does."""

from __future__ import annotations

import re

from dslint.source.tree import Scalar, Value

_NOT_A_NUMBER = re.compile(r"(NaN|-?Infinity)[ \t]*+(?:[,}\]]|\Z)").match


def json_value(scalar: Scalar) -> Value:
    """The value that Python's `json` reads, where it differs from that of hjson.

    hjson reads `5e8` and `1.0` as integers and `NaN` as a string; json reads floats.
    """
    value = scalar.value
    if scalar.style == "json" and isinstance(value, int) and not isinstance(value, bool):
        return value if scalar.raw.removeprefix("-").isdecimal() else float(scalar.raw)
    if scalar.style == "bare" and isinstance(value, str):
        found = _NOT_A_NUMBER(value)
        if found:
            return float(found[1])
    return value
