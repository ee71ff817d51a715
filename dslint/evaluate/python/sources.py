"""The files that a program consists of. Their texts are joined to one, so that an offset names a place in any of them."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from functools import cached_property
from typing import Any, NamedTuple

from dslint.diagnostics import Range
from dslint.evaluate.python.nodes import Fields, Names, changes_value, fields_of, is_literal, names_in, own_nodes
from dslint.job.arguments import SourcedValue, in_short
from dslint.source.posted import keep_tree, read_program
from dslint.source.ranges import range_of
from dslint.source.store import store
from dslint.source.tree import Comment, Document, Node, Span, TextPart, moved


class Parsed:
    """What follows from the text of a file alone, and is kept for the run."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.lines = _line_starts(text)
        self.wide = frozenset[int]() if text.isascii() else _wide_lines(text, self.lines)
        """The lines that are not all ASCII, by their numbers: only there the bytes, which the parser counts, are not characters."""
        self.broken: int | None = None
        """The first line that is not Python."""
        self.breaks_off = False
        """Whether the text ends inside a bracket."""
        self._yields: dict[ast.AST, bool] = {}
        self._changes: dict[ast.stmt, list[ast.AST]] = {}
        self._counters: dict[ast.AST, list[ast.expr]] = {}
        self._called: dict[ast.stmt, frozenset[str]] = {}
        self._plain: dict[ast.BoolOp, list[ast.expr]] = {}
        self._fields: dict[ast.ClassDef, Fields] = {}
        self._names: dict[ast.expr, list[ast.Name]] = {}
        self.calls: dict[ast.Call, CallPlaces] = {}
        """The places of the calls of the tree; see `SourceFile.places`."""
        self.conditions: dict[tuple[ast.AST, ast.AST | None], tuple[str, int, bool, bool | None]] = {}
        """What the conditions of the tree say, and where, by the functions that they are in; see `rank_conditions.condition_of`."""
        self.tree = self._parse()

    @cached_property
    def comments(self) -> list[Comment]:
        """The comments of the text; in one that is not Python, those that look like comments."""
        found = (match for match in _COMMENT.finditer(self._text) if match[0][0] == "#") if "#" in self._text else ()
        return [Comment(Span(*match.span()), match[0]) for match in found]

    @property
    def size(self) -> int:
        """The number of nodes in the tree."""
        return self.names.size

    @cached_property
    def names(self) -> Names:
        """The names that the tree binds and uses."""
        return names_in(self.tree) if self.tree is not None else Names(frozenset(), (), imports=False)

    def fields(self, node: ast.ClassDef) -> Fields:
        """The annotated names of a class of the tree. Each program that imports the file makes the class."""
        if node not in self._fields:
            self._fields[node] = fields_of(node)
        return self._fields[node]

    def changes(self, body: list[ast.stmt]) -> list[ast.AST]:
        """The nodes in the body of a loop that change a value, without functions and classes. Asked each time the loop is followed."""
        if body[0] not in self._changes:
            self._changes[body[0]] = [node for node in own_nodes(body) if changes_value(node)]
        return self._changes[body[0]]

    def counters(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
        """What a function of the tree counts up. Asked at each call of it in a loop."""
        if node not in self._counters:
            self._counters[node] = [one.target for one in ast.walk(node) if isinstance(one, ast.AugAssign)]
        return self._counters[node]

    def yields(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Whether a function of the tree is a generator, which is asked at each of its calls."""
        if node not in self._yields:
            self._yields[node] = any(isinstance(one, ast.Yield | ast.YieldFrom) for one in own_nodes(node.body))
        return self._yields[node]

    def called(self, body: list[ast.stmt]) -> frozenset[str]:
        """The names of the functions and classes that statements of the tree call. Asked of branches that are not taken."""
        if not body:
            return frozenset()
        if body[0] not in self._called:
            calls = (inner.func for one in body for inner in ast.walk(one) if isinstance(inner, ast.Call))
            names = (one.id if isinstance(one, ast.Name) else one.attr for one in calls if isinstance(one, ast.Name | ast.Attribute))
            self._called[body[0]] = frozenset(names)
        return self._called[body[0]]

    def plain_names(self, test: ast.expr) -> list[ast.Name]:
        """The variables in a condition of the tree; [] if it does something, or may raise, when it is evaluated for another value."""
        if test not in self._names:
            inner = list(ast.walk(test))
            acts = any(isinstance(one, (*_ACTS, ast.Subscript)) for one in inner)
            self._names[test] = [] if acts else [one for one in inner if isinstance(one, ast.Name)]
        return self._names[test]

    def without_acts(self, test: ast.BoolOp) -> list[ast.expr]:
        """The parts of a condition of the tree that do nothing when they are evaluated again."""
        if test not in self._plain:
            self._plain[test] = [one for one in test.values if not any(isinstance(inner, _ACTS) for inner in ast.walk(one))]
        return self._plain[test]

    def _parse(self) -> ast.Module | None:
        """The syntax tree, of a posted program without a few lines that are not Python; None if the text is not Python."""
        found = read_program(self._text.removeprefix("\ufeff"))
        if found is None:
            return None
        self.broken, self.breaks_off = found.broken, found.breaks_off
        keep_tree(self._text, found)
        return found.tree


_ACTS = (ast.Call, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
"""Expressions that may do something."""


class CallPlaces(NamedTuple):
    """The places of a call in the files of a program: of the call, of its arguments, and of its keywords and their values.

    They hold for the files of other programs in which the file has the same `base`. Each argument comes with whether it is a literal.
    """

    base: int
    span: Span
    arguments: list[tuple[ast.expr, Span, bool]]
    keywords: list[tuple[str | None, ast.expr, Span, Span, bool]]


_COMMENT = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:""")?'
    r"|'''(?:[^'\\]|\\.|'(?!''))*+(?:''')?"
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'(?:[^'\\\n]|\\.)*+'?"
    r"|#[^\r\n]*",
    re.DOTALL,
)
"""Strings, in which a `#` begins no comment, and comments. One without an end takes what is left, so that no text is scanned twice."""


