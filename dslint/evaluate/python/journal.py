"""The memory of a followed program: writes can be undone, so that both branches of a condition start alike and then join."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import (
    NONE,
    Cells,
    Constant,
    DictValue,
    Entry,
    Library,
    ListValue,
    Object,
    Unknown,
    Value,
    member,
    path_of,
    same,
)
from dslint.job.events import MODELS
from dslint.source.tree import Span

_ABSENT: Final = object()

Changes: TypeAlias = dict[tuple[int, str], tuple[Cells, str, Any]]

CONDITION: Final = Reason(Cause.CONDITION)

_DEEPEST = 20
"""How deep two values are joined. Those of 12 public repositories, axolotl, LLaMA-Factory and TRL are joined 1 deep; an object can have
itself as an attribute."""

_MOST_OPTIONS = 8
"""How many dicts and paths a value is one of. Of 9,049 joined values in the same projects 51 have more, up to 13. Without a limit
conditions after each other would double them."""


class Journal:
    """Every write to `Cells`, in order."""

    def __init__(self) -> None:
        self._log: list[tuple[Cells, str, Any]] = []
        self._age = 0
        self.since = 0
        """How old the journal was when the branches began."""
        self.condition = CONDITION
        """The reason for a value between two branches, with the place of their condition."""

    def cells(self, *, optional: bool = False) -> Cells:
        """New cells."""
        self._age += 1
        return Cells(self._age, optional=optional)

    def write(self, cells: Cells, name: str, value: Any) -> None:
        """Set a cell."""
        self._log.append((cells, name, cells.get(name, _ABSENT)))
        cells[name] = value

    def erase(self, cells: Cells, name: str) -> None:
        """Delete a cell, if it is there."""
        if name in cells:
            self._log.append((cells, name, cells.pop(name)))

    @property
    def mark(self) -> tuple[int, int]:
        """A point to return to."""
        return len(self._log), self._age

    def undo(self, mark: tuple[int, int]) -> Changes:
        """Undo the writes since a mark, except those to cells made since. Returns the values that the writes left."""
        length, age = mark
        changes: Changes = {}
        for cells, name, before in reversed(self._log[length:]):
            if cells.born > age:
                continue
            changes.setdefault((id(cells), name), (cells, name, cells.get(name, _ABSENT)))
            if before is _ABSENT:
                cells.pop(name, None)
            else:
                cells[name] = before
        del self._log[length:]
        return changes

    def redo(self, changes: Changes) -> None:
        """Make changes that were undone."""
        for cells, name, value in changes.values():
            if value is _ABSENT:
                self.erase(cells, name)
            else:
                self.write(cells, name, value)

    def adopt(self, changes: Changes, scope: Cells, decides: Span | None) -> None:
        """Keep values that only the branch sets which was followed and undone: names of the scope that the other branch leaves unset, and
        configs where it leaves None. A key of a dict stays absent. `decides` is a condition on a flag that nothing gives.
        """
        for cells, name, value in changes.values():
            now = cells.get(name, _ABSENT)
            if value is _ABSENT or cells.optional:
                continue
            if now is _ABSENT and cells is scope:
                self.write(cells, name, value)
            elif now == NONE and isinstance(value, DictValue | Unknown | Constant) and _is_config(value):
                joined = self.joined(value, NONE)
                self.write(cells, name, _by_flag(joined, decides) if decides is not None else joined)

    def join(self, one: Changes, other: Changes) -> None:
        """Make the changes of two branches: a cell that differs between them is unknown."""
        for key in {**one, **other}:
            cells, name, _ = one.get(key) or other[key]
            now = cells.get(name, _ABSENT)
            left = one[key][2] if key in one else now
            right = other[key][2] if key in other else now
            if left is _ABSENT and right is _ABSENT:
                self.erase(cells, name)
            elif left is _ABSENT or right is _ABSENT:
                there = right if left is _ABSENT else left
                self.write(cells, name, _perhaps(there, self.condition) if cells.optional else there)
            else:
                self.write(cells, name, self._joined(left, right))
                if name == "items" and cells[name] is None:
                    self.write(cells, "reason", self.condition)

    def _joined(self, left: Any, right: Any) -> Any:
        if isinstance(left, Entry) and isinstance(right, Entry):
            value = self.joined(left.value, right.value)
            return Entry(value, left.key_span, left.span, left.literal and value is left.value, left.perhaps or right.perhaps)
        if isinstance(left, list) or left is None:  # the items of a list
            if left is None or not isinstance(right, list) or len(left) != len(right):
                return None
            return [self._joined(*pair) for pair in zip(left, right, strict=True)]
        return left if isinstance(left, bool | Reason) else self.joined(left, right)

    def joined(self, left: Value, right: Value, depth: int = 0) -> Value:
        """The value that is one of two."""
        if same(left, right):
            return left
        if isinstance(left, DictValue) and isinstance(right, DictValue) and _is_same_display(left, right) and depth < _DEEPEST:
            return self.flattened((left, right), depth)
        left, right = self._alike(left, right), self._alike(right, left)
        if isinstance(left, Object) and isinstance(right, Object) and left.kind == right.kind and left.type is right.type:
            return self._joined_objects(left, right, depth)
        if isinstance(left, ListValue) and isinstance(right, ListValue) and left.pairs_with(right) and depth < _DEEPEST:
            values = [self.joined(one.value, other.value, depth + 1) for one, other in zip(left.items, right.items, strict=True)]
            pairs = zip(left.items, values, strict=True)
            return ListValue([Entry(value, one.key_span, one.span, one.literal and value is one.value) for one, value in pairs], left.span)
        known = left if isinstance(left, Unknown) and left.reason else right
        reason = known.reason if isinstance(known, Unknown) else self.condition
        options = (*_options(left), *_options(right))
        closed = _is_closed(left) and _is_closed(right) and len(options) <= _MOST_OPTIONS
        older = any(isinstance(one, DictValue) and one.cells.born <= self.since for one in options)
        shared = older or any(isinstance(one, Unknown) and one.shared for one in (left, right))
        first = _representative(left, right)
        return Unknown(
            reason,
            first.made if first is not None else "",
            first.span if first is not None else None,
            options=options,
            closed=closed,
            or_none=_can_be_none(left) or _can_be_none(right),
            shared=shared,
            functions=_union(_functions(left), _functions(right)),
            makers=_union(_makers(left), _makers(right)),
            others=first.others if first is not None else (),
            turn=first.turn if first is not None else 0,
        )

    def flattened(self, tables: Sequence[DictValue], depth: int = 0) -> DictValue:
        """One dict for several of which a value is one: what they have in common is known."""
        made = DictValue(self.cells(optional=True), tables[0].span)
        for name in dict.fromkeys(name for one in tables for name in one.cells):
            entries = [one.cells[name] for one in tables if name in one.cells]
            value = entries[0].value
            for one in entries[1:]:
                value = self.joined(value, one.value, depth + 1)
            first, perhaps = entries[0], any(one.perhaps for one in entries)
            entry = Entry(value, first.key_span, first.span, first.literal and value is first.value, perhaps)
            made.cells[name] = entry if len(entries) == len(tables) else _perhaps(entry, self.condition)
        for table in tables:
            made.open.update(table.open)
        return made

    def _alike(self, value: Value, other: Value) -> Value:
        """A value that is not known, as the object with unknown attributes that the other one is."""
        if isinstance(value, Unknown) and isinstance(other, Object) and other.kind == "unknown" and _is_same(other.reason, value.reason):
            return Object(other.kind, self.cells(), reason=other.reason)
        return value

    def _joined_objects(self, left: Object, right: Object, depth: int) -> Object:
        """An object that is one of two. An attribute that only one of them has is inherited in the other, not known, or missing."""
        made = Object(left.kind, self.cells(), left.type, left.about, left.reason)
        for name in dict.fromkeys([*left.cells, *right.cells]):
            inherited = member(left.type, name) or Unknown(left.reason or self.condition)
            one, other = left.cells.get(name, inherited), right.cells.get(name, inherited)
            made.cells[name] = self.joined(one, other, depth + 1) if depth < _DEEPEST else Unknown(self.condition)
        return made


_MODEL = re.compile(MODELS)


def _is_alike(one: str, other: str) -> bool:
    """Whether two things are of one kind: one function made them, or both are models of libraries."""
    return bool(one) and (one == other or (_MODEL.fullmatch(one) is not None and _MODEL.fullmatch(other) is not None))


def _representative(left: Value, right: Value) -> Unknown | None:
    """What stands for one of two values of one kind: the first, which names the others. None for any other two."""
    if not isinstance(left, Unknown) or not isinstance(right, Unknown) or not _is_alike(left.made, right.made):
        return None
    if (left.span, left.turn) == (right.span, right.turn):
        return replace(left, others=tuple(dict.fromkeys((*left.others, *right.others))))
    others = tuple(dict.fromkeys((*left.others, replace(right, others=()), *right.others)))
    return replace(left, others=others) if len(others) < _MOST_OPTIONS else None


def _options(value: Value) -> tuple[Value, ...]:
    """The dicts and paths that a value can be; at most `_MOST_OPTIONS`."""
    if isinstance(value, DictValue) or path_of(value) is not None:
        return (value,)
    return value.options[:_MOST_OPTIONS] if isinstance(value, Unknown) else ()


def _functions(value: Value) -> tuple[str, ...]:
    """The functions and classes of libraries of which a value is one."""
    if isinstance(value, Library):
        return (value.name,)
    return value.functions if isinstance(value, Unknown) else ()


def _makers(value: Value) -> tuple[str, ...]:
    """The functions and classes of libraries of which one made a value."""
    if not isinstance(value, Unknown):
        return ()
    return (value.made,) if value.made else value.makers


def _union(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...]:
    """The names for a value that is one of two; "" for one without names. At most `_MOST_OPTIONS`."""
    if not left and not right:
        return ()
    names = tuple(dict.fromkeys((*(left or ("",)), *(right or ("",)))))
    return names if len(names) <= _MOST_OPTIONS else (*names[: _MOST_OPTIONS - 1], "")


def _by_flag(value: Value, decides: Span) -> Value:
    """A value that is None unless a flag is given: that says more than that a condition decides it."""
    if not isinstance(value, Unknown) or (value.reason is not None and value.reason.cause is not Cause.CONDITION):
        return value
    return replace(value, reason=Reason(Cause.DEFAULT, (), decides))


def _is_config(value: Value) -> bool:
    """Whether a value may be a config: a dict, a path, or one that is not known."""
    return isinstance(value, DictValue | Unknown) or (isinstance(value, Constant) and isinstance(value.value, str))


def _is_same(one: Reason | None, other: Reason | None) -> bool:
    """Whether two reasons say the same, wherever the program met them."""
    return (one and one._replace(place=None)) == (other and other._replace(place=None))


def _is_same_display(left: DictValue, right: DictValue) -> bool:
    """Whether two dicts are what one place of the program makes, under different conditions."""
    return bool(left.span == right.span and _is_same(left.open.get("reason"), right.open.get("reason")))


def _is_closed(value: Value) -> bool:
    """Whether the options of a value are all that it can be, besides None."""
    if isinstance(value, Unknown):
        return value.closed or value.path is not None
    return isinstance(value, DictValue) or (isinstance(value, Constant) and (value.value is None or isinstance(value.value, str)))


def _can_be_none(value: Value) -> bool:
    return value.or_none if isinstance(value, Unknown) else isinstance(value, Constant) and value.value is None


def _perhaps(entry: Any, reason: Reason) -> Any:
    """A key that may be absent: its value is not known."""
    known: Value = entry.value if isinstance(entry, Entry) else entry
    value = Unknown(reason, options=_options(known), closed=_is_closed(known), or_none=_can_be_none(known))
    return Entry(value, entry.key_span, entry.span, perhaps=True) if isinstance(entry, Entry) else value
