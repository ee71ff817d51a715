"""An effective value, and the value that cannot be known."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final


class Unknown:
    """A value that cannot be known from the file and the given facts. Like NaN, every comparison with it is false, `!=` included."""

    __slots__ = ()

    def _never(self, _other: object) -> bool:
        return False

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _never
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()


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
