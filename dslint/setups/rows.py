"""Counts the rows of data that a training file names, if they are in small JSON files of the project."""

from __future__ import annotations

import json
from dataclasses import replace

from dslint.evaluate.files import find
from dslint.evaluate.python.files import text_of
from dslint.job.arguments import Arguments

LARGEST = 4 << 20
"""The bytes of a file that is counted. What matters of a number of rows is whether they make few steps."""


def with_rows(arguments: Arguments) -> Arguments:
    """Arguments with the number of rows of their data, if all of it is found."""
    data = arguments.data
    counts = [_rows(one, data.path) if isinstance(one, str) else _listed(one, data.path) for one in data.value] if data is not None else []
    return replace(arguments, rows=sum(one for one in counts if one is not None)) if counts and None not in counts else arguments


def _listed(listed: tuple[str, str], named_in: str) -> int | None:
    """The rows of data that a list of data has under a name, with its file beside the list.

    Source: llamafactory/data/parser.py, get_dataset_list.
    """
    index, name = listed
    linked = find(index, named_in)
    try:
        entry = json.loads(text_of(linked.path) or "") if linked is not None else None
    except ValueError:
        return None
    entry = entry.get(name) if isinstance(entry, dict) else None
    file = entry.get("file_name") if isinstance(entry, dict) and entry.keys() <= _WHOLE else None
    return _rows(file, linked.path) if linked is not None and isinstance(file, str) else None


_WHOLE = frozenset({"file_name", "formatting", "ranking", "columns", "tags"})
"""The keys of an entry whose file is read whole."""


def _rows(name: str, named_in: str) -> int | None:
    """The rows of a file: the items of a list, or the lines that are not empty."""
    linked = find(name, named_in)
    text = text_of(linked.path) if linked is not None else None
    if text is None or len(text) > LARGEST:
        return None
    if text.lstrip()[:1] != "[":
        return sum(bool(line.strip()) for line in text.splitlines())
    try:
        return len(json.loads(text))
    except ValueError:
        return None
