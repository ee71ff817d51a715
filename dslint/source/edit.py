"""Turns changes into text edits. All other text stays as it is, including comments."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypeAlias

from dslint.source import edit_yaml
from dslint.source.change import Change, Insert, Move, Remove, Rename, Replace, Set
from dslint.source.tree import Document, Mapping, Member, Node, Path, Scalar, Sequence, Span
from dslint.source.unknown import UNKNOWN

Edit: TypeAlias = tuple[int, int, str]
"""Replace `text[start:end]` with a text."""


class CannotChange(Exception):
    """The change cannot be applied to this text: its target is missing, or has a form that cannot be edited."""


def edits_for(document: Document, changes: Iterable[Change]) -> list[Edit]:
    """The edits for the changes, sorted and without overlaps.

    Raises:
        CannotChange: a change cannot be applied, or two changes affect the same text.
    """
    changes = list(changes)
    removed = [change.path for change in changes if isinstance(change, Remove)]
    edits = sorted(
        [
            *(edit for change in changes if not isinstance(change, Remove) for edit in _edits(document, change)),
            *(edit for parent in dict.fromkeys(path[:-1] for path in removed) for edit in _remove(document, parent, removed)),
        ]
    )
    for (_, end, _), (start, _, _) in pairwise(edits):
        if start < end:
            raise CannotChange("two changes affect the same text")
    return edits


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text after the edits, which must not overlap."""
    parts: list[str] = []
    done = 0
    for start, end, content in sorted(edits):
        parts += [text[done:start], content]
        done = end
    return "".join([*parts, text[done:]])


def _edits(document: Document, change: Set | Rename | Insert | Move | Replace) -> Iterator[Edit]:
    if isinstance(change, Replace):
        yield (*change.span, change.text)
    elif isinstance(change, Set):
        node = _value(document, change.path)
        if isinstance(node, Scalar) and (node.value is UNKNOWN or node.style == "computed"):
            raise CannotChange("a computed value cannot be replaced")
        if not isinstance(node, Scalar) and edit_yaml.is_block(document, node):
            raise CannotChange("a YAML block value cannot be replaced")
        blank = " " if document.text[node.span.start - 1 : node.span.end] == ":" else ""  # YAML's null may be empty
        yield (node.span.start, node.span.end, blank + _literal(document, change.literal))
    elif isinstance(change, Rename):
        member = _member(document, change.path)
        yield (*member.key.span, _key(document, member, change.name))
    elif isinstance(change, Insert):
        yield from _insert(document, change.path, change.name, change.literal)
    else:
        value = _member(document, change.path).value
        if not isinstance(value, Scalar) and edit_yaml.is_block(document, value):
            raise CannotChange("a YAML block section cannot be moved")
        yield from _remove(document, change.path[:-1], [change.path])
        yield from _put(document, change.to[:-1], str(change.to[-1]), document.text[slice(*value.span)])


def _literal(document: Document, literal: str) -> str:
    """A JSON literal in the file's own language."""
    return repr(json.loads(literal)) if document.language == "python" else literal


def _member(document: Document, path: Path) -> Member:
    found = document.lookup(path)
    if not isinstance(found, Member):
        raise CannotChange(f"there is no key at {path}")
    _own(document, path, found)
    return found


def _value(document: Document, path: Path) -> Node:
    found = document.lookup(path)
    if found is None:
        raise CannotChange(f"there is no member at {path}")
    if isinstance(found, Member):
        _own(document, path, found)
        return found.value
    return found


def _own(document: Document, path: Path, member: Member) -> None:
    """Check that a member is written in its section: members from YAML aliases are written elsewhere, and shared."""
    for length in range(len(path) if document.language in ("yaml", "python") else 0):
        found = document.lookup(path[:length])
        section = found.value if isinstance(found, Member) else found
        inner = section.get(str(path[length])) if document.language == "python" and isinstance(section, Mapping) else None
        if inner is not None and document.text[inner.key.span.end : inner.value.span.start].strip("() \t\r\n\\") != ":":
            raise CannotChange(f"{path} is set by a statement")
        if isinstance(section, Mapping) and not edit_yaml.belongs(section, member):
            raise CannotChange(f"{path} is written elsewhere")


def _key(document: Document, member: Member, name: str) -> str:
    """A name in the style of the member's own key: quoted, unless that key is unquoted."""
    if member.key.raw[:1] in ('"', "'") or document.language == "python":
        quote = member.key.raw[-1]
        return f"{quote}{name}{quote}"
    return edit_yaml.key(name) if document.language == "yaml" else name if re.fullmatch(r"\w+", name) else json.dumps(name)


# ---------------------------------------------------------------------- removing