class SourceFile:
    """One file, or one cell of a notebook: `base` is the offset of its text in the joined text.

    `original` is the text as the user sees it; that of a cell is the same but for lines that are not Python.
    """

    def __init__(self, text: str, path: str, shown: str, base: int, *, cell: str | None = None) -> None:
        self.is_cell = cell is not None
        self.text = text
        self.original = text if cell is None else cell
        self.path = path
        self.shown = shown
        self.base = base

    @cached_property
    def parsed(self) -> Parsed:
        """Its tree, its lines and its comments. Two files with the same text have trees of their own: nodes are told apart by identity."""
        return store().parsed(("python", self.shown, self.text), lambda: Parsed(self.text))

    def span(self, node: ast.AST) -> Span:
        """Where a node of the tree is written."""
        parsed = self.parsed
        first, last, wide = node.lineno, node.end_lineno, parsed.wide  # type: ignore[attr-defined]
        if not wide or (first not in wide and last not in wide):  # this is called for every expression
            starts, base = parsed.lines, self.base
            place = base + starts[first - 1] + node.col_offset, base + starts[last - 1] + node.end_col_offset  # type: ignore[attr-defined]
            return tuple.__new__(Span, place)  # half the time of `Span(*place)`
        return Span(self.offset(first, node.col_offset), self.offset(last, node.end_col_offset))  # type: ignore[attr-defined]

    def places(self, node: ast.Call) -> CallPlaces:
        """The places of a call. A function is followed at each call of it, and a program again for each launch with other flags."""
        known = self.parsed.calls.get(node)
        if known is None or known.base != self.base:
            arguments = [(one, self.span(one), is_literal(one)) for one in node.args]
            keywords = [(one.arg, one.value, self._key(one), self.span(one.value), is_literal(one.value)) for one in node.keywords]
            known = self.parsed.calls[node] = CallPlaces(self.base, self.span(node), arguments, keywords)
        return known

    def _key(self, keyword: ast.keyword) -> Span:
        """The place of the name of a keyword."""
        start = self.span(keyword).start
        return Span(start, start + len(keyword.arg or ""))

    def offset(self, line: int, column: int) -> int:
        """The offset of a line and a column in bytes."""
        lines = self.parsed.lines
        start = lines[line - 1]
        if line not in self.parsed.wide:
            return self.base + start + column
        piece = self.text[start : lines[line] if line < len(lines) else len(self.text)]
        return self.base + start + len(piece.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))

    def written(self, span: Span) -> str:
        """The text of a stretch of this file."""
        return self.text[span.start - self.base : span.end - self.base]


