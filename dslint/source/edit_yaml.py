"""Edits of YAML's block style, where lines and their indentation are what commas and braces are elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TypeAlias

from dslint.source.tree import Document, Mapping, Member, Sequence

Edit: TypeAlias = tuple[int, int, str]

_PLAIN = re.compile(r"[A-Za-z_]\w*")
_WORDS = frozenset("y n yes no on off true false null".split())  # noqa: SIM905 - a list of words
"""What YAML takes for something else than a name."""


def is_block(document: Document, node: Mapping | Sequence) -> bool:
    """Whether a section or a list is written by indentation, not in brackets."""
    return document.language == "yaml" and document.text[node.span.start : node.span.start + 1] not in ("{", "[")


def belongs(mapping: Mapping, member: Member) -> bool:
    """Whether a member is written in the section itself, and not brought by an alias or a merge key."""
    return mapping.span.start <= member.key.span.start and member.value.span.end <= max(mapping.span.end, member.key.span.end + 2)


def key(name: str) -> str:
    """A name as YAML needs it: in quotes only where it would be taken for something else."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in _WORDS else json.dumps(name)


def insert(document: Document, mapping: Mapping, name: str, literal: str) -> Iterator[Edit]:
    """A new member behind the last one, on a line of its own and indented alike. The section has a member."""
    text = document.text
    first = mapping.members[0]
    last = max(mapping.members, key=lambda member: member.key.span.start)
    begin = max(text.rfind("\n", 0, first.key.span.start), text.rfind("\r", 0, first.key.span.start)) + 1
    indent = " " * (first.key.span.start - begin)  # of an item of a list, the dash counts as a blank
    end = max(last.key.span.end + 1, len(text[: last.value.span.end].rstrip()))
    while end < len(text) and text[end] not in "\r\n":
        end += 1
    newline = "\r\n" if "\r\n" in text else "\n"
    yield (end, end, f"{newline}{indent}{key(name)}: {literal}")


def line_of(document: Document, member: Member) -> tuple[int, int]:
    """The stretch of a member: all of its lines, or all but its indentation and what a comment says behind it."""
    text = document.text
    start = member.key.span.start
    end = max(member.key.span.end, len(text[: member.value.span.end].rstrip()))
    if text[member.key.span.end : end + 1].strip() == ":" or end == member.key.span.end:
        end = text.index(":", member.key.span.end) + 1  # there is no value
    line = start
    while line > 0 and text[line - 1] in " \t":
        line -= 1
    after = end
    while after < len(text) and text[after] in " \t":
        after += 1
    if line > 0 and text[line - 1] not in "\r\n":
        return start, -1  # the first of an item of a list: its dash would stay behind
    if after < len(text) and text[after] in "\r\n":
        return line, after + (2 if text.startswith("\r\n", after) else 1)
    return (line, after) if after == len(text) else (start, after)
