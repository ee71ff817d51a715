"""The cells of notebooks: what in them is Python, what a shell runs, and the files that they write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from dslint.record import Record
from dslint.source.posted import without_effect

OF_DATABRICKS = "# Databricks notebook source"
_CELL = "# COMMAND ----------"
_OF_MAGIC = re.compile(r"^# MAGIC(?: |$)", re.MULTILINE)
"""What Databricks writes before each line of a cell that is not Python, in the `.py` file of a notebook."""

_SHELLS = re.compile(r"%%(?:bash|sh|shell|script\s+(?:bash|sh))\b|%sh\b")
_OTHER_LANGUAGES = re.compile(r"%%(?!time|capture|prun)|%(?:sh|md|sql|scala|r|fs)\b")
"""What begins a cell that is not Python. Those of Databricks have one percent sign, also in its `.ipynb` files."""
_WRITEFILE = re.compile(r"%%(?:writefile|file)\s+(?:-a\s+)?(\S+)[^\n]*\n")


_FENCE = re.compile(r"^```(?:bash|sh|shell)[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""A block of shell commands in Markdown."""


class Cell(Record):
    """A cell with code, or with prose that shows shell commands: its name in messages, and its text. Not all code is Python."""

    name: str
    text: str
    is_code: bool = True
    is_python: bool = True


class ShellText(NamedTuple):
    """A part of a cell, from one offset to another, that a shell runs, or that is written to the file `name`."""

    start: int
    end: int
    name: str | None = None


def is_notebook(path: str, text: str) -> bool:
    """Whether a file is a notebook in Jupyter's or Databricks' format."""
    return path.lower().endswith(".ipynb") or text.startswith(OF_DATABRICKS)


def cells_of(text: str) -> list[Cell] | None:
    """The code cells of a notebook in Jupyter's or Databricks' format; None for any other text."""
    if text.startswith(OF_DATABRICKS):
        text = text.replace(OF_DATABRICKS, blank(OF_DATABRICKS), 1)
        return [_of_databricks(f"cell {number}", cell) for number, cell in enumerate(text.split(_CELL), 1)]
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        return None
    found = [Cell(f"cell {number}", _source(cell), _is(cell, "code")) for number, cell in enumerate(cells, 1) if isinstance(cell, dict)]
    return [cell for cell in found if cell.is_code or _FENCE.search(cell.text)]


def _of_databricks(name: str, text: str) -> Cell:
    plain = _OF_MAGIC.sub(lambda prefix: blank(prefix[0]), text)
    return Cell(name, plain, is_python=plain == text)


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
    if _OTHER_LANGUAGES.match(cell.lstrip()):
        return blank(cell)
    text = cell
    for start, end, at in _magics(cell):
        line, newline, rest = cell[start:end].partition("\n")
        own = without_effect(line) if at == start else line[: at - start] + _UNKNOWN + blank(line[at - start + 1 :])
        text = text[:start] + own + newline + blank(rest) + text[end:]
    return text


_UNKNOWN = "_"
"""A value that only the run knows, in the place of a magic that is assigned."""

_MAGIC = re.compile(
    r"[ \t]*(?:(?P<name>[^\W\d][\w.,\[\]'\" ]*=[ \t]*)?(?P<at>!|%(?=[%\w]))|(?P<help>\?|(?:%*[\w.*]+)\?\??[ \t]*$))", re.MULTILINE
)
"""A line of IPython's own: a magic, a shell command or a question, or one of the first two that is assigned."""

_REST = re.compile(r"(?:[^\n\\]|\\.|\\\n)*")
"""A line with those that continue it."""

_PYTHON = re.compile(
    r"(?P<text>\"\"\"(?:[^\\]|\\.)*?(?:\"\"\"|\Z)|'''(?:[^\\]|\\.)*?(?:'''|\Z)|\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?)"
    r"|(?P<comment>\#[^\n]*)|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<continued>\\\n)|(?P<end>\n)",
    re.DOTALL,
)
"""What decides where a statement of Python ends."""


def _magics(cell: str) -> Iterator[tuple[int, int, int]]:
    """The lines of a cell that are IPython's own: where each starts and ends, and where its magic starts.

    A line within a text, within brackets or after a backslash is Python's. Source: IPython/core/inputtransformer2.py.
    """
    position = 0
    while position < len(cell):
        found = _MAGIC.match(cell, position)
        if found is not None:
            rest = _REST.match(cell, position)
            assert rest is not None
            assigned = found["name"] is not None
            yield position, rest.end(), found.start("at") if assigned else position
            position = rest.end() + 1
        else:
            position = _end_of_statement(cell, position)


def _end_of_statement(cell: str, position: int) -> int:
    depth = 0
    for token in _PYTHON.finditer(cell, position):
        depth = max(0, depth + bool(token["open"]) - bool(token["close"]))
        if token["end"] and not depth:
            return token.end()
    return len(cell)


def blank(text: str) -> str:
    """A text of the same length and lines with nothing in it."""
    return re.sub(r"[^\n]", " ", text)


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
        for _, end, at in _magics(cell):
            command = _COMMAND.match(cell, at, end)
            if command is not None:
                yield ShellText(command.end(), end)


_COMMAND = re.compile(r"[ \t]*!!?")
"""What begins a shell command in a line of a cell."""