class Sources:
    """The files of one program, in the order in which they are read; the program itself is the first."""

    def __init__(self) -> None:
        self.all: list[SourceFile] = []
        self._end = 0

    def add(self, text: str, path: str, shown: str, *, cell: str | None = None) -> SourceFile:
        """Append a file, or a cell of a notebook, with its text as Python and as it is written."""
        source = SourceFile(text, path, shown, self._end, cell=cell)
        self.all.append(source)
        self._end += len(text) + 1
        return source

    def known(self, shown: str) -> SourceFile | None:
        """A file that was added before."""
        return next((one for one in self.all if one.shown == shown), None)

    def at(self, offset: int) -> SourceFile:
        """The file that an offset is in."""
        return next(source for source in reversed(self.all) if source.base <= offset)

    def sourced(self, name: str, span: Span, value: Any, *, key: Span | None = None) -> SourcedValue:
        """A value with its place in the file that it is written in, from its keyword on, if that is in `key`."""
        source = self.at(span.start)
        begin = key.start if key and key.start < span.start and self.at(key.start) is source else span.start
        known = store().parsed(("written", source.text), dict[tuple[int, int, int], tuple[str, Range]])
        at = begin - source.base, span.start - source.base, span.end - source.base
        if at not in known:
            known[at] = _written(source, *at)
        raw, place = known[at]
        return SourcedValue(value, name, raw, source.shown, place)

    @property
    def text(self) -> str:
        """The joined text."""
        return "\n".join(source.text for source in self.all)

    def document(self, root: Node | None, comments: list[Comment]) -> Document:
        """A config in the files."""
        parts = tuple(TextPart(source.base, source.shown, source.is_cell) for source in self.all)
        if len(parts) == 1 and not parts[0].is_cell:
            parts = ()
        return Document(self.text, root, comments=comments, language="python", parts=parts)


def _written(source: SourceFile, begin: int, start: int, end: int) -> tuple[str, Range]:
    """How a value is written, and its range: with its keyword, which begins before it, if both are on one line."""
    document = store().parsed(("document", source.text), lambda: Document(source.text, None, language="python"))
    place = Span(start if "\n" in source.text[begin:start] else begin, end)
    return in_short(source.text[start:end]), range_of(document, place)


def tree_of(source: SourceFile, document: Document) -> Node | None:
    """The tree of a file, with its places in the joined text; None if it is broken."""
    return None if document.problems or document.root is None else moved(document.root, source.base)


def _line_starts(text: str) -> list[int]:
    """Where lines start for Python: after LF, CRLF and CR, and nothing else."""
    return [0, *(match.end() for match in _LINE_END.finditer(text))]


def _wide_lines(text: str, starts: list[int]) -> frozenset[int]:
    return frozenset(bisect_right(starts, match.start()) for match in _WIDE.finditer(text))


_LINE_END = re.compile(r"\r\n?|\n")
_WIDE = re.compile(r"[^\x00-\x7f]+")
