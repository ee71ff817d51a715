"""Changes to a config, said in paths. `dslint.source.edit` makes edits of them.

Set(("fp16", "enabled"), "true")             another value
Rename(("zero_optimisation",), "zero_optimization")
Remove(("zero_optimization", "offload_param"))
Insert(("zero_optimization",), "stage", "2") a new member, the last of its section; sections that are not there come with it
Move(("overlap_comm",), ("zero_optimization", "overlap_comm"))
Replace(span, "text")                        any stretch of the text
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from dslint.source.tree import Path, Span


class Set(NamedTuple):
    """Another value at a path: `literal` is JSON."""

    path: Path
    literal: str


class Rename(NamedTuple):
    """Another name for the key at a path."""

    path: Path
    name: str


class Remove(NamedTuple):
    """The member or item at a path goes, and its comma with it."""

    path: Path


class Insert(NamedTuple):
    """A new member `name` in the section at a path: `literal` is JSON."""

    path: Path
    name: str
    literal: str


class Move(NamedTuple):
    """The member at a path goes to another, with its value as it is written."""

    path: Path
    to: Path


class Replace(NamedTuple):
    """Another text for a stretch of the file."""

    span: Span
    text: str


Change: TypeAlias = Set | Rename | Remove | Insert | Move | Replace
