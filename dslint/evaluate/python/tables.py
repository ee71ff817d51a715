"""Dicts of a followed program: made, changed, merged and copied."""

from __future__ import annotations

from collections.abc import Iterable

from dslint.evaluate.python.evaluate import Exhausted, ProgramState
from dslint.evaluate.reasons import IS_COMPUTED, Cause, Reason
from dslint.evaluate.values import (
    COMPUTED,
    Cells,
    Class,
    Constant,
    DictValue,
    Entry,
    ListValue,
    Object,
    ParsedNames,
    Unknown,
    Value,
    member,
    resolution,
    tables_of,
)
from dslint.source.tree import Mapping, Node, Sequence, Span, plain

_DEEPEST = 20
"""How deep dicts and lists in each other are copied, merged or forgotten. DeepSpeed's keys are at most 8 deep; a program can build a
dict that has itself in it."""

_MOST_OPTIONS = 8
"""The most values of a dict of which one is chosen by a key that is not known; of more the choice is only unknown, as in `Journal`."""

_NOWHERE = Span(0, 0)
SET = "set"
"""The kind of a set of which all members are known; `about` is their list in any order."""

SECTIONS = ("optimizer", "scheduler")
"""The keys of a config by which programs choose between objects of torch and Accelerate's stand-ins."""

MOST_ITEMS = 40
"""The longest list that is followed item by item."""
_MERGED = Reason(Cause.MERGED)


def new_table(state: ProgramState, span: Span, entries: Iterable[tuple[str, Entry]] = ()) -> DictValue:
    """A new dict."""
    made = DictValue(state.journal.cells(optional=True), span, open=state.journal.cells())
    made.cells.update(entries)
    return made


def whole(state: ProgramState, value: Value) -> Value:
    """One dict for those of which a value is one; any other value as it is."""
    if type(value) is not Unknown or not value.closed:
        return value
    tables = tables_of(value)
    return state.journal.flattened(tables) if len(tables) > 1 else tables[0] if tables else value


def items_of(found: Value) -> list[Entry] | None:
    """The items of a value that a loop goes over; None if they are not known, or many. Keys that may be absent are marked."""
    if isinstance(found, ListValue):
        return None if found.changed or len(found.items) > MOST_ITEMS else found.items
    if isinstance(found, DictValue) and not found.open and len(found.cells) <= MOST_ITEMS:
        return [Entry(Constant(name), entry.key_span, entry.key_span, perhaps=entry.perhaps) for name, entry in found.cells.items()]
    if isinstance(found, Constant) and isinstance(found.value, str) and len(found.value) <= MOST_ITEMS:
        return [Entry(Constant(one, found.soft), _NOWHERE, _NOWHERE) for one in found.value]
    return [] if isinstance(found, Unknown) and found.length == 0 else None


def certain_items(found: Value) -> list[Entry] | None:
    """The items of a value, None if one of them may be absent."""
    items = items_of(found)
    return None if items is None or any(one.perhaps for one in items) else items


def number_of(found: Value | None) -> int | None:
    """How many items a list has, or what has only a length that is known."""
    if isinstance(found, ListValue) and not found.changed and not any(one.perhaps for one in found.items):
        return len(found.items)
    return found.length if isinstance(found, Unknown) else None


def known_among(found: Value) -> ListValue | None:
    """The keys or items that are known of a dict which may have more, as `among` of a list; None of any other value."""
    if isinstance(found, DictValue) and found.open:
        made = ListValue([], found.span, changed=True)
        keys = [Entry(Constant(name), one.key_span, one.key_span, perhaps=one.perhaps) for name, one in found.cells.items()]
        made.cells["reason"], made.cells["among"] = why_open(found), keys
        return made
    return found if isinstance(found, ListValue) and found.among else None


def as_set(items: list[Entry], span: Span) -> Value:
    """A set of texts or numbers that are all known: their order is not."""
    values = {one.value.value: one for one in items if isinstance(one.value, Constant)}
    if len([one for one in items if isinstance(one.value, Constant)]) < len(items):
        return COMPUTED
    return Object(SET, Cells(0), about=ListValue(list(values.values()), span))


def set_items(state: ProgramState, row: ListValue, items: list[Entry] | None, place: Span) -> None:
    """Change the items of a list; with None they are not known from then on."""
    if items is not None and len(items) > MOST_ITEMS:
        items = None
    if items is None and not row.changed:
        state.journal.write(row.cells, "reason", Reason(Cause.COMPUTED, (), place))
    state.journal.write(row.cells, "items", items)


