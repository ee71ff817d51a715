"""Marks for fields of the models: what pydantic cannot express, such as releases and how DeepSpeed reads the value.

Marks are in `Annotated[...]` after the type. `compile.py` turns them into the key table. Releases are those of DeepSpeed, exact to the patch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["parse", "initialize", "step"]
Kind = Literal["bool", "int", "quoted int", "float", "quoted float", "str", "list", "dict"]


@dataclass(frozen=True, slots=True)
class Since:
    """The first release that reads the key. No mark: older than 0.9.0, the oldest supported release."""

    release: str


@dataclass(frozen=True, slots=True)
class Absent:
    """A gap: releases from `first` to `last` do not read the key, while earlier and later ones do."""

    first: str
    last: str


@dataclass(frozen=True, slots=True)
class Until:
    """The last release that reads the key ("0.0.0" if none did), and what later ones do with it.

    `then="raises"`: they reject the config because of it. `then="ignored"`: they silently ignore it. `then="unknown"`: they treat it as an
    unknown key, which its section may reject or ignore.
    `raises_since` is for keys that were first ignored and are now rejected: the first release that rejects them.
    `use` is the config path that replaces it, if there is one, with the value that `values` gives (old to new; None: none is needed).
    `note` is an explanation for users.
    """

    release: str
    then: Literal["raises", "ignored", "unknown"]
    use: str | None = None
    note: str | None = None
    raises_since: str | None = None
    values: tuple[tuple[Any, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Deprecated:
    """Deprecated since `release`, but still read.

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
    """The range up to the release `until`, if it differs from the current one."""

    until: str
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices up to the release `until`, if they differ from the current ones."""

    until: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoBool:
    """A number for which true and false are invalid from `release` on (pydantic itself reads them as 1 and 0)."""

    release: str


@dataclass(frozen=True, slots=True)
class ExactInt:
    """An integer that must be written as one, from `release` on: `1e3`, which Python's json reads as 1000.0, is invalid."""

    release: str


@dataclass(frozen=True, slots=True)
class FractionByHand:
    """An integer of the model that earlier releases, without one, used as written: a fraction counts exactly there."""


@dataclass(frozen=True, slots=True)
class Truthy:
    """Read as a condition without a model: any non-empty string is true (also "false" and "auto"), null and 0 are false. It never raises."""


@dataclass(frozen=True, slots=True)
class Raises:
    """Read without a model: a value of another type, or outside of the choices, raises in `phase` ("parse", "initialize", "step").

    `error` is the start of what DeepSpeed prints for a string, type first: `TypeError: '>' not supported between instances of 'str' and
    'int'`. In it `{type}` stands for the type of the value, `{unpacking}` for the error of unpacking it into so many names as the list has
    items. `lets` names undeclared kinds of values that DeepSpeed accepts: `true` counts as 1, `1.5` is used as it is.
    With `only`, the mark is about values of these kinds, in addition to a mark about the others.
    """

    phase: Phase
    error: str
    lets: tuple[Kind, ...] = ()
    only: tuple[Kind, ...] = ()


@dataclass(frozen=True, slots=True)
class Passes:
    """Read without a model and not checked: DeepSpeed accepts values of other types. `note` describes the consequence for users."""

    note: str


@dataclass(frozen=True, slots=True)
class NullRaises:
    """Read without a model: a null is invalid and raises in `phase` with `error` (other wrong types may not).

    With `until`, this applies up to this release; later ones accept null.
    """

    phase: Phase
    error: str
    until: str | None = None


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """Read without a model: the consequence of a number outside the declared range. Without the mark, it is not checked."""

    phase: Phase
    error: str


@dataclass(frozen=True, slots=True)
class Forbids:
    """A value of the right type that raises anyway, in `phase` with `error`."""

    value: Any
    phase: Phase
    error: str


@dataclass(frozen=True, slots=True)
class FalsyPasses:
    """Read without a model: false, 0 and empty values count as an absent key, whatever the type."""


@dataclass(frozen=True, slots=True)
class AutoDropped:
    """Read through a model although it is a top-level key: "auto" is dropped."""


@dataclass(frozen=True, slots=True)
class DictOnly:
    """Ignored if DeepSpeed gets the path of a file, up to the release `until`: read only from a dict, as from the integrations."""

    until: str


@dataclass(frozen=True, slots=True)
class ShadowedBy:
    """Not read if the key `key` is in the same section and not null."""

    key: str


@dataclass(frozen=True, slots=True)
class CheckedWith:
    """Read together with the key `key`, if that is in the same section: a rule checks the two, and no other mark counts."""

    key: str


@dataclass(frozen=True, slots=True)
class ReadWith:
    """Read only if the key `key` is in the same section and neither false nor empty; otherwise it has no effect."""

    key: str


@dataclass(frozen=True, slots=True)
class Needs:
    """A dict without the key `key` raises in `phase` with `error`."""

    key: str
    phase: Phase
    error: str


@dataclass(frozen=True, slots=True)
class Folded:
    """The choices are compared ignoring case."""


@dataclass(frozen=True, slots=True)
class AutoIsReal:
    """The string "auto" is a valid value that DeepSpeed resolves itself."""


@dataclass(frozen=True, slots=True)
class BoolStandsFor:
    """A section that may also be true or false (deprecated): the boolean sets the section's key `key` to 1 or 0."""

    key: str


@dataclass(frozen=True, slots=True)
class StrStandsFor:
    """A list that may also be a single string."""


@dataclass(frozen=True, slots=True)
class IsPath:
    """A file system path: pydantic 1 converts a number to a string, but not to a path."""


@dataclass(frozen=True, slots=True)
class Open:
    """A dict with custom keys (module names, kernel options): no key is unknown."""


@dataclass(frozen=True, slots=True)
class OnlyFor:
    """A parameter that only some classes of an optimizer type accept: those named here; the others raise a TypeError.

    The names are keys of the type's `classes`.
    """

    classes: tuple[str, ...]

    def __init__(self, *classes: str) -> None:
        object.__setattr__(self, "classes", classes)
