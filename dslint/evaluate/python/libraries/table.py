"""The table of what functions of libraries return, by their full names. Each module beside this one adds those of its library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.functions import enter
from dslint.evaluate.python.tables import SET, certain_items, number_of
from dslint.evaluate.reasons import IS_COMPUTED, Reason
from dslint.evaluate.values import Constant, Entry, Function, Object, Unknown, Value, member

Followed = Callable[[ProgramState, CallOf], Value]
"""What a call of a function returns, and does to the values it is given."""

FUNCTIONS: dict[str, Followed] = {}
"""Functions of libraries by their full names."""


def follows(*names: str) -> Callable[[Followed], Followed]:
    """Say of a function that it follows calls of the library functions with these full names."""

    def added(function: Followed) -> Followed:
        FUNCTIONS.update(dict.fromkeys(names, function))
        return function

    return added


def unknown_of(*values: Value | None, reason: Reason = IS_COMPUTED) -> Unknown:
    """What depends on values that are not all known: the first of them says where it comes from."""
    known = next((one for one in values if isinstance(one, Unknown) and one.reason), None)
    return Unknown(known.reason if known else reason)


def entry_of(value: Value, call: CallOf) -> Entry:
    """A value that a call makes, as an item of what it returns."""
    return Entry(value, call.span, call.span)


def items_in(given: Value | None) -> list[Entry] | None:
    """The items of a value, of a set in any order; None if they are not known."""
    if isinstance(given, Object) and given.kind == SET:
        given = given.about
    return certain_items(given) if given is not None else None


def row_in(value: Value) -> list[Entry] | None:
    """The items of a value in their order; None if they are not known, as those of a set."""
    return None if isinstance(value, Object) and value.kind == SET else certain_items(value)


def like(value: Value) -> Unknown:
    """What has as many items as a value of which the items are not known, or many."""
    return replace(unknown_of(value), length=number_of(value))


def length_of(state: ProgramState, value: Value | None) -> Value | None:
    """What `len` returns for a list, a dict, a set, or an object of a class of the project; None if that is not known."""
    if isinstance(value, Object) and isinstance(method := member(value.type, "__len__"), Function):
        return enter(state, method.bound(value), [], {})
    items = items_in(value)
    length = len(items) if items is not None else number_of(value)
    return None if length is None else Constant(length)


def plain_length(state: ProgramState, value: Value | None) -> int | None:
    """The same as a number, if no flag changes it."""
    length = length_of(state, value)
    return length.value if isinstance(length, Constant) and type(length.value) is int and not length.soft else None


def first_argument(_: ProgramState, call: CallOf) -> Value:
    """What a function returns that changes nothing about its first argument, as far as it matters here."""
    return call.arguments[0].value if call.arguments else Unknown()
