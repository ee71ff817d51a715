"""Edits of YAML block style, which uses lines and indentation instead of commas and braces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TypeAlias

from dslint.source.tree import Document, Mapping, Member, Sequence

Edit: TypeAlias = tuple[int, int, str]

_PLAIN = re.compile(r"[A-Za-z_]\w*")
_WORDS = frozenset("y n yes no on off true false null".split())  # noqa: SIM905 - a list of words
"""Words that YAML does not read as strings."""


def is_block(document: Document, node: Mapping | Sequence) -> bool:
    """Whether a section or a list is written by indentation, not in brackets."""
    return document.language == "yaml" and document.text[node.span.start : node.span.start + 1] not in ("{", "[")


def belongs(mapping: Mapping, member: Member) -> bool:
    """Whether a member is written in the section itself, not included by an alias or a merge key."""
    return mapping.span.start <= member.key.span.start and member.value.span.end <= max(mapping.span.end, member.key.span.end + 2)


def key(name: str) -> str:
    """A key in YAML: quoted only if YAML would read it as another type."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in _WORDS else json.dumps(name)


def insert(document: Document, mapping: Mapping, name: str, literal: str) -> Iterator[Edit]:
    """Insert a new member after the last one, on its own line with the same indentation. The section is not empty."""
    text = document.text
    first = mapping.members[0]
    last = max(mapping.members, key=lambda member: member.key.span.start)
    begin = max(text.rfind("\n", 0, first.key.span.start), text.rfind("\r", 0, first.key.span.start)) + 1
    indent = " " * (first.key.span.start - begin)  # the dash of a list item counts as a blank
    end = max(last.key.span.end + 1, len(text[: last.value.span.end].rstrip()))
    while end < len(text) and text[end] not in "\r\n":
        end += 1
    newline = "\r\n" if "\r\n" in text else "\n"
    yield (end, end, f"{newline}{indent}{key(name)}: {literal}")


def line_of(document: Document, member: Member) -> tuple[int, int]:
    """The range of a member: its lines, with or without indentation and trailing comment."""
    text = document.text
    start = member.key.span.start
    end = max(member.key.span.end, len(text[: member.value.span.end].rstrip()))
    if text[member.key.span.end : end + 1].strip() == ":" or end == member.key.span.end:
        end = text.find(":", member.key.span.end) + 1  # there is no value
        if not end:
            return start, -1  # and no colon: `? key`
    line = start
    while line > 0 and text[line - 1] in " \t":
        line -= 1
    after = end
    while after < len(text) and text[after] in " \t":
        after += 1
    if line > 0 and text[line - 1] not in "\r\n":
        return start, -1  # the first key of a list item: its dash would remain
    if after < len(text) and text[after] in "\r\n":
        return line, after + (2 if text.startswith("\r\n", after) else 1)
    return (line, after) if after == len(text) else (start, after)
