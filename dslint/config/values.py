"""An effective value, and where it came from."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from dslint.source.unknown import UNKNOWN, Unknown

__all__ = ["UNKNOWN", "Origin", "Unknown", "Value"]


class Origin(StrEnum):
    """Where an effective value came from."""

    WRITTEN = "written"
    DEFAULT = "default"
    FILLED = "filled"
    """an integration puts it in the place of "auto" """
    DERIVED = "derived"
    """computed from other keys"""
    MAPPED = "mapped"
    """written under a deprecated key"""
    DROPPED = "dropped"
    """written, but DeepSpeed drops it; the value is the default"""
    REFUSED = "refused"
    """written, and DeepSpeed raises because of it"""


class Value:
    """An effective value: what DeepSpeed uses (`UNKNOWN` where that cannot be known), its origin, and a few words on how it came about."""

    __slots__ = ("note", "origin", "value")

    def __init__(self, value: Any, origin: Origin, note: str | None = None) -> None:
        self.value = value
        self.origin = origin
        self.note = note