def _remove(document: Document, parent_path: Path, paths: Iterable[Path]) -> Iterator[Edit]:
    """The edits that remove all members or items of one section that are among the paths."""
    parent = _value(document, parent_path)
    paths = list(dict.fromkeys(path for path in paths if path[:-1] == parent_path))
    siblings: list[Member | Node]
    if isinstance(parent, Mapping):
        members = [_member(document, path) for path in paths]
        siblings = list(parent.members)
        indices = sorted(next(number for number, sibling in enumerate(siblings) if sibling is member) for member in members)
        if edit_yaml.is_block(document, parent):
            lines = [edit_yaml.line_of(document, member) for member in members]
            if len(siblings) == len(members) or any(end < 0 for _, end in lines):
                raise CannotChange("the section would be empty")
            yield from ((start, end, "") for start, end in lines)
            return
    elif isinstance(parent, Sequence) and all(isinstance(path[-1], int) and path[-1] < len(parent.items) for path in paths):
        siblings, indices = list(parent.items), sorted(int(path[-1]) for path in paths)
    else:
        raise CannotChange(f"there is no member at {paths[0]}")
    yield from remove_at(document, siblings, indices)


def remove_at(document: Document, siblings: list[Member] | list[Member | Node], indices: list[int]) -> Iterator[Edit]:
    """The edits that remove members or items of a section, with their commas. `indices` are in rising order."""
    spans: list[Span] = []
    for first, last in _runs(document, siblings, indices):
        comma = _comma_behind(document, siblings[last].span)
        end = comma + 1 if comma is not None else siblings[last].span.end
        spans.append(Span(*_with_its_line(document.text, siblings[first].span.start, end, alone=len(siblings) == len(indices))))
    kept = len(siblings) - 1
    while kept in indices:
        kept -= 1
    if 0 <= kept < len(siblings) - 1 and comma is None:  # the end goes: also remove the comma before it
        before = _comma_after(document, siblings[kept].span.end)
        if before is not None:
            spans.append(Span(before, before + 1))
    yield from ((start, end, "") for start, end in _united(spans))


