"""Reads the outputs of a notebook: what its cells printed, and the errors that they raised."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

LARGEST = 1 << 26
"""The most bytes of a notebook that are read."""

BEGIN = re.compile(rb"\s*\{\s*\"(?:cells|metadata|nbformat(?:_minor)?)\"\s*:")


class Printed(NamedTuple):
    """What a cell printed. Cells are counted from 1; one that is running, or whose kernel died, has not `ended`."""

    number: int
    text: str
    ended: bool


def outputs(data: bytes) -> Iterator[Printed]:
    """The output of each cell that printed something; none for what is not a notebook."""
    try:
        book = json.loads(data)
    except (ValueError, RecursionError):
        return
    cells = book.get("cells") if isinstance(book, dict) else None
    for number, cell in enumerate(cells if isinstance(cells, list) else [], 1):
        found = cell.get("outputs") if isinstance(cell, dict) else None
        parts = [text for output in (found if isinstance(found, list) else []) if isinstance(output, dict) for text in _texts(output)]
        if parts:
            text = "\n".join(part.rstrip("\n") for part in parts) + "\n"
            yield Printed(number, text, isinstance(cell.get("execution_count"), int))


def _texts(output: dict[str, Any]) -> Iterator[str]:
    match output.get("output_type"):
        case "stream":
            yield _joined(output.get("text"))
        case "error":
            lines = output.get("traceback")
            yield "\n".join(line for line in lines if isinstance(line, str)) if isinstance(lines, list) else ""
        case "execute_result" | "display_data":
            data = output.get("data")
            yield _joined(data.get("text/plain")) if isinstance(data, dict) else ""


def _joined(text: Any) -> str:
    if isinstance(text, list):
        return "".join(part for part in text if isinstance(part, str))
    return text if isinstance(text, str) else ""
