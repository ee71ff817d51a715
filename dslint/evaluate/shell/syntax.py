"""The syntax trees of shell texts. tree-sitter is loaded only here, and only if there is a script to read."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from dslint.evaluate.shell.pieces import ShellSource, Text, TextPiece, cut, known
from dslint.source.tree import Span

if TYPE_CHECKING:
    from tree_sitter import Node


_HOLE = "\ue000"
"""Stands for an unknown part of a text that is a command."""


_TO_FILL_IN = re.compile(
    r"(?:=(?=(<[A-Za-z][^<>\n|&;]*>))|(?<=[ \t])(?=(<[A-Za-z][\w-]*>)(?:[ \t]*\\?$|[ \t]+(?:--|<[A-Za-z]))))", re.MULTILINE
)
"""A value that the user has to fill in: `DATA=<path to the data>`, or a word of its own at the end of a line, or before a flag or another
one: `--hosts <first> <second> --port <port>`. bash takes it for two redirections, and fails."""

_PADDED = frozenset({"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"})
"""Nodes that the grammar begins at the blanks and the joined lines before them, if they stand in a string."""

_BLANK = re.compile(r"\s|\\\r?\n")

_JOINED_TO_NOTHING = re.compile(r"(?<!\\)\\(?=(?:\r?\n)?\Z)")
"""The backslash of the last line. bash joins nothing to it; the grammar sees an error, and may give up a substitution far above."""


class NoParser(Exception):
    """tree-sitter or its bash grammar is not installed."""


@cache
def _parser() -> Any:
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError as error:
        raise NoParser(str(error)) from None
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class Chunk:
    """A shell text with its tree. Its characters may come from several places: the value of a variable can be a command, too."""

    def __init__(self, text: Text) -> None:
        self.pieces = tuple(piece if piece.text is not None else piece._replace(text=_HOLE, exact=False) for piece in text)
        self._starts = [*accumulate((len(piece.text or "") for piece in self.pieces[:-1]), initial=0)]
        self.text = known(self.pieces) or ""
        data = _JOINED_TO_NOTHING.sub(" ", self.text).encode("utf-8", "surrogatepass")
        self.root: Node = _parser().parse(data).root_node
        self._offsets: list[int] | None = None if len(data) == len(self.text) else _offsets(self.text)

    @classmethod
    def of_file(cls, source: ShellSource) -> Chunk:
        """The text of a whole file."""
        text = source.document.text
        pieces: list[TextPiece] = []
        position = 0
        for match in _TO_FILL_IN.finditer(text):
            start, end = match.span(1 if match[1] else 2)
            pieces.append(TextPiece(text[position:start], source, Span(position, start)))
            pieces.append(TextPiece(None, source, Span(start, end), exact=False))
            position = end
        pieces.append(TextPiece(text[position:], source, Span(position, len(text))))
        return cls(tuple(pieces))

    def start(self, node: Node) -> int:
        """The first character of a node."""
        start = self._offsets[node.start_byte] if self._offsets else node.start_byte
        if node.type in _PADDED:
            while (blank := _BLANK.match(self.text, start)) is not None:
                start = blank.end()
        return start

    def end(self, node: Node) -> int:
        """The character after a node."""
        return self._offsets[node.end_byte] if self._offsets else node.end_byte

    def place_of(self, span: Span) -> int:
        """The character of the text that stands at a place of its source: earlier, if values to fill in are longer than a hole."""
        index = bisect_right(self.pieces, span.start, key=lambda piece: piece.span.start) - 1
        piece = self.pieces[index]
        return self._starts[index] + (span.start - piece.span.start if piece.exact else 0)

    def node_at(self, place: int) -> Node | None:
        """The innermost node with a character of the text."""
        offset = len(self.text[:place].encode("utf-8", "surrogatepass"))
        return self.root.descendant_for_byte_range(offset, offset + 1)

    def raw(self, node: Node) -> str:
        """A node as written."""
        return self.text[self.start(node) : self.end(node)]

    def slice(self, start: int, end: int) -> Text:
        """The characters from one to another with their places."""
        if start >= end:
            return ()
        first, last = bisect_right(self._starts, start) - 1, bisect_left(self._starts, end)
        pieces = cut(self.pieces[first:last], start - self._starts[first], end - self._starts[first])
        return tuple(
            piece._replace(text=None if piece.text == _HOLE else piece.text, splits=False) if piece.splits or piece.text == _HOLE else piece
            for piece in pieces
        )

    def piece(self, node: Node) -> TextPiece:
        """A node as one piece, for a value that is not written in place."""
        found = self.slice(self.start(node), self.end(node))
        if not found:
            return self.pieces[0]._replace(text="", exact=False)
        last = found[-1].span.end if found[-1].source is found[0].source else found[0].span.end
        span = Span(found[0].span.start, max(last, found[0].span.end))
        return TextPiece("", found[0].source, span, exact=False)


def misread(chunk: Chunk) -> Node | None:
    """A `[ ... ]` whose end the parser found in a later line: it has taken the commands between for a part of the test.

    tree-sitter-bash 0.25.1 does so in some scripts with `[ $a -lt 9 ] && b` in a branch or function and another test below, which bash's
    judge found: in three of 20,000 generated ones.
    """
    if chunk.text.count("[ ") < 2:
        return None
    waiting = [chunk.root]
    while waiting:
        node = waiting.pop()
        if node.type == "test_command" and "\n" in _WITHIN.sub("", chunk.raw(node)) and not chunk.raw(node).startswith("[["):
            return node
        waiting += node.named_children
    return None


_WITHIN = re.compile(r"\\\r?\n|\"(?:[^\"\\]|\\.)*\"|'[^']*'|\$\([^()]*\)", re.DOTALL)
"""What can hold the end of a line in a test: a joined line, a string, the output of a command."""


def _offsets(text: str) -> list[int]:
    """The character at each byte of a text in UTF-8."""
    offsets: list[int] = []
    for index, character in enumerate(text):
        offsets += [index] * len(character.encode("utf-8", "surrogatepass"))
    return [*offsets, len(text)]