def forget_all(state: ProgramState, value: Value, place: Span, depth: int = 0) -> None:
    """Forget what is in a dict or a list that something changes which is not followed."""
    if depth > _DEEPEST or not isinstance(value, DictValue | ListValue):
        return
    inside = [one.value for one in (value.cells.values() if isinstance(value, DictValue) else value.items)]
    for one in inside:
        forget_all(state, one, place, depth + 1)
    if isinstance(value, DictValue):
        merge(state, value, Unknown(Reason(Cause.RECURSION, (), place)), Reason(Cause.RECURSION, (), place))
    else:
        set_items(state, value, None, place)


def leave_open(state: ProgramState, table: DictValue, why: Reason) -> None:
    """Note that a dict may have more keys."""
    state.journal.write(table.open, "more", value=True)
    if "why" not in table.open:
        state.journal.write(table.open, "why", why)
    for name in SECTIONS:
        state.journal.erase(table.open, f"has {name}")


def why_open(table: DictValue) -> Reason:
    """Why a dict may have more keys."""
    found: Reason = table.open.get("reason") or table.open.get("why") or IS_COMPUTED
    return found


def pairs_of(found: Value) -> list[tuple[str, Entry, Entry]] | None:
    """The pairs of a list of pairs of which all keys are known, each with its key; None for anything else."""
    items = certain_items(found) if isinstance(found, ListValue) else None
    pairs: list[tuple[str, Entry, Entry]] = []
    for one in items or ():
        pair = certain_items(one.value)
        if pair is None or len(pair) != 2 or not isinstance(pair[0].value, Constant) or not isinstance(pair[0].value.value, str):
            return None
        pairs.append((pair[0].value.value, pair[0], pair[1]))
    return None if items is None else pairs


def merge(state: ProgramState, table: DictValue, other: Value, reason: Reason = _MERGED, *, place: Span | None = None) -> None:
    """Take over the keys of another dict or of pairs, as `update` and `|` do.

    `reason` is that of values that an unknown dict may replace; `place` is where it is merged.
    """
    mark_changed(state, table)
    other = whole(state, other)
    if (pairs := pairs_of(other)) is not None:
        for name, key, entry in pairs:
            span = place if place is not None and not entry.span.end else entry.span
            set_key(state, table, name, Entry(entry.value, span if not key.span.end else key.span, span, entry.literal))
        return
    if not isinstance(other, DictValue) or other.open:
        reason = reason if reason.place is not None else reason._replace(place=place)
        known = why_open(other) if isinstance(other, DictValue) else other.reason if isinstance(other, Unknown) else None
        leave_open(state, table, known if known and known.place is not None else reason)
        unknown = Unknown(reason)
        for name, entry in list(table.cells.items()):
            state.journal.write(table.cells, name, Entry(unknown, entry.key_span, entry.span, perhaps=entry.perhaps))
        if table.of is not None:
            leave_attributes_open(state, table.of, reason)
    for name, entry in list(other.cells.items()) if isinstance(other, DictValue) else ():
        set_key(state, table, name, _over(state, table.cells.get(name), entry))


def set_key(state: ProgramState, table: DictValue, name: str, entry: Entry) -> None:
    """Set a key of a dict, and with it the attribute of the object whose attributes the dict holds."""
    state.journal.write(table.cells, name, entry)
    if table.of is not None:
        state.journal.write(table.of.cells, name, COMPUTED if entry.perhaps else entry.value)


def _over(state: ProgramState, before: Entry | None, entry: Entry) -> Entry:
    """A key that replaces one, or perhaps does."""
    if before is None or not entry.perhaps:
        return entry
    return Entry(state.journal.joined(before.value, entry.value), entry.key_span, entry.span, perhaps=before.perhaps)


def deep_merge(state: ProgramState, table: DictValue, other: DictValue, depth: int = 0) -> None:
    """Take over the keys of another dict, and in dicts that both have, the keys of these."""
    _spend(state, other.cells)
    for name, entry in list(other.cells.items()):
        before = table.cells[name].value if name in table.cells else None
        if isinstance(before, DictValue) and isinstance(entry.value, DictValue) and depth < _DEEPEST:
            deep_merge(state, before, entry.value, depth + 1)
        else:
            state.journal.write(table.cells, name, _over(state, table.cells.get(name), entry))
    if other.open:
        leave_open(state, table, why_open(other))


