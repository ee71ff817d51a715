"""Integers in texts that anybody may have written."""

from __future__ import annotations

MOST_DIGITS = 18
"""More than any number of GPUs, ranks, steps or bytes has. Python itself refuses texts of some thousand digits with an error."""


def integer(text: str) -> int | None:
    """The number that a text of ASCII digits writes; None for any other text, and for more than `MOST_DIGITS` digits."""
    text = text.strip()
    return int(text) if len(text) <= MOST_DIGITS and text.isascii() and text.isdecimal() else None
