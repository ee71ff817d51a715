"""A kind of line."""

from __future__ import annotations

import re

from dslint.record import Record

DECIMAL = r"\d+(?:\.\d+)?"
"""A number with or without decimals, as a pattern."""


class Sign(Record):
    """A kind of line: its name, literals of which it contains one, and a pattern with named groups for what it tells."""

    kind: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]


def sign(kind: str, literals: str | tuple[str, ...], pattern: str = "") -> Sign:
    """A sign. Without a pattern its literal says all."""
    given = (literals,) if isinstance(literals, str) else literals
    return Sign(kind, given, re.compile(pattern or "|".join(map(re.escape, given))))
