"""The value `UNKNOWN`."""

from __future__ import annotations

from typing import Final


class UnknownInConfig:
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


UNKNOWN: Final = UnknownInConfig()
