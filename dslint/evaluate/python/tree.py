"""The tree of a config that a program builds, each value with its place in the program."""

from __future__ import annotations

from dslint.evaluate.placeholders import is_placeholder
from dslint.evaluate.python.journal import Journal
from dslint.evaluate.python.sources import Sources
from dslint.evaluate.values import Constant, DictValue, Entry, ListValue, Value, tables_of
from dslint.source.tree import ConditionalMember, Key, Mapping, Member, Node, Scalar, Sequence, Span
from dslint.source.unknown import UNKNOWN

_MOST_NODES = 20_000
"""The most nodes of the configs of a program. Those of 12 public repositories, axolotl, LLaMA-Factory and TRL have up to 26; a program
can make any number."""

_DEEPEST = 40
"""How deep a config is. DeepSpeed's keys are at most 8 deep; a dict can have itself in it."""


class TreeMaker:
    """Makes trees; `COMPUTED` is the style of a scalar that is not written as a literal at its place."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.left = _MOST_NODES

    def config(self, table: DictValue) -> Mapping:
        """The tree of a dict as it is now."""
        return self._mapping(table, 0)

    def _mapping(self, table: DictValue, depth: int) -> Mapping:
        members = [self._member(name, entry, depth) for name, entry in table.cells.items()]
        return Mapping(table.span, members, may_have_more=bool(table.open))

    def _member(self, name: str, entry: Entry, depth: int) -> Member:
        kind = ConditionalMember if entry.perhaps else Member
        return kind(self._key(name, entry), self._node(entry, depth))

    def _key(self, name: str, entry: Entry) -> Key:
        source = self.sources.at(entry.key_span.start)
        return Key(entry.key_span, name, source.written(entry.key_span))

    def _node(self, entry: Entry, depth: int) -> Node:
        value = entry.value
        self.left -= 1
        if self.left > 0 and depth < _DEEPEST:
            tables = tables_of(value) if not entry.perhaps else ()
            if tables:
                return self._mapping(tables[0] if len(tables) == 1 else Journal().flattened(tables), depth + 1)
            if isinstance(value, ListValue) and not value.changed:
                return Sequence(self._around(entry.span), [self._node(item, depth + 1) for item in value.items])
        return self._scalar(value, entry.span, literal=entry.literal)

    def _scalar(self, value: Value, span: Span, *, literal: bool) -> Scalar:
        written = self.sources.at(span.start).written(span)
        if isinstance(value, Constant) and not is_placeholder(value.value):
            raw = written if literal else repr(value.value)
            return Scalar(self._around(span), value.value, raw, "yaml" if literal else "computed")
        return Scalar(self._around(span), UNKNOWN, written, "computed")

    def _around(self, span: Span) -> Span:
        """The span of a value, with the parentheses around it."""
        source = self.sources.at(span.start)
        text = source.text
        start, end = span.start - source.base, span.end - source.base
        while text[end : end + 200].lstrip().startswith(")"):
            before, after = text[max(0, start - 200) : start].rstrip(), text[end : end + 200].lstrip()
            if not before.endswith("(") or before[:-1].rstrip()[-1:] not in ("", ":", ",", "[", "(", "="):
                break
            start, end = max(0, start - 200) + len(before) - 1, end + (200 if len(text) >= end + 200 else len(text) - end) - len(after) + 1
        return Span(start + source.base, end + source.base)