def copied(state: ProgramState, table: DictValue, file: Cells | None = None, depth: int = 0) -> DictValue:
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
        value = copied(state, entry.value, made.file, depth + 1) if inner else copied_row(state, entry.value, depth + 1)
        made.cells[name] = Entry(value, entry.key_span, entry.span, entry.literal, entry.perhaps)
    return made


def copied_row(state: ProgramState, value: Value, depth: int = 0) -> Value:
    """A copy of a list and of what is in it; any other value as it is."""
    if not isinstance(value, ListValue) or value.changed or depth >= _DEEPEST:
        return value
    items: list[Entry] = []
    for one in value.items:
        state.steps -= 1
        inner = copied(state, one.value, depth=depth + 1) if isinstance(one.value, DictValue) else copied_row(state, one.value, depth + 1)
        items.append(Entry(inner, one.key_span, one.span, one.literal, one.perhaps))
    return ListValue(items, value.span)


def copied_flat(state: ProgramState, table: DictValue) -> DictValue:
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


def _spend(state: ProgramState, cells: Cells) -> None:
    """Count the work on a dict.

    Raises:
        Exhausted: the program is too large.
    """
    state.steps -= 1 + len(cells)
    if state.steps < 0:
        raise Exhausted


def mark_changed(state: ProgramState, table: DictValue) -> None:
    """Note that a dict is no longer what its file says."""
    if table.file is not None:
        state.journal.write(table.file, "changed", value=True)


def erase_key(state: ProgramState, table: DictValue, name: str) -> None:
    """Take a key out of a dict."""
    mark_changed(state, table)
    state.journal.erase(table.cells, name)
    if f"has {name}" in table.open:
        state.journal.write(table.open, f"has {name}", Constant(value=False))


def of_tree(state: ProgramState, node: Node, file: Cells | None = None, *, as_json: bool = True) -> Value:
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


def table_of(state: ProgramState, thing: Object, span: Span) -> DictValue:
    """The attributes of an object as a dict, as `vars` and `dataclasses.asdict` return them. They are placed at `span`."""
    _spend(state, thing.cells)
    names = dict.fromkeys([*(thing.type.fields if thing.type else ()), *thing.cells])
    found = [(name, thing.cells[name] if name in thing.cells else member(thing.type, name)) for name in names]
    made = new_table(state, span, [(name, Entry(value, span, span)) for name, value in found if value is not None])
    for entry in made.cells.values():
        if isinstance(entry.value, Object) and entry.value.type is not None and entry.value.type.dataclass:
            entry.value = table_of(state, entry.value, span)
    if thing.type is None:
        leave_open(state, made, thing.reason or Reason(Cause.COMPUTED, (), span))
    return made


def attributes_of(state: ProgramState, thing: Object, span: Span) -> DictValue:
    """The attributes of an object as the dict that holds them: `vars(args)["lr"] = 1` sets one."""
    made = table_of(state, thing, span)
    made.of = thing
    return made


GLOBALS = "globals"
"""The kind of the object whose attributes are the variables of a module."""


def leave_attributes_open(state: ProgramState, thing: Object | Class, reason: Reason) -> None:
    """Note that any attribute may get another value, as `setattr(self, key, value)` of an unknown dict gives it one.

    Those count as set for good that the command gives: what comes from a file replaces defaults.
    """
    kind = thing.type if isinstance(thing, Object) else thing
    if isinstance(thing, Object) and isinstance(thing.about, ParsedNames):
        thing.about.open = True
    inherited = [(name, value) for one in resolution(kind) for name, value in one.cells.items()] if kind else []
    given = state.flags if isinstance(thing, Object) and thing.kind != GLOBALS else {}
    state.reset |= thing.cells.keys()
    state.replaces_flags = state.replaces_flags or not given.keys().isdisjoint(thing.cells)
    for name, value in {**dict(reversed(inherited)), **thing.cells}.items():
        if isinstance(value, Constant | DictValue | ListValue) and name not in given:
            state.journal.write(thing.cells, name, state.journal.joined(value, Unknown(reason)))


def options_of(table: DictValue, reason: Reason) -> Unknown:
    """One of the values of a dict, which is chosen by a key that is not known."""
    values = tuple(entry.value for entry in table.cells.values())
    chosen = values if not table.open and len(values) <= _MOST_OPTIONS else ()
    return Unknown(
        reason,
        options=tuple(one for one in chosen if isinstance(one, DictValue) or (isinstance(one, Constant) and isinstance(one.value, str))),
        shared=True,
    )
