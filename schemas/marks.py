"""The vocabulary in which a model's field says what pydantic has no word for: releases, and how DeepSpeed reads the value.

Marks stand in `Annotated[...]` beside the type. `compile.py` turns them into the key table. Releases are DeepSpeed's, exact to the patch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["parse", "initialize", "step"]
Kind = Literal["bool", "int", "quoted int", "float", "str", "list", "dict"]


@dataclass(frozen=True, slots=True)
class Since:
    """The first release that reads the key. No mark: older than 0.9.0, the oldest release dslint knows."""

    release: str


@dataclass(frozen=True, slots=True)
class Absent:
    """A gap: from `first` to `last` the key was not read, though it was before and is after."""

    first: str
    last: str


@dataclass(frozen=True, slots=True)
class Until:
    """The last release that reads the key ("0.0.0" if none did), and what later ones do with it.

    `then="raises"`: they refuse the config because of it. `then="ignored"`: they drop it without a word. `then="unknown"`: they treat it as
    any key that they do not know, which its section may refuse or drop.
    `raises_since` is for the keys that were first dropped and are refused today: the first release that refuses.
    `use` is the config path that does the job now, if one does; `note` says more for people.
    """

    release: str
    then: Literal["raises", "ignored", "unknown"]
    use: str | None = None
    note: str | None = None
    raises_since: str | None = None


@dataclass(frozen=True, slots=True)
class Deprecated:
    """Read, but on its way out since `release`.

    `use` is the path that replaces it. DeepSpeed copies the value there (through `values`, old to new, where they differ) if `mapped`;
    otherwise it only warns and ignores the value. With `mapped`, giving both raises an AssertionError.
    """

    release: str
    use: str | None = None
    mapped: bool = True
    values: tuple[tuple[Any, Any], ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Default:
    """The default from `release` on. The oldest default has release "0"; the field's own default is the newest."""

    release: str
    value: Any


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range that held up to the release `until`, where it was another than today's."""

    until: str
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices that held up to the release `until`, where they were others than today's."""

    until: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoBool:
    """A number for which true and false do not stand in, from `release` on (pydantic alone reads them as 1 and 0)."""

    release: str


@dataclass(frozen=True, slots=True)
class ExactInt:
    """An integer that must be written as one, from `release` on: `1e3` read by Python's json, which is 1000.0, will not do."""

    release: str


@dataclass(frozen=True, slots=True)
class Truthy:
    """Read by hand as a condition: any non-empty string is true ("false" and "auto" too), null and 0 are false. Nothing is raised."""


@dataclass(frozen=True, slots=True)
class Raises:
    """Read by hand: a value of another type than declared, or none of the choices, raises in `phase` ("parse", "initialize", "step").

    `error` is the start of what DeepSpeed prints for a string, type first: `TypeError: '>' not supported between instances of 'str' and
    'int'`. `lets` names the kinds of value that are not declared and go through all the same: `true` counts as 1, `1.5` is computed with.
    With `only`, the mark is about values of these kinds, and stands beside one about the others.
    """

    phase: Phase
    error: str
    lets: tuple[Kind, ...] = ()
    only: tuple[Kind, ...] = ()


@dataclass(frozen=True, slots=True)
class Passes:
    """Read by hand and not checked: a value of another type goes through. `note` says what it leads to, for people."""

    note: str


@dataclass(frozen=True, slots=True)
class NullRaises:
    """Read by hand: the type admits no null, and a null raises in `phase` with `error` (where other wrong types may not).

    With `until`, that holds up to this release, and later ones take null.
    """

    phase: Phase
    error: str
    until: str | None = None


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """Read by hand: what a number outside the declared range leads to. Without the mark, nothing notices it."""

    phase: Phase
    error: str


@dataclass(frozen=True, slots=True)
class Forbids:
    """One value of the right type that raises all the same, in `phase` with `error`."""

    value: Any
    phase: Phase
    error: str


@dataclass(frozen=True, slots=True)
class FalsyPasses:
    """Read by hand: false, 0 and empty things go through as if the key were absent, whatever its type."""


@dataclass(frozen=True, slots=True)
class AutoDropped:
    """Read as a part of a model of DeepSpeed's, although it stands at the top level: "auto" is dropped."""


@dataclass(frozen=True, slots=True)
class DictOnly:
    """Read where DeepSpeed is handed a dict, as the integrations do, and overlooked where it is handed the path of a file."""


@dataclass(frozen=True, slots=True)
class ShadowedBy:
    """Not read at all where the key `key` stands beside it and is not null."""

    key: str


@dataclass(frozen=True, slots=True)
class ReadWith:
    """Read by hand, and only where the key `key` stands beside it and is neither false nor empty: elsewhere it does nothing."""

    key: str


@dataclass(frozen=True, slots=True)
class Needs:
    """A dict without the key `key` raises in `phase` with `error`."""

    key: str
    phase: Phase
    error: str


@dataclass(frozen=True, slots=True)
class Folded:
    """The choices are compared without regard to case."""


@dataclass(frozen=True, slots=True)
class AutoIsReal:
    """The string "auto" is a value of its own here, which DeepSpeed resolves; no integration has to fill it."""


@dataclass(frozen=True, slots=True)
class BoolStandsFor:
    """A section that may also be true or false, deprecated: the boolean is read as the section's key `key` being 1 or 0."""

    key: str


@dataclass(frozen=True, slots=True)
class StrStandsFor:
    """A list that may also be one string, which is read as a list of that one."""


@dataclass(frozen=True, slots=True)
class IsPath:
    """A path of the file system: pydantic 1 makes a string of a number, and no path."""


@dataclass(frozen=True, slots=True)
class Open:
    """A dict whose keys are the writer's own (module names, kernel options): none of them is unknown."""


@dataclass(frozen=True, slots=True)
class OnlyFor:
    """A parameter that not every class takes which the optimizer type may become: those named here do, the others raise a TypeError.

    The names are keys of the type's `classes`.
    """

    classes: tuple[str, ...]

    def __init__(self, *classes: str) -> None:
        object.__setattr__(self, "classes", classes)
