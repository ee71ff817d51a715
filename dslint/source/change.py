"""Changes to a config, in config paths. `dslint.source.edit` turns them into text edits.

Set(("fp16", "enabled"), "true")             another value
Rename(("zero_optimisation",), "zero_optimization")
Remove(("zero_optimization", "offload_param"))
Insert(("zero_optimization",), "stage", "2") a new member at the end of its section; missing sections are created
Move(("overlap_comm",), ("zero_optimization", "overlap_comm"))
Replace(span, "text")                        any range of the text
"""

from __future__ import annotations

from typing import TypeAlias

from dslint.record import Record
from dslint.source.tree import Path, Span


class Set(Record):
    """Change the value at a path; `literal` is JSON."""

    path: Path
    literal: str


class Rename(Record):
    """Rename the key at a path."""

    path: Path
    name: str


class Remove(Record):
    """Remove the member or item at a path, with its comma."""

    path: Path


class Insert(Record):
    """Add a member `name` to the section at a path; `literal` is JSON."""

    path: Path
    name: str
    literal: str


class Move(Record):
    """Move the member at a path to another path, with its value as written."""

    path: Path
    to: Path


class Replace(Record):
    """Replace a range of the text."""

    span: Span
    text: str


Change: TypeAlias = Set | Rename | Remove | Insert | Move | Replace
