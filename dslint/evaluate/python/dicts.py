"""Methods of dicts, and `dict` itself. They are followed, never called."""

from __future__ import annotations

from collections.abc import Callable

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.evaluate import KEY_ERROR, ProgramState, raise_certainly
from dslint.evaluate.python.tables import (
    SECTIONS,
    copied,
    copied_flat,
    erase_key,
    leave_open,
    mark_changed,
    merge,
    new_table,
    options_of,
    why_open,
)
from dslint.evaluate.reasons import IS_COMPUTED, Cause, Reason
from dslint.evaluate.values import COMPUTED, NONE, Constant, DictValue, Entry, ListValue, Unknown, Value


def new_dict(state: ProgramState, call: CallOf) -> Value:
    """A dict of the arguments of a call."""
    made = new_table(state, call.span)
    for argument in call.arguments:
        merge(state, made, argument.value, place=argument.span)
    for name, argument in call.keywords.items():
        made.cells[name] = Entry(argument.value, argument.key, argument.span, argument.literal)
    if not call.complete:
        leave_open(state, made, Reason(Cause.COMPUTED, (), call.span))
    return made


def _update(state: ProgramState, table: DictValue, call: CallOf) -> Value:
    merge(state, table, new_dict(state, call), place=call.span)
    return NONE


def _get(state: ProgramState, table: DictValue, call: CallOf) -> Value:
    name, default = call.plain("key", 0), call.get("default", 1) or NONE
    if isinstance(name, str) and name in table.cells:
        entry = _entry(table, name)
        return state.journal.joined(entry.value, default) if entry.perhaps else entry.value
    key = call.get("key", 0)
    if isinstance(key, Unknown):
        return options_of(table, key.reason or IS_COMPUTED)
    return Unknown(why_open(table)) if table.open else COMPUTED if not isinstance(name, str) else default


def _setdefault(state: ProgramState, table: DictValue, call: CallOf) -> Value:
    name, default = call.plain("key", 0), call.argument("default", 1)
    if name in table.cells and not _entry(table, name).perhaps:
        return _entry(table, name).value
    if not isinstance(name, str):
        merge(state, table, Unknown(), Reason(Cause.COMPUTED_KEY, (), call.span))
        return options_of(table, Reason(Cause.COMPUTED_KEY, (), call.span))
    given = default or Argument(NONE, call.span, call.span)
    value = Unknown(Reason(Cause.SET_BEFORE, (), call.span)) if table.open else given.value
    if name in table.cells:
        value = state.journal.joined(_entry(table, name).value, given.value)
    mark_changed(state, table)
    state.journal.write(table.cells, name, Entry(value, call.arguments[0].span, given.span, given.literal))
    return value


def _pop(state: ProgramState, table: DictValue, call: CallOf) -> Value:
    name = call.plain("key", 0)
    if not isinstance(name, str):
        merge(state, table, Unknown(), place=call.span)
        return COMPUTED
    if name not in table.cells and not table.open and len(call.arguments) < 2:
        raise_certainly(state, KEY_ERROR)
    value = _get(state, table, call)
    erase_key(state, table, name)
    return value


def _popitem(state: ProgramState, table: DictValue, call: CallOf) -> Value:
    """Take the last key, which is known if the dict has no unknown ones."""
    if table.open or not table.cells or any(one.perhaps for one in table.cells.values()) or call.arguments or call.keywords:
        merge(state, table, Unknown(), place=call.span)
        return COMPUTED
    name = next(reversed(table.cells))
    entry = _entry(table, name)
    erase_key(state, table, name)
    return ListValue([Entry(Constant(name), entry.key_span, entry.key_span), entry], call.span)


def _copy(state: ProgramState, table: DictValue, _: CallOf) -> Value:
    return copied_flat(state, table)


def _whole_copy(state: ProgramState, table: DictValue, _: CallOf) -> Value:
    return copied(state, table)


def _clear(state: ProgramState, table: DictValue, _: CallOf) -> Value:
    mark_changed(state, table)
    for name in [*table.cells, *SECTIONS]:
        erase_key(state, table, name)
    return NONE


def _keys(_: ProgramState, table: DictValue, call: CallOf) -> Value:
    keys = [Entry(Constant(name), entry.key_span, entry.key_span, perhaps=entry.perhaps) for name, entry in table.cells.items()]
    return _row(table, keys, call)


def _values(_: ProgramState, table: DictValue, call: CallOf) -> Value:
    return _row(table, list(table.cells.values()), call)


def _items(_: ProgramState, table: DictValue, call: CallOf) -> Value:
    pairs = [([Entry(Constant(name), one.key_span, one.key_span), one], one.span) for name, one in table.cells.items()]
    return _row(table, [Entry(ListValue(pair, span), span, span, perhaps=pair[1].perhaps) for pair, span in pairs], call)


def _row(table: DictValue, items: list[Entry], call: CallOf) -> ListValue:
    made = ListValue(items, call.span, changed=bool(table.open))
    if table.open:
        made.cells["reason"], made.cells["among"] = why_open(table), items
    return made


def _entry(table: DictValue, name: str) -> Entry:
    found: Entry = table.cells[name]
    return found


OF_TABLE: dict[str, Callable[[ProgramState, DictValue, CallOf], Value]] = {
    "update": _update,
    "get": _get,
    "setdefault": _setdefault,
    "pop": _pop,
    "popitem": _popitem,
    "copy": _copy,
    "clear": _clear,
    "keys": _keys,
    "values": _values,
    "items": _items,
    "to_dict": _whole_copy,
    "todict": _whole_copy,
    "as_dict": _whole_copy,
}
"""Methods of a dict."""

CHANGES_TABLE = frozenset({"update", "setdefault", "pop", "popitem", "clear"})
"""Those that change it."""
