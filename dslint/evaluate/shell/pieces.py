"""Texts that remember where each of their parts is written, and which parts are unknown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from dslint.source.tree import Document, Span

LONGEST = 200_000
"""The longest text, in code points, that a variable can have; a longer one is unknown."""


class ShellSource(NamedTuple):
    """A file that text comes from: its name in messages and its document."""

    shown: str
    document: Document


class TextPiece(NamedTuple):
    """A part of a text. `text` is None if it is only known at run time.

    `span` is the place in `source`. If the piece is `exact`, its characters stand there one by one. `splits` is true of the unquoted value
    of a variable, which the shell splits at blanks. `absent` is true of a variable or an argument that nothing sets,
    `quoted` of the quoted default of a variable.
    """

    text: str | None
    source: ShellSource
    span: Span
    exact: bool = True
    splits: bool = False
    absent: bool = False
    quoted: bool = False

    def part(self, start: int, end: int) -> TextPiece:
        """The piece from one character to another."""
        assert self.text is not None
        span = Span(self.span.start + start, self.span.start + end) if self.exact else self.span
        return TextPiece(self.text[start:end], self.source, span, *self[3:])  # `_replace` takes three times as long


Text: TypeAlias = tuple[TextPiece, ...]


def known(text: Text) -> str | None:
    """The characters of a text; None if a part is unknown."""
    found = ""
    for piece in text:
        if piece.text is None:
            return None
        found += piece.text
    return found


def key(text: Text) -> str:
    """A name that two texts share only if they are equal at run time: an unknown part is named by its place."""
    return "".join(piece.text if piece.text is not None else f"\0{piece.source.shown}:{piece.span.start}\0" for piece in text)


def is_absent(text: Text) -> bool:
    """Whether a text is empty if nothing outside of the script sets variables or passes arguments."""
    return any(piece.absent for piece in text) and all(piece.absent or not piece.text for piece in text)


_SEVERAL = re.compile(r"[@*!]|arg|opt|flag|extra|param|cmd", re.IGNORECASE)


def names_arguments(raw: str) -> bool:
    """Whether an expansion, as it is written, may hold flags by the name of its variable: `$EXTRA_ARGS`, `"$@"`."""
    return _SEVERAL.search(raw) is not None


def may_be_several(words: Iterable[Text]) -> bool:
    """Whether some of the words may be none or several: an unquoted value that only the run knows."""
    return any(piece.text is None and piece.splits and not piece.absent for word in words for piece in word)


def cut(text: Text, start: int, end: int) -> Text:
    """The part of a known text from one character to another."""
    found: list[TextPiece] = []
    position = 0
    for piece in text:
        length = len(piece.text or "")
        first, last = max(start - position, 0), min(end - position, length)
        if first < last:
            found.append(piece.part(first, last))
        position += length
    return tuple(found)


def fields(text: Text) -> Iterator[Text]:
    """The fields that the shell makes of a text: unquoted values are split at blanks."""
    field: list[TextPiece] = []
    for piece in text:
        if not piece.splits or piece.text is None:
            field.append(piece)
            continue
        position = 0
        for word_start, word_end in _words(piece.text):
            if word_start > position and field:
                yield tuple(field)
                field = []
            word = piece.part(word_start, word_end)
            names_files = any(mark in piece.text[word_start:word_end] for mark in "*?[")
            field.append(word._replace(text=None) if names_files else word)  # which files there are, only the run knows
            position = word_end
        if position < len(piece.text) and field:
            yield tuple(field)
            field = []
    if field:
        yield tuple(field)


def _words(text: str) -> Iterator[tuple[int, int]]:
    start: int | None = None
    for index, character in enumerate(text):
        if character in " \t\n\r":
            if start is not None:
                yield start, index
            start = None
        elif start is None:
            start = index
    if start is not None:
        yield start, len(text)


def joined(texts: Iterable[Text], blank: TextPiece) -> Text:
    """Texts with a blank between each two."""
    found: list[TextPiece] = []
    for text in texts:
        found += [blank, *text] if found else text
    return tuple(found)


def place_of(text: Text) -> tuple[ShellSource, Span]:
    """Where a text is written: the place of its first part, up to the last part in the same stretch of the file."""
    first = text[0]
    start, end = first.span
    for piece in text[1:]:
        if piece.source is first.source and end <= piece.span.start <= end + 3:
            end = piece.span.end
    return first.source, Span(start, end)
