"""Excerpts of a config: the lines of a finding, underlined, and the sections around them."""

from __future__ import annotations

from collections.abc import Iterable

from dslint.diagnostics import Range
from dslint.record import Record
from dslint.report.style import Style, columns, is_plain, visible, wrap
from dslint.source.tree import Document, Mapping, Member, Node, Sequence

SECTIONS = 3
"""How many of the enclosing sections are shown, the innermost ones."""

PARTS = 3
"""How many parts of a long line are drawn."""

CUT = "…"

_LONG = 1000
"""Lines of this length or longer are not measured: they are cut anyway."""

_LABEL = 24
"""The least columns in which a label is wrapped to the right of its underline; with less it goes below."""


class Mark(Record):
    """A range to underline: the primary one with carets, others with dashes and a label."""

    range: Range
    label: str
    color: str
    primary: bool = False


class Underline(Record):
    """A mark on one line: code points `first` to `last` of it, which may be one past its end."""

    first: int
    last: int
    mark: Mark


def sections(document: Document, offset: int) -> list[int]:
    """The lines on which the sections around a place open, outermost first."""
    lines: list[int] = []
    node: Node | None = document.root
    while node is not None:
        inner = _child(node, offset)
        if isinstance(inner, Member):
            lines.append(document.position(inner.key.span.start).line)
            node = inner.value
        else:
            node = inner
    return lines[-SECTIONS:]


def _child(node: Node, offset: int) -> Member | Node | None:
    if isinstance(node, Mapping):
        return next((member for member in node.members if member.key.span.start <= offset < member.value.span.end), None)
    items = node.items if isinstance(node, Sequence) else ()
    return next((item for item in items if item.span.start <= offset < item.span.end), None)


def draw(document: Document, marks: list[Mark], context: Iterable[int], gutter: int, style: Style) -> list[str]:
    """The lines of the marks, underlined, and those of the context; `...` replaces omitted lines.

    Args:
        document: the file.
        marks: what to underline, the primary one first.
        context: numbers of further lines to show; those after the last mark are omitted.
        gutter: how wide the line numbers are.
        style: how to draw.
    """
    underlined: dict[int, list[Underline]] = {}
    for mark in marks:
        number, underline = _underlined(document, mark)
        underlined.setdefault(number, []).append(underline)
    last = max(underlined)
    shown = sorted({*underlined, *(number for number in context if 1 <= number < last)})
    drawn: list[str] = []
    for before, number in zip([shown[0], *shown], shown, strict=False):
        if number - before == 2:  # one line takes no more room than the dots
            drawn += _line(document, before + 1, [], gutter, style)
        elif number - before > 2:
            drawn.append(style.paint("...", "blue", "bold"))
        drawn += _line(document, number, underlined.get(number, []), gutter, style)
    return drawn


def line_of(document: Document, mark: Mark) -> int:
    """The line on which a mark is drawn."""
    return min(max(mark.range.start.line, 1), document.line_count)


def _underlined(document: Document, mark: Mark) -> tuple[int, Underline]:
    """The line of a mark and where on it: of several lines the first, to its end."""
    number = line_of(document, mark)
    line = document.line(number)
    first = min(max(mark.range.start.column - 1, 0), len(line))
    last = len(line) if mark.range.end.line > number else min(mark.range.end.column - 1, len(line))
    while 0 < first < len(line) and columns(line[first]) == 0:  # a combining mark is drawn on the letter before it
        first -= 1
    return number, Underline(first, max(first, last), mark)


def _line(document: Document, number: int, underlines: list[Underline], gutter: int, style: Style) -> list[str]:
    """A line with its underlines below; a line that is too long is repeated for ranges that do not fit, at most `PARTS` times in all."""
    line = document.line(number)
    room = max(style.width - gutter - 3, 20)
    margin = style.paint(f"{number:>{gutter}} |", "blue", "bold")
    below = bar(gutter, style)
    drawn: list[str] = []
    window: tuple[int, int] | None = None
    parts = 0
    wanted: list[Underline | None] = [*underlines] or [None]
    for underline in wanted:
        first, last = (underline.first, underline.last) if underline else (0, 0)
        if window is None or not window[0] <= first <= last <= window[1]:
            if parts == PARTS:
                continue  # the message names what is not drawn
            parts += 1
            window = _window(line, first, last, room)
            text = (CUT if window[0] else "") + visible(line[slice(*window)]) + (CUT if window[1] < len(line) else "")
            drawn.append(f"{margin} {text}".rstrip())
        if underline:
            drawn += [f"{below} {row}" for row in _underline(line, underline, window, room, style)]
    return drawn


def bar(gutter: int, style: Style) -> str:
    """The gutter of a line without a number."""
    return style.paint(f"{'':>{gutter}} |", "blue", "bold")


def _window(line: str, first: int, last: int, room: int) -> tuple[int, int]:
    """The part of a line that is shown: all of it if it fits, else what is underlined (or its beginning) and what fits around it."""
    if len(line) < _LONG and columns(line) <= room:
        return 0, len(line)
    width = _one if is_plain(line[max(first - room, 0) : first + room]) else columns
    start = end = first
    left = room - 2 * len(CUT)
    around = left // 3
    while end < last and left - width(line[end]) >= around:
        left -= width(line[end])
        end += 1
    grown = True
    while grown:
        grown = False
        if start > 0 and width(line[start - 1]) <= left:
            start -= 1
            left -= width(line[start])
            grown = True
        if end < len(line) and width(line[end]) <= left:
            left -= width(line[end])
            end += 1
            grown = True
    while start < first and width(line[start]) == 0:  # or the mark would be drawn on the dots
        start += 1
    return start, end


def _one(_character: str) -> int:
    return 1


def _underline(line: str, underline: Underline, window: tuple[int, int], room: int, style: Style) -> list[str]:
    """The rows of an underline: the underline itself, and its label to the right or, without room, below."""
    mark, (start, end) = underline.mark, window
    indent = columns(line[start : underline.first]) + (len(CUT) if start else 0)
    size = max(1, columns(line[underline.first : min(underline.last, end)]))
    paint = (mark.color, "bold")
    row = " " * indent + style.paint(("^" if mark.primary else "-") * size, *paint)
    if not mark.label:
        return [row]
    label = visible(mark.label)
    beside = room - indent - size - 1
    if columns(label) <= beside or beside >= _LABEL:
        head, *rest = wrap(label, beside)
        return [f"{row} {style.paint(head, *paint)}", *(" " * (indent + size + 1) + style.paint(part, *paint) for part in rest)]
    indent = max(0, min(indent, room - min(columns(label), 2 * _LABEL)))
    return [row, *(" " * indent + style.paint(part, *paint) for part in wrap(label, room - indent))]
