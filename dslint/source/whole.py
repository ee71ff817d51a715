"""Changes to a config that is a part of a file, or was made of it, as changes to that file."""

from __future__ import annotations

import json
from collections.abc import Iterable

from dslint.source.change import Change, Move, Remove, Replace, Set
from dslint.source.edit import CannotChange
from dslint.source.tree import Document


def to_whole(document: Document, changes: Iterable[Change]) -> list[Change]:
    """The changes in the paths of the whole file.

    Raises:
        CannotChange: what they speak of has no place of its own in the file.
    """
    move = _moved if document.sources is None else _to_source
    return [move(document, change) for change in changes]


def title_of(change: Change) -> str:
    """A change of a value, or to nothing, in a few words."""
    return f"write {change.path[-1]}: {json.loads(change.literal)}" if isinstance(change, Set) else f"remove {change[0][-1]}"


def _moved(document: Document, change: Change) -> Change:
    if isinstance(change, Replace):
        return change
    if isinstance(change, Move):
        return Move(document.in_file(change.path), document.in_file(change.to))
    return change._replace(path=document.in_file(change.path))


def _to_source(document: Document, change: Change) -> Change:
    """A change to what was made of a file, where the file has a key that stands for just this."""
    assert document.sources is not None
    if isinstance(change, Set | Remove):
        source = document.sources.get(change.path)
        if source is not None and (isinstance(change, Set) or source.optional):
            return change._replace(path=source.path)
    raise CannotChange(f"{change} has no place of its own in the file")
