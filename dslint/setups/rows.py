"""Counts the rows of data that a training file names, if they are in small JSON files of the project."""

from __future__ import annotations

import json
from dataclasses import replace

from dslint.evaluate.files import find
from dslint.evaluate.python.data_files import rows_of
from dslint.evaluate.python.files import text_of
from dslint.job.arguments import Arguments, SourcedValue


def with_rows(arguments: Arguments, given: SourcedValue | None = None) -> Arguments:
    """Arguments with the number of rows of their data, if all of it is found. `given` is what the program gives to its trainer."""
    data = arguments.data
    if given is not None and isinstance(given.value, int):
        return replace(arguments, data=given, rows=given.value)
    if data is None or arguments.rows is not None:
        return arguments
    counts = [rows_of(one, data.path) if isinstance(one, str) else _listed(one, data.path) for one in data.value]
    known = [one for one in counts if one is not None]
    return replace(arguments, rows=sum(known)) if known and len(known) == len(counts) else arguments


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
    return rows_of(file, linked.path) if linked is not None and isinstance(file, str) else None


_WHOLE = frozenset({"file_name", "formatting", "ranking", "columns", "tags"})
"""The keys of an entry whose file is read whole."""
