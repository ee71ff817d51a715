"""Methods of dicts, and `dict` itself. They are followed, never called."""

from __future__ import annotations

from collections.abc import Callable

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import State
from dslint.evaluate.python.tables import copied, copied_flat, mark_changed, merge, new_table, options_of
from dslint.evaluate.reasons import IS_COMPUTED, Cause, Reason
from dslint.evaluate.values import COMPUTED, NONE, Constant, DictValue, Entry, ListValue, Unknown, Value


def new_dict(state: State, call: CallOf) -> Value:
    """A dict of the arguments of a call."""
    made = new_table(state, call.span)
    for argument in call.arguments:
        merge(state, made, argument.value)
    for name, argument in call.keywords.items():
        made.cells[name] = Entry(argument.value, argument.key, argument.span, argument.literal)
    if not call.complete:
        made.open["more"] = True
    return made


def _update(state: State, table: DictValue, call: CallOf) -> Value:
    merge(state, table, new_dict(state, call))
    return NONE


def _get(_: State, table: DictValue, call: CallOf) -> Value:
    name = call.plain("key", 0)
    if isinstance(name, str) and name in table.cells:
        return _entry(table, name).value
    key = call.get("key", 0)
    if isinstance(key, Unknown):
        return options_of(table, key.reason or IS_COMPUTED)
    return COMPUTED if table.open or not isinstance(name, str) else call.get("default", 1) or NONE


def _setdefault(state: State, table: DictValue, call: CallOf) -> Value:
    name, default = call.plain("key", 0), call.argument("default", 1)
    if name in table.cells:
        return _entry(table, name).value
    if not isinstance(name, str) or default is None:
        return COMPUTED
    mark_changed(state, table)
    value = Unknown(Reason(Cause.SET_BEFORE)) if table.open else default.value
    state.journal.write(table.cells, name, Entry(value, call.arguments[0].span, default.span, default.literal))
    return value


def _pop(state: State, table: DictValue, call: CallOf) -> Value:
    name = call.plain("key", 0)
    if not isinstance(name, str):
        merge(state, table, Unknown())
        return COMPUTED
    value = _get(state, table, call)
    mark_changed(state, table)
    state.journal.erase(table.cells, name)
    return value


def _copy(state: State, table: DictValue, _: CallOf) -> Value:
    return copied_flat(state, table)


def _whole_copy(state: State, table: DictValue, _: CallOf) -> Value:
    return copied(state, table)


def _clear(state: State, table: DictValue, _: CallOf) -> Value:
    mark_changed(state, table)
    for name in list(table.cells):
        state.journal.erase(table.cells, name)
    return NONE


def _keys(_: State, table: DictValue, call: CallOf) -> Value:
    return _row(table, [Entry(Constant(name), entry.key_span, entry.key_span) for name, entry in table.cells.items()], call)


def _values(_: State, table: DictValue, call: CallOf) -> Value:
    return _row(table, list(table.cells.values()), call)


def _items(_: State, table: DictValue, call: CallOf) -> Value:
    pairs = [([Entry(Constant(name), one.key_span, one.key_span), one], one.span) for name, one in table.cells.items()]
    return _row(table, [Entry(ListValue(pair, span), span, span) for pair, span in pairs], call)


def _row(table: DictValue, items: list[Entry], call: CallOf) -> ListValue:
    return ListValue(items, call.span, changed=bool(table.open))


def _entry(table: DictValue, name: str) -> Entry:
    found: Entry = table.cells[name]
    return found


OF_TABLE: dict[str, Callable[[State, DictValue, CallOf], Value]] = {
    "update": _update,
    "get": _get,
    "setdefault": _setdefault,
    "pop": _pop,
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
