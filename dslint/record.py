"""`Record`: an immutable value with named fields, written like a dataclass, that costs nothing to define.

    class Point(Record):
        x: int
        y: int = 0

Every start of `dslint check` defines dozens of such classes. A dataclass compiles up to eight methods for each, and a named tuple compiles
its annotations: at every start that takes as long as the check itself. A record shares its methods with all others.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, Self, dataclass_transform


def _by_name(record: Record) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in record._fields)


@dataclass_transform(frozen_default=True)
class Record:
    """An immutable value. Its fields are the annotated names of its class, in order; those with a value in the class have a default."""

    _fields: ClassVar[tuple[str, ...]] = ()
    _required: ClassVar[frozenset[str]] = frozenset()
    _get_all: ClassVar[Callable[[Any], tuple[Any, ...]]]

    def __init_subclass__(cls) -> None:
        cls._fields = tuple(cls.__annotations__)
        cls._required = frozenset(name for name in cls._fields if not hasattr(cls, name))
        cls._get_all = attrgetter(*cls._fields) if len(cls._fields) > 1 else _by_name  # of one name, attrgetter makes no tuple

    def __init__(self, *values: Any, **named: Any) -> None:
        if not named and len(values) == len(self._fields):  # most are places and ranges
            self.__dict__.update(zip(self._fields, values, strict=True))
            return
        given = dict(zip(self._fields, values, strict=False)) | named
        if len(given) < len(values) + len(named) or not self._required <= given.keys() <= {*self._fields}:
            raise TypeError(f"{type(self).__name__} takes each of {', '.join(self._fields)} once, and requires {', '.join(self._required)}")
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def _values(self) -> tuple[Any, ...]:
        cls = type(self)
        return cls._get_all(self)

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"

    def _asdict(self) -> dict[str, Any]:
        """The fields by name."""
        return dict(zip(self._fields, self._values(), strict=True))

    def _replace(self, **changes: Any) -> Self:
        """The same value with other fields."""
        return type(self)(**{**self._asdict(), **changes})
