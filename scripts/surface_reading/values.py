"""What an expression may stand for while the source is followed: constants, and above all parts of the user's config.

An expression has a tuple of alternatives, `Values`; the empty one means that nothing is known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from surface_reading.source import External, Module

Path: TypeAlias = tuple[str, ...]
"""Of a key of the config. "*" stands for names of the user's own, and "[]" after a name for the items of a list."""


class Hidden:
    """Stands where a default would: it is there, and cannot be read statically."""

    def __repr__(self) -> str:
        return "not readable"


HIDDEN = Hidden()


@dataclass(frozen=True)
class Const:
    """A number, a string, a boolean or None."""

    value: Any

    def key(self) -> object:
        return ("const", type(self.value).__name__, self.value)


@dataclass(frozen=True)
class Config:
    """What the user wrote at a path of the config; the empty path is the whole of it."""

    path: tuple[str, ...] = ()

    def key(self) -> object:
        return ("config", self.path)

    def below(self, name: str) -> Config:
        """The part under a key. "*" stands for a name of the user's own, or several on end."""
        return self if self.path[-1:] == ("*",) == (name,) else Config((*self.path, name))


@dataclass(frozen=True)
class NameIn:
    """One of the names that the user wrote in a part of the config, whichever; in a list, one of its items."""

    path: tuple[str, ...]

    def key(self) -> object:
        return ("name", self.path)


@dataclass(eq=False)
class Sequence:
    """A list, tuple or set of known length."""

    items: list[Values]

    def key(self) -> object:
        return ("sequence", id(self))


@dataclass(eq=False)
class Mapping:
    """A dict that the code builds. `merged`: the parts of the config that were copied over its entries."""

    entries: dict[Any, Values] = field(default_factory=dict)
    merged: list[Config] = field(default_factory=list)

    def key(self) -> object:
        return ("mapping", id(self))


@dataclass(frozen=True)
class Class:
    """A class of the release."""

    module: Module
    node: ast.ClassDef

    def key(self) -> object:
        return ("class", id(self.node))


@dataclass(eq=False)
class Instance:
    """An object of such a class."""

    cls: Class
    attributes: dict[str, Values] = field(default_factory=dict)

    def key(self) -> object:
        return ("instance", id(self))


@dataclass(frozen=True)
class Function:
    """A function of the release, bound to an instance or not. `owner` is the class that defines it."""

    module: Module
    node: ast.FunctionDef
    bound: Instance | None = None
    owner: Class | None = None

    def key(self) -> object:
        return ("function", id(self.node), id(self.bound))


@dataclass(frozen=True)
class Whole:
    """A module as a value."""

    module: Module

    def key(self) -> object:
        return ("module", self.module.name)


@dataclass(frozen=True)
class Super:
    """`super()` in a method."""

    instance: Instance
    owner: Class

    def key(self) -> object:
        return ("super", id(self.instance), id(self.owner.node))


@dataclass(frozen=True)
class Foreign:
    """Something from outside the release."""

    external: External

    def key(self) -> object:
        return ("foreign", self.external.name)


Value: TypeAlias = Const | Config | NameIn | Sequence | Mapping | Class | Instance | Function | Whole | Super | Foreign
Values: TypeAlias = tuple[Value, ...]
UNKNOWN: Values = ()
MOST_ALTERNATIVES = 24


def either(*groups: Values | list[Value]) -> Values:
    """The alternatives of all groups, each once."""
    filled = [group for group in groups if group]
    if len(filled) == 1 and isinstance(filled[0], tuple):
        return filled[0]
    found = {value.key(): value for group in filled for value in group}
    return tuple(found.values())[:MOST_ALTERNATIVES]


def keys_of(values: Values) -> tuple[object, ...]:
    """What tells these alternatives from others."""
    return tuple(value.key() for value in values)


def texts(values: Values) -> list[str]:
    """The strings among the alternatives."""
    return [value.value for value in values if isinstance(value, Const) and isinstance(value.value, str)]


def touches_config(values: Values, depth: int = 3) -> bool:
    """Whether a part of the config is among the alternatives, or inside them."""
    return depth > 0 and any(_touches(value, depth) for value in values)


def _touches(value: Value, depth: int) -> bool:
    match value:
        case Config() | NameIn() | Super():
            return True
        case Mapping(entries=entries, merged=merged):
            return bool(merged) or any(touches_config(entry, depth - 1) for entry in entries.values())
        case Sequence(items=items):
            return any(touches_config(item, depth - 1) for item in items)
        case Instance(attributes=attributes):
            return any(touches_config(entry, depth - 1) for entry in attributes.values())
        case Function(bound=Instance() as bound):
            return _touches(bound, depth)
    return False


def plain(values: Values, depth: int = 6) -> Any:
    """The one Python value that the alternatives stand for, or `HIDDEN`."""
    found = [_plain(value, depth) for value in values]
    return found[0] if len(found) == 1 else HIDDEN


def plains(values: Values) -> Iterator[Any]:
    """Each alternative as a Python value, or `HIDDEN`; what the user wrote is left out."""
    yield from (_plain(value, 6) for value in values if not isinstance(value, Config | NameIn))


def _plain(value: Value, depth: int) -> Any:
    match value:
        case Const(value=inner):
            return inner
        case Sequence(items=items) if depth:
            inner_items = [plain(item, depth - 1) for item in items]
            return HIDDEN if any(item is HIDDEN for item in inner_items) else inner_items
        case Mapping(entries=entries, merged=[]) if depth:
            inner_entries = {name: plain(entry, depth - 1) for name, entry in entries.items()}
            return HIDDEN if any(entry is HIDDEN for entry in inner_entries.values()) else inner_entries
    return HIDDEN