def _runs(document: Document, siblings: list[Member] | list[Member | Node], indices: list[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of those removed ones that are removed as one text: neighbours with only blanks and a comma between them."""
    first = last = indices[0]
    for index in indices[1:]:
        _comma_behind(document, siblings[last].span)  # raises for a part of an expression
        between = document.text[siblings[last].span.end : siblings[index].span.start]
        if index == last + 1 and between.strip() in ("", ","):
            last = index
        else:
            yield first, last
            first = last = index
    yield first, last


def _comma_behind(document: Document, span: Span) -> int | None:
    """The offset of the comma after a member or item; None if there is none. In Python it must not be part of an expression."""
    comma = _comma_after(document, span.end)
    if document.language == "python":
        before, after = document.text[: span.start].rstrip(), document.text[span.end :].lstrip()
        if before.endswith(("(", "\\")) or (comma is None and not after.startswith(("}", "]", ")", "#"))):
            raise CannotChange("it is part of an expression")
    return comma


def _comma_after(document: Document, offset: int) -> int | None:
    """The offset of the next comma, with only blanks and comments before it; None if there is none."""
    text, comments = document.text, document.comments
    number = bisect_left(comments, offset, key=lambda comment: comment.span.start)
    while offset < len(text):
        if number < len(comments) and comments[number].span.start == offset:
            offset, number = comments[number].span.end, number + 1
        elif text[offset].isspace():
            offset += 1
        else:
            return offset if text[offset] == "," else None
    return None


def without(document: Document, span: Span) -> Replace:
    """The change that removes a range, with its whole lines if they contain nothing else."""
    return Replace(Span(*_with_its_line(document.text, *span, alone=False)), "")


def _with_its_line(text: str, start: int, end: int, *, alone: bool) -> tuple[int, int]:
    """The range, extended to whole lines if they contain nothing else, otherwise by the blanks after it (or before it)."""
    line = start
    while line > 0 and text[line - 1] in " \t":
        line -= 1
    after = end
    while after < len(text) and text[after] in " \t":
        after += 1
    begins = line == 0 or text[line - 1] in "\r\n"
    ends = after == len(text) or text[after] in "\r\n"
    if begins and ends and after < len(text):
        return line, after + (2 if text.startswith("\r\n", after) else 1)
    if begins or (alone and not ends):
        return start, after
    return (line, end) if ends or text[after] in "}]" else (start, after)


# ---------------------------------------------------------------------- inserting


def _insert(document: Document, path: Path, name: str, literal: str) -> Iterator[Edit]:
    yield from _put(document, path, name, _literal(document, literal))


def _put(document: Document, path: Path, name: str, literal: str) -> Iterator[Edit]:
    """Insert a member with a value in the file's own language."""
    section = document.lookup(path)
    if section is None and path:
        yield from _put(document, path[:-1], str(path[-1]), f"{{{json.dumps(name)}: {literal}}}")
        return
    if isinstance(section, Member):
        _own(document, path, section)
    node = section.value if isinstance(section, Member) else section
    if not isinstance(node, Mapping):
        raise CannotChange(f"{path} is not a section")
    if node.get(name) is not None:
        raise CannotChange(f"{name} already exists")
    if node.members and edit_yaml.is_block(document, node):
        if not edit_yaml.belongs(node, node.members[0]):
            raise CannotChange(f"{path} is written elsewhere")
        yield from edit_yaml.insert(document, node, name, literal)
        return
    braces = document.text[node.span.start : node.span.start + 1] == "{"
    _check_literal(document, node)
    key = json.dumps(name)
    if not node.members:
        if not braces:
            raise CannotChange("the file is empty")
        yield (node.span.start + 1, node.span.start + 1, f"{key}: {literal}")
        return
    last = node.members[-1]
    text = document.text
    own_line = _line_blank_before(text, last.span.start)
    newline = "\r\n" if "\r\n" in text else "\n"
    break_ = newline + text[own_line : last.span.start] if own_line is not None else " "
    if _is_bare(last.value) or not braces:
        if own_line is None:
            raise CannotChange("the line is an unquoted string")
        yield (last.span.end, last.span.end, f"{break_}{_key(document, last, name)}: {literal}")
        return
    comma = _comma_behind(document, last.span)
    if comma is not None:  # a trailing comma: the new member gets one too
        yield (comma + 1, comma + 1, f"{break_}{key}: {literal},")
    else:
        yield (last.span.end, last.span.end, f",{break_}{key}: {literal}")


def _check_literal(document: Document, node: Mapping) -> None:
    """Take care that a dict of a program is a literal that holds all its members."""
    braces = document.text[node.span.start : node.span.start + 1] == "{"
    if document.language == "python" and not (braces and all(edit_yaml.belongs(node, member) for member in node.members)):
        raise CannotChange("the dict is built by statements")


def _is_bare(node: Node) -> bool:
    return isinstance(node, Scalar) and node.style == "bare" and isinstance(node.value, str)


def _line_blank_before(text: str, offset: int) -> int | None:
    """The start of the line of an offset, if only blanks precede it."""
    start = offset
    while start > 0 and text[start - 1] in " \t":
        start -= 1
    return start if start == 0 or text[start - 1] in "\r\n" else None


# ---------------------------------------------------------------------- strict JSON


def to_strict_json(document: Document, *, comments: bool) -> list[Change]:
    """The changes after which Python's `json` reads the file as hjson does; with `comments`, comments are removed too.

    Raises:
        CannotChange: the file has syntax errors or is empty.
    """
    root = document.root
    if document.problems or root is None:
        raise CannotChange("the file has syntax errors")
    changes: list[Change] = list(_strict(document, root))
    for departure in document.departures:
        if departure.kind == "trailing-comma":
            changes.append(Replace(departure.span, ""))
        elif departure.kind == "missing-comma":
            changes.append(Replace(Span(departure.span.start, departure.span.start), ","))
        elif departure.kind == "bom":
            changes.append(Replace(departure.span, ""))
    if isinstance(root, Mapping) and document.text[root.span.start : root.span.start + 1] != "{":
        changes += [Replace(Span(0, 0), "{\n"), Replace(Span(len(document.text), len(document.text)), "\n}\n")]
    if comments:
        changes += [Replace(span, "") for span in _united(without(document, comment.span).span for comment in document.comments)]
    return changes


def _united(spans: Iterable[Span]) -> list[Span]:
    """The ranges, with overlapping ones merged."""
    united: list[Span] = []
    for span in sorted(spans):
        if united and span.start < united[-1].end:
            united[-1] = Span(united[-1].start, max(span.end, united[-1].end))
        else:
            united.append(span)
    return united


def _strict(document: Document, node: Node) -> Iterator[Change]:
    if isinstance(node, Mapping):
        for member in node.members:
            if not member.key.raw.startswith('"'):
                yield Replace(member.key.span, json.dumps(member.key.value, ensure_ascii=False))
            yield from _strict(document, member.value)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _strict(document, item)
    elif node.style != "json" or not _is_strict(node.raw):
        yield Replace(node.span, json.dumps(node.value, ensure_ascii=False))


def _is_strict(raw: str) -> bool:
    try:
        json.loads(raw, parse_constant=int)
    except ValueError:
        return False
    return True
