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
    counts = [_rows(name, data.path) for name in data.value] if data is not None else []
    return replace(arguments, rows=sum(one for one in counts if one is not None)) if counts and None not in counts else arguments


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
