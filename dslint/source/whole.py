"""Translates changes to a config inside a file, or built from it, into changes to that file."""

from __future__ import annotations

import json
from collections.abc import Iterable

from dslint.source.change import Change, Move, Remove, Replace, Set
from dslint.source.edit import CannotChange
from dslint.source.tree import Document


def to_whole(document: Document, changes: Iterable[Change]) -> list[Change]:
    """The changes in the paths of the whole file.

    Raises:
        CannotChange: a target has no corresponding place in the file.
    """
    move = _moved if document.sources is None else _to_source
    return [move(document, change) for change in changes]


def title_of(change: Change) -> str:
    """A short title for setting or removing a value."""
    assert isinstance(change, Set | Remove)
    return f"write {change.path[-1]}: {json.loads(change.literal)}" if isinstance(change, Set) else f"remove {change.path[-1]}"


def _moved(document: Document, change: Change) -> Change:
    if isinstance(change, Replace):
        return change
    if isinstance(change, Move):
        return Move(document.in_file(change.path), document.in_file(change.to))
    return change._replace(path=document.in_file(change.path))


def _to_source(document: Document, change: Change) -> Change:
    """The change to the corresponding key of the file, if there is one."""
    assert document.sources is not None
    if isinstance(change, Set | Remove):
        source = document.sources.get(change.path)
        if source is not None and (isinstance(change, Set) or source.optional):
            return change._replace(path=source.path)
    raise CannotChange(f"{change} has no corresponding place in the file")
