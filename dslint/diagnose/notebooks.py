"""Reads the outputs of a notebook: what its cells printed, and the errors that they raised."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

LARGEST = 1 << 26
"""The most bytes of a notebook that are read."""

BEGIN = re.compile(rb"\s*\{\s*\"(?:cells|metadata|nbformat(?:_minor)?)\"\s*:")


def outputs(data: bytes) -> Iterator[tuple[int, str]]:
    """The number and the output of each cell that printed something, cells counted from 1; none for what is not a notebook."""
    try:
        book = json.loads(data)
    except (ValueError, RecursionError):
        return
    cells = book.get("cells") if isinstance(book, dict) else None
    for number, cell in enumerate(cells if isinstance(cells, list) else [], 1):
        found = cell.get("outputs") if isinstance(cell, dict) else None
        parts = [text for output in (found if isinstance(found, list) else []) if isinstance(output, dict) for text in _texts(output)]
        if parts:
            yield number, "\n".join(part.rstrip("\n") for part in parts) + "\n"


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
