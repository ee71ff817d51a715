"""The files that a program consists of. Their texts are joined to one, so that an offset names a place in any of them."""

from __future__ import annotations

import ast
import io
import json
import tokenize
from collections.abc import Iterator
from typing import Any

from dslint.source.parse import parse
from dslint.source.tree import Comment, Document, Key, Mapping, Member, Node, Part, Scalar, Sequence, Span

DATABRICKS = "# Databricks notebook source"
_CELL = "# COMMAND ----------"

_MOST_BROKEN_LINES = 4


class Source:
    """One file, or one cell of a notebook: `base` is the offset of its text in the joined text."""

    def __init__(self, text: str, path: str, shown: str, base: int, *, is_cell: bool = False) -> None:
        self.is_cell = is_cell
        self.text = text
        self.path = path
        self.shown = shown
        self.base = base
        self.lines = _line_starts(text)
        self.broken: int | None = None
        """The first line that is not Python."""

    def parse(self) -> ast.Module | None:
        """The syntax tree, without a few lines that are not Python; None if the text is not Python."""
        text = self.text.removeprefix("\ufeff")
        for _ in range(_MOST_BROKEN_LINES):
            try:
                return ast.parse(text)
            except SyntaxError as error:
                text = self._without_line(text, error.lineno or 0)
            except (ValueError, RecursionError, MemoryError):
                return None
        return None

    def _without_line(self, text: str, number: int) -> str:
        lines = text.split("\n")
        if 0 < number <= len(lines):
            self.broken = min(number, self.broken or number)
            lines[number - 1] = _blanked(lines[number - 1])
        return "\n".join(lines)

    def span(self, node: ast.AST) -> Span:
        """Where a node of the tree is written."""
        return Span(self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset))  # type: ignore[attr-defined]

    def offset(self, line: int, column: int) -> int:
        """The offset of a line and a column in bytes."""
        start = self.lines[line - 1]
        end = self.lines[line] if line < len(self.lines) else len(self.text)
        piece = self.text[start:end]
        if not piece.isascii():
            column = len(piece.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))
        return self.base + start + column

    def written(self, span: Span) -> str:
        """The text of a stretch of this file."""
        return self.text[span.start - self.base : span.end - self.base]

    def comments(self) -> list[Comment]:
        """The comments of a Python text."""
        return list(_comments(self.text))


class Sources:
    """The files of one program, in the order in which they are read; the program itself is the first."""

    def __init__(self) -> None:
        self.all: list[Source] = []
        self._end = 0

    def add(self, text: str, path: str, shown: str, *, is_cell: bool = False) -> Source:
        """Append a file, or a cell of a notebook."""
        source = Source(text, path, shown, self._end, is_cell=is_cell)
        self.all.append(source)
        self._end += len(text) + 1
        return source

    def at(self, offset: int) -> Source:
        """The file that an offset is in."""
        return next(source for source in reversed(self.all) if source.base <= offset)

    @property
    def text(self) -> str:
        """The joined text."""
        return "\n".join(source.text for source in self.all)

    def document(self, root: Node | None, comments: list[Comment]) -> Document:
        """A config in the files."""
        parts = tuple(Part(source.base, source.shown, source.is_cell) for source in self.all)
        if len(parts) == 1 and not parts[0].is_cell:
            parts = ()
        return Document(self.text, root, comments=comments, language="python", parts=parts)


def cells_of(text: str) -> list[tuple[str, str]] | None:
    """The code cells of a notebook in Jupyter's or Databricks' format, each with its name; None for any other text."""
    if text.startswith(DATABRICKS):
        return [(f"cell {number}", _as_python(cell)) for number, cell in enumerate(text.split(_CELL), 1)]
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        return None
    return [(f"cell {number}", _as_python(_source(cell))) for number, cell in enumerate(cells, 1) if _is_code(cell)]


def _is_code(cell: Any) -> bool:
    return isinstance(cell, dict) and cell.get("cell_type") == "code"


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    if isinstance(source, str):
        return source
    return "".join(line for line in source if isinstance(line, str)) if isinstance(source, list) else ""


def _as_python(cell: str) -> str:
    """A cell with its magics and shell lines turned into comments of the same length; a cell of another language becomes empty lines."""
    first = cell.lstrip().partition("\n")[0]
    if first.startswith("%%") and not first.startswith(("%%time", "%%capture", "%%prun")):
        return "\n" * cell.count("\n")
    lines = cell.split("\n")
    return "\n".join(_blanked(line) if line.lstrip().startswith(("%", "!", "?")) else line for line in lines)


def _blanked(line: str) -> str:
    """A line without effect that keeps its indentation, for a block that has no other line."""
    indent = len(line) - len(line.lstrip())
    return line[:indent] + "pass"[: max(0, len(line) - indent)] if len(line) - indent >= 4 else line[:indent] + "0"


def json_tree(source: Source) -> Node | None:
    """The tree of a JSON file, with its places in the joined text; None if it is broken."""
    document = parse(source.text)
    return None if document.problems or document.root is None else _moved(document.root, source.base)


def _moved(node: Node, by: int) -> Node:
    span = Span(node.span.start + by, node.span.end + by)
    if isinstance(node, Mapping):
        return Mapping(span, [Member(_moved_key(member.key, by), _moved(member.value, by)) for member in node.members])
    if isinstance(node, Sequence):
        return Sequence(span, [_moved(item, by) for item in node.items])
    return Scalar(span, node.value, node.raw, node.style)


def _moved_key(key: Key, by: int) -> Key:
    return Key(Span(key.span.start + by, key.span.end + by), key.value, key.raw)


def _line_starts(text: str) -> list[int]:
    """Where lines start for Python: after LF, CRLF and CR, and nothing else."""
    starts = [0]
    for index, character in enumerate(text):
        if character == "\n" or (character == "\r" and text[index + 1 : index + 2] != "\n"):
            starts.append(index + 1)
    return starts


def _comments(text: str) -> Iterator[Comment]:
    starts = _line_starts(text)
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type == tokenize.COMMENT:
                start = starts[token.start[0] - 1] + token.start[1]
                yield Comment(Span(start, start + len(token.string)), token.string)
    except (tokenize.TokenError, SyntaxError, IndentationError, IndexError):
        return
