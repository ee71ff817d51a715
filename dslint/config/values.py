"""Effective values and their origins."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from dslint.source.unknown import UNKNOWN, UnknownInConfig

__all__ = ["UNKNOWN", "Doubt", "Origin", "UnknownInConfig", "Value"]


class Origin(StrEnum):
    """The origin of an effective value."""

    WRITTEN = "written"
    DEFAULT = "default"
    FILLED = "filled"
    """an integration fills "auto" """
    DERIVED = "derived"
    """computed from other keys"""
    MAPPED = "mapped"
    """written under a deprecated key"""
    DROPPED = "dropped"
    """written, but DeepSpeed ignores it; the value is the default"""
    REFUSED = "refused"
    """written, but DeepSpeed raises because of it"""


class Doubt(StrEnum):
    """Why nothing is known of a key that is not written. The value is the note for users."""

    SYNTAX = "the file has syntax errors"
    PROGRAM = "the program may set it"
    MISSPELT = "misspelt"
    """a misspelt key stands for it"""


class Value:
    """An effective value: what DeepSpeed uses (or `UNKNOWN`), its origin, and a short explanation."""

    __slots__ = ("note", "origin", "value")

    def __init__(self, value: Any, origin: Origin, note: str | None = None) -> None:
        self.value = value
        self.origin = origin
        self.note = note
