"""The cells of notebooks: what in them is Python, what a shell runs, and the files that they write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

DATABRICKS = "# Databricks notebook source"
_CELL = "# COMMAND ----------"

_SHELLS = re.compile(r"%%(?:bash|sh|shell|script\s+(?:bash|sh))\b")
_WRITEFILE = re.compile(r"%%(?:writefile|file)\s+(?:-a\s+)?(\S+)[^\n]*\n")


_FENCE = re.compile(r"^```(?:bash|sh|shell)[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""A block of shell commands in Markdown."""


class Cell(NamedTuple):
    """A cell with code, or with prose that shows shell commands: its name in messages, and its text."""

    name: str
    text: str
    is_code: bool = True


class ShellText(NamedTuple):
    """A part of a cell, from one offset to another, that a shell runs, or that is written to the file `name`."""

    start: int
    end: int
    name: str | None = None


def cells_of(text: str) -> list[Cell] | None:
    """The code cells of a notebook in Jupyter's or Databricks' format; None for any other text."""
    if text.startswith(DATABRICKS):
        return [Cell(f"cell {number}", cell) for number, cell in enumerate(text.split(_CELL), 1)]
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        return None
    found = [Cell(f"cell {number}", _source(cell), _is(cell, "code")) for number, cell in enumerate(cells, 1) if isinstance(cell, dict)]
    return [cell for cell in found if cell.is_code or _FENCE.search(cell.text)]


def _is(cell: dict[str, Any], kind: str) -> bool:
    return cell.get("cell_type") == kind


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    if isinstance(source, str):
        return source
    return "".join(line for line in source if isinstance(line, str)) if isinstance(source, list) else ""


def as_python(cell: str) -> str:
    """A cell without its magics and shell lines, which become statements without effect; a cell of another language becomes blank.

    Every character keeps its place.
    """
    first = cell.lstrip().partition("\n")[0]
    if first.startswith("%%") and not first.startswith(("%%time", "%%capture", "%%prun")):
        return blank(cell)
    lines = cell.split("\n")
    continued = False
    for number, line in enumerate(lines):
        is_magic = line.lstrip().startswith(("%", "!", "?"))
        lines[number] = " " * len(line) if continued else without_effect(line) if is_magic else line
        continued = (is_magic or continued) and line.rstrip().endswith("\\")
    return "\n".join(lines)


def blank(text: str) -> str:
    """A text of the same length and lines with nothing in it."""
    return re.sub(r"[^\n]", " ", text)


def without_effect(line: str) -> str:
    """A statement without effect in the place of a line: a block can have no other one."""
    indent = len(line) - len(line.lstrip())
    length = len(line) - indent
    return line[:indent] + ("pass" if length >= 4 else "0" if length else "").ljust(length)


def shell_of(cell: str, *, is_code: bool = True) -> Iterator[ShellText]:
    """What a shell runs of a cell, and the file that it writes; of prose, the blocks of shell commands."""
    if not is_code:
        yield from (ShellText(*block.span(1)) for block in _FENCE.finditer(cell))
        return
    start = len(cell) - len(cell.lstrip())
    written = _WRITEFILE.match(cell, start)
    if written:
        yield ShellText(written.end(), len(cell), written[1])
    elif _SHELLS.match(cell, start):
        yield ShellText(cell.find("\n", start) + 1 or len(cell), len(cell))
    else:
        for line in re.finditer(r"^[ \t]*!((?:[^\n\\]|\\.|\\\n)*)", cell, re.MULTILINE):
            yield ShellText(*line.span(1))
