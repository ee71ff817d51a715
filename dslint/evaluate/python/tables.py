"""Dicts of a followed program: made, changed, merged and copied."""

from __future__ import annotations

from collections.abc import Iterable

from dslint.evaluate.python.evaluate import Exhausted, State
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import COMPUTED, Cells, Constant, DictValue, Entry, ListValue, Object, Unknown, Value, member, tables_of
from dslint.source.tree import Mapping, Node, Sequence, Span, plain

_DEEPEST = 20
_MOST_OPTIONS = 8
_MERGED = Reason(Cause.MERGED)


def new_table(state: State, span: Span, entries: Iterable[tuple[str, Entry]] = ()) -> DictValue:
    """A new dict."""
    made = DictValue(state.journal.cells(optional=True), span, open=state.journal.cells())
    made.cells.update(entries)
    return made


def whole(state: State, value: Value) -> Value:
    """One dict for those of which a value is one; any other value as it is."""
    tables = tables_of(value)
    return state.journal.flattened(tables) if len(tables) > 1 else tables[0] if tables else value


def merge(state: State, table: DictValue, other: Value, reason: Reason = _MERGED) -> None:
    """Take over the keys of another dict, as `update` and `|` do. `reason` is that of values that an unknown dict may replace."""
    mark_changed(state, table)
    other = whole(state, other)
    if not isinstance(other, DictValue) or other.open:
        state.journal.write(table.open, "more", value=True)
        unknown = Unknown(reason)
        for name, entry in list(table.cells.items()):
            state.journal.write(table.cells, name, Entry(unknown, entry.key_span, entry.span))
    for name, entry in list(other.cells.items()) if isinstance(other, DictValue) else ():
        state.journal.write(table.cells, name, entry)


def deep_merge(state: State, table: DictValue, other: DictValue, depth: int = 0) -> None:
    """Take over the keys of another dict, and in dicts that both have, the keys of these."""
    _spend(state, other.cells)
    for name, entry in list(other.cells.items()):
        before = table.cells[name].value if name in table.cells else None
        if isinstance(before, DictValue) and isinstance(entry.value, DictValue) and depth < _DEEPEST:
            deep_merge(state, before, entry.value, depth + 1)
        else:
            state.journal.write(table.cells, name, entry)
    if other.open:
        state.journal.write(table.open, "more", value=True)


def copied(state: State, table: DictValue, file: Cells | None = None, depth: int = 0) -> DictValue:
    """A copy of a dict and of the dicts in it.

    Raises:
        Exhausted: the program is too large.
    """
    _spend(state, table.cells)
    made = new_table(state, table.span)
    made.file, made.inner = file, table.inner
    if file is None and table.file is not None:
        made.file = state.journal.cells()
        made.file.update(table.file)
    made.open.update(table.open)
    for name, entry in table.cells.items():
        inner = isinstance(entry.value, DictValue) and depth < _DEEPEST
        value = copied(state, entry.value, made.file, depth + 1) if inner else entry.value
        made.cells[name] = Entry(value, entry.key_span, entry.span, entry.literal, entry.perhaps)
    return made


def copied_flat(state: State, table: DictValue) -> DictValue:
    """A copy of a dict that shares the dicts in it, as `dict.copy` and `copy.copy` make it.

    Both belong to the same file: what changes a dict that they share changes what both hold.
    """
    _spend(state, table.cells)
    made = new_table(state, table.span)
    made.file, made.inner = table.file, table.inner
    made.open.update(table.open)
    for name, entry in table.cells.items():
        made.cells[name] = Entry(entry.value, entry.key_span, entry.span, entry.literal, entry.perhaps)
    return made


def _spend(state: State, cells: Cells) -> None:
    """Count the work on a dict.

    Raises:
        Exhausted: the program is too large.
    """
    state.steps -= 1 + len(cells)
    if state.steps < 0:
        raise Exhausted


def mark_changed(state: State, table: DictValue) -> None:
    """Note that a dict is no longer what its file says."""
    if table.file is not None:
        state.journal.write(table.file, "changed", value=True)


def of_tree(state: State, node: Node, file: Cells | None = None, *, as_json: bool = True) -> Value:
    """A tree of JSON as a value; without `as_json` it is read with hjson."""
    if isinstance(node, Mapping):
        table = new_table(state, node.span)
        table.file = file
        for one in node.members:
            value = of_tree(state, one.value, file, as_json=as_json)
            if isinstance(value, DictValue):
                value.inner = True
            table.cells[one.key.value] = Entry(value, one.key.span, one.value.span, literal=True)
        return table
    if isinstance(node, Sequence):
        values = [(of_tree(state, item, file, as_json=as_json), item.span) for item in node.items]
        return ListValue([Entry(value, Span(0, 0), span, literal=True) for value, span in values], node.span)
    number = plain(node, as_json=as_json)
    return Constant(number) if isinstance(number, str | int | float) or number is None else COMPUTED


def table_of(state: State, thing: Object, span: Span) -> DictValue:
    """The attributes of an object as a dict, as `vars` and `dataclasses.asdict` return them. They are placed at `span`."""
    _spend(state, thing.cells)
    names = dict.fromkeys([*(thing.type.fields if thing.type else ()), *thing.cells])
    found = [(name, thing.cells[name] if name in thing.cells else member(thing.type, name)) for name in names]
    made = new_table(state, span, [(name, Entry(value, span, span)) for name, value in found if value is not None])
    for entry in made.cells.values():
        if isinstance(entry.value, Object) and entry.value.type is not None and entry.value.type.dataclass:
            entry.value = table_of(state, entry.value, span)
    if thing.type is None:
        made.open["more"] = True
    return made


def options_of(table: DictValue, reason: Reason) -> Unknown:
    """One of the values of a dict, which is chosen by a key that is not known."""
    values = tuple(entry.value for entry in table.cells.values())
    chosen = values if not table.open and len(values) <= _MOST_OPTIONS else ()
    return Unknown(
        reason,
        options=tuple(one for one in chosen if isinstance(one, DictValue) or (isinstance(one, Constant) and isinstance(one.value, str))),
    )
