"""Methods of lists and sets. They are followed, never called."""

from __future__ import annotations

from typing import Any

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.nodes import CHANGES_ROW
from dslint.evaluate.python.tables import certain_items, set_items
from dslint.evaluate.values import COMPUTED, NONE, Constant, Entry, ListValue, Object, Unknown, Value


def method_of_row(state: ProgramState, row: ListValue, name: str, call: CallOf) -> Value | None:
    """The result of a method of a list, None of one that lists do not have."""
    if name == "copy":
        return ListValue(list(row.items), row.span, changed=row.changed)
    if name in ("index", "count"):
        return _searched(row, name, call)
    if name not in CHANGES_ROW:
        return None
    if row.changed:
        return Unknown(row.reason) if name == "pop" else NONE
    items, result = _changed(list(row.items), name, call)
    set_items(state, row, items, call.span)
    return result


def _changed(items: list[Entry], name: str, call: CallOf) -> tuple[list[Entry] | None, Value]:
    """The items of a list after a method, None if they are not known then, and what the method returns."""
    entries = [Entry(one.value, one.key, one.span, one.literal) for one in call.arguments]
    first = entries[0].value if entries else None
    number = first.value if isinstance(first, Constant) and isinstance(first.value, int) else None
    if call.keywords or not call.complete:
        return None, COMPUTED
    if name == "append" and entries:
        return [*items, entries[0]], NONE
    if name == "extend" and first is not None:
        more = certain_items(first)
        return None if more is None else [*items, *more], NONE
    if name == "insert" and number is not None and len(entries) == 2:
        items.insert(number, entries[1])
        return items, NONE
    if name == "pop" and items and (not entries or (number is not None and -len(items) <= number < len(items))):
        taken = items.pop(-1 if number is None else number)
        return items, taken.value
    if name == "clear":
        return [], NONE
    if name == "reverse":
        return items[::-1], NONE
    if name == "sort" and not entries:
        return in_order(items), NONE
    return None, COMPUTED if name == "pop" else NONE


def in_order(items: list[Entry], *, backwards: bool = False) -> list[Entry] | None:
    """Numbers or texts in their order; None if they are not known."""
    values: list[Any] = [one.value.value for one in items if isinstance(one.value, Constant) and not one.perhaps]
    numbers = all(isinstance(one, int | float) for one in values)
    if len(values) < len(items) or not (numbers or all(isinstance(one, str) for one in values)):
        return None
    return [items[index] for index in sorted(range(len(items)), key=values.__getitem__, reverse=backwards)]


def _searched(row: ListValue, name: str, call: CallOf) -> Value:
    values = [one.value.value for one in row.items if isinstance(one.value, Constant)]
    wanted = call.get("value", 0)
    if row.changed or len(values) < len(row.items) or not isinstance(wanted, Constant) or len(call.arguments) != 1:
        return COMPUTED
    if name == "count":
        return Constant(values.count(wanted.value))
    return Constant(values.index(wanted.value)) if wanted.value in values else COMPUTED


def method_of_set(found: Object) -> Value:
    """A method of a set, which may change it."""
    found.about.cells["items"] = None
    return COMPUTED
