"""Methods of dicts, and `dict` itself. They are followed, never called."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dslint.setup.programs.calls import CallOf
from dslint.setup.programs.values import NONE, Entry, Opaque, Table, Value

if TYPE_CHECKING:
    from dslint.setup.programs.functions import Functions


def new_dict(follower: Functions, call: CallOf) -> Value:
    """A dict of the arguments of a call."""
    made = follower.table(call.span)
    for argument in call.arguments:
        follower.merge(made, argument.value)
    for name, argument in call.keywords.items():
        made.cells[name] = Entry(argument.value, argument.key, argument.span, argument.literal)
    if not call.complete:
        made.open["more"] = True
    return made


def _update(follower: Functions, table: Table, call: CallOf) -> Value:
    follower.merge(table, new_dict(follower, call))
    return NONE


def _get(follower: Functions, table: Table, call: CallOf) -> Value:
    name = call.plain("key", 0)
    if name in table.cells:
        return follower.entry(table, name).value
    if table.open or not isinstance(name, str):
        return Opaque("it is computed")
    return call.get("default", 1) or NONE


def _setdefault(follower: Functions, table: Table, call: CallOf) -> Value:
    name, default = call.plain("key", 0), call.argument("default", 1)
    if name in table.cells:
        return follower.entry(table, name).value
    if not isinstance(name, str) or default is None:
        return Opaque("it is computed")
    follower.changed(table)
    value = Opaque("it may be set before") if table.open else default.value
    follower.journal.write(table.cells, name, Entry(value, call.arguments[0].span, default.span, default.literal))
    return value


def _pop(follower: Functions, table: Table, call: CallOf) -> Value:
    name = call.plain("key", 0)
    if not isinstance(name, str):
        follower.merge(table, Opaque())
        return Opaque("it is computed")
    value = _get(follower, table, call)
    follower.changed(table)
    follower.journal.erase(table.cells, name)
    return value


def _copy(follower: Functions, table: Table, _: CallOf) -> Value:
    return follower.copied(table)


def _clear(follower: Functions, table: Table, _: CallOf) -> Value:
    follower.changed(table)
    for name in list(table.cells):
        follower.journal.erase(table.cells, name)
    return NONE


OF_TABLE: dict[str, Callable[[Functions, Table, CallOf], Value]] = {
    "update": _update,
    "get": _get,
    "setdefault": _setdefault,
    "pop": _pop,
    "copy": _copy,
    "clear": _clear,
}
"""Methods of a dict."""
