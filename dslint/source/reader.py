"""The grammar of hjson: text to tree.

`Reader` accepts what DeepSpeed's loader accepts and stops at the first error. Every kind of error has its own method, which raises
`RefusedError` here; `dslint.source.recover` overrides it to report a problem and continue.
"""

# ruff: noqa: ARG002 - the overriding methods in `recover` need more arguments

from __future__ import annotations

import math
import re

from dslint.source.scalars import Fault, StringLiteral, integral, multiline, quoted, unquoted
from dslint.source.tree import Comment, Departure, Key, Mapping, Member, Node, Scalar, Sequence, Span, Value

MAX_DEPTH = 400
"""The deepest nesting. hjson is recursive and exceeds Python's stack at 496 in an empty program, earlier inside DeepSpeed."""

_PLAIN_DIGITS = 300
"""Longer numbers are checked first: Python may reject them."""

_SPACE = re.compile(r"[ \t\n\r]*+").match
_LINE_END = re.compile(r"[\r\n]").search
_PAIR = re.compile(r'("[^"\\\x00-\x1f]*+")[ \t\n\r]*+:[ \t\n\r]*+').match
_STRING = re.compile(r'"([^"\\\x00-\x1f]*+)"').match
_PLAIN = re.compile(r"(?:(-?(?:0|[1-9][0-9]*+))((?:\.[0-9]++)?+(?:[eE][-+]?+[0-9]++)?+)|true|false|null)(?=[ \t]*+[,}\]\r\n])").match
_SEPARATOR = re.compile(r"[ \t\n\r]*+(,[ \t\n\r]*+)?+").match
_CLOSERS = frozenset(("}", "]", ""))
_OPENERS = frozenset("{[")
_QUOTES = frozenset("\"'")
_COMMENTS = frozenset("/#")
_NAME = re.compile(r"([^ \t\n\r:{}\[\],]++)[ \t\n\r]*+").match


class RefusedError(Exception):
    """hjson rejects the text. `fatal`: it crashes instead of trying the file as a single value."""

    def __init__(self, *, fatal: bool = False) -> None:
        super().__init__()
        self.fatal = fatal


class Box:
    """A mapping or list that is being read. `closer` is empty for a root without braces: the end of the text closes it."""

    __slots__ = ("closer", "indent", "node")

    def __init__(self, node: Mapping | Sequence, closer: str) -> None:
        self.node = node
        self.closer = closer
        self.indent = 0


class Reader:
    """Reads one text once: `document()` gives the root."""

    recovering = False

    def __init__(self, text: str) -> None:
        self.text = text
        self.comments: list[Comment] = []
        self.departures: list[Departure] = []
        self.boxes: list[Box] = []
        self.read_to = 0
        """The end of the last value in the tree."""
        self._newline = -1
        self._newline_known = 0
        self._last_newline: int | None = None

    def document(self) -> Node | None:
        """The root of the whole text."""
        text = self.text
        # The second is a UTF-8 byte order mark read as Latin-1, which hjson skips, too.
        start = 1 if text.startswith("\ufeff") else 3 if text.startswith("\u00ef\u00bb\u00bf") else 0
        if start:
            self.depart("bom", 0, start)
        pos = self.skip(start)
        if pos == len(text):
            if start:
                return self.nothing(start)
            self.depart("empty", 0, 0)
            return Mapping(Span(0, 0), [])
        if text[pos] in _OPENERS:
            root, end = self.bracketed(pos)
        else:
            root, end = self.unbraced(pos)
        end = self.skip(end)
        if end < len(text):
            self.more(root, end)
        return root

    def bracketed(self, pos: int) -> tuple[Node | None, int]:
        """The mapping or list that opens at `pos`, and its end."""
        box = self.open(pos)
        return box.node, self.inside(box, self.skip(pos + 1))

    def unbraced(self, pos: int) -> tuple[Node | None, int]:
        """A root without brackets: the members of an object or, if hjson fails on that, a single value."""
        comments, departures = len(self.comments), len(self.departures)
        try:
            return self.members(pos)
        except RefusedError as refused:
            if refused.fatal:
                raise
        del self.comments[comments:], self.departures[departures:], self.boxes[:]
        self._newline, self._newline_known = -1, 0
        return self.value(pos, None)

    def members(self, pos: int) -> tuple[Mapping, int]:
        """The members of a root without braces."""
        root = Mapping(Span(pos, pos), [])
        end = self.inside(Box(root, ""), pos)
        root.span = Span(pos, max(pos, self.read_to))
        if root.members:
            self.departures.append(Departure("no-root-braces", root.members[0].key.span))
        return root, end

    def open(self, pos: int) -> Box:
        """A new mapping or list for the bracket at `pos`. It is added to the tree at once and gets its span when it closes."""
        span = Span(pos, pos + 1)
        return Box(Mapping(span, []), "}") if self.text[pos] == "{" else Box(Sequence(span, []), "]")

    def inside(self, box: Box, pos: int) -> int:  # noqa: C901, PLR0912, PLR0915 - one loop without recursion, for any depth
        """Read the inside of `box` and of everything nested in it from `pos`; returns the offset after its closing bracket.

        `ended` is the end of the previous value, -1 at an opening bracket, and `comma` the offset of its comma, -1 if there is none.
        """
        text = self.text
        boxes = self.boxes
        boxes.append(box)
        ended = comma = -1
        while True:
            if self.recovering and self.ends_by_layout(pos):
                ended = comma = -1
            box = boxes[-1]
            node = box.node
            char = text[pos : pos + 1]
            if char in _CLOSERS:
                if char != box.closer:
                    if not char:
                        self.unclosed()
                        return pos
                    if not self.wrong_bracket(pos, ended, comma):
                        comma, pos = self.separator(pos + 1)
                        continue
                if comma >= 0:
                    self.depart("trailing-comma", comma, comma + 1)
                pos += len(char)
                box = boxes.pop()
                if char:
                    self.read_to = pos
                    box.node.span = Span(box.node.span.start, pos)
                if not boxes:
                    return pos
            else:
                if comma < 0 <= ended:
                    self.depart("missing-comma", ended, ended)
                key = None
                if isinstance(node, Mapping):
                    key, pos, has_value = self.key(pos, ended, comma)
                    if not has_value:
                        ended = comma = -1
                        continue
                value: Node | None
                if text[pos : pos + 1] not in _OPENERS:
                    value, pos = self.value(pos, key)
                    if value is not None:
                        self.read_to = pos
                elif len(boxes) < MAX_DEPTH:
                    boxes.append(self.open(pos))
                    value = boxes[-1].node
                else:
                    pos = self.too_deep(pos)
                    value = None
                if value is not None:
                    if isinstance(node, Sequence):
                        node.items.append(value)
                    elif key is not None:
                        node.members.append(Member(key, value))
                if boxes[-1] is not box:
                    pos = self.skip(pos + 1)
                    ended = comma = -1
                    continue
            ended = pos
            comma, pos = self.separator(pos)

    def separator(self, pos: int) -> tuple[int, int]:
        """The comma at `pos`, or -1, and the offset of the next token; blanks and comments may surround it."""
        text = self.text
        separator = _SEPARATOR(text, pos)
        comma = -1
        if separator:
            comma = separator.start(1)
            pos = separator.end()
        if text[pos : pos + 1] in _COMMENTS:
            pos = self.skip(pos)
            if comma < 0 and text.startswith(",", pos):
                return pos, self.skip(pos + 1)
        return comma, pos

    def key(self, pos: int, ended: int, comma: int) -> tuple[Key | None, int, bool]:
        """The key at `pos`, the offset after its colon, and whether a value follows."""
        text = self.text
        pair = _PAIR(text, pos)
        if pair:
            raw = pair[1]
            key = Key(Span(pos, pos + len(raw)), raw[1:-1], raw)
            pos = pair.end()
            return key, self.skip(pos) if text[pos : pos + 1] in _COMMENTS else pos, True
        if text[pos] in _QUOTES:
            word = self.taken(quoted(text, pos), "the key", pos)
            key = Key(Span(pos, word.end), word.value, text[pos : word.end])
            if text[pos] == "'":
                self.depart("single-quoted", pos, word.end)
            end = self.skip(word.end)
            if text.startswith(":", end):
                return key, self.skip(end + 1), True
            return self.no_colon(key, end, closed=word.closed)
        name = _NAME(text, pos)
        if not name:
            return self.no_key(pos, ended, comma)
        end = name.end(1)
        # hjson strips Unicode blanks from a name only if a plain blank follows them.
        value = name[1] if end == name.end() else name[1].rstrip()
        raw = value or name[1]
        key = Key(Span(pos, pos + len(raw)), value, raw)
        if not text.startswith(":", name.end()):
            return self.no_colon(key, name.end())
        self.departures.append(Departure("bare-key", key.span))
        return key, self.skip(name.end() + 1), True

    def value(self, pos: int, key: Key | None) -> tuple[Node | None, int]:
        """The scalar at `pos`, and its end."""
        text = self.text
        string = _STRING(text, pos)
        if string:
            end = string.end()
            return Scalar(Span(pos, end), string[1], string[0]), end
        plain = _PLAIN(text, pos)
        if plain and plain.end() - pos < _PLAIN_DIGITS:
            value = self._number_or_word(plain[0], plain[1], plain[2])
            end = plain.end()
            if not (isinstance(value, float) and math.isinf(value)):
                return Scalar(Span(pos, end), value, plain[0]), end
        char = text[pos : pos + 1]
        if char in _QUOTES:
            return self._quoted(pos, key)
        if not char or char in "{}[],:":
            return self.no_value(pos, key)
        return self._unquoted(pos, key)

    @staticmethod
    def _number_or_word(raw: str, integer: str | None, rest: str | None) -> Value:
        if integer is None:
            return None if raw == "null" else raw == "true"
        return integral(float(raw)) if rest else int(integer)

    def _quoted(self, pos: int, key: Key | None) -> tuple[Node | None, int]:
        text = self.text
        if text.startswith("'''", pos):
            word, style = self._multiline(pos), "multiline"
        else:
            word, style = quoted(text, pos), "json" if text[pos] == '"' else "single"
        word = self.taken(word, self.place(key), pos)
        if style == "single":
            self.depart("single-quoted", pos, word.end)
        return Scalar(Span(pos, word.end), word.value, text[pos : word.end], style), word.end

    def _unquoted(self, pos: int, key: Key | None) -> tuple[Node | None, int]:
        scalar, end, fault, departure = unquoted(self.text, pos)
        if fault:
            self.fault(fault, self.place(key))
        if scalar.style == "bare":
            scalar, end = self.bare(scalar, end, key)
        if departure:
            self.departures.append(Departure(departure.kind, scalar.span if scalar.style == "bare" else departure.span))
        return scalar, end

    def _multiline(self, pos: int) -> StringLiteral:
        if self._last_newline is None:
            self._last_newline = self.text.rfind("\n")
        return multiline(self.text, pos, self.newline_before(pos), self._last_newline)

    def newline_before(self, pos: int) -> int:
        """The last line feed before `pos`, or -1. Called in ascending order only, so that a long line is not searched repeatedly."""
        found = self.text.rfind("\n", self._newline_known, pos)
        self._newline_known = pos
        if found >= 0:
            self._newline = found
        return self._newline

    def skip(self, pos: int) -> int:
        """The offset of the next token; comments before it are recorded."""
        text = self.text
        while True:
            space = _SPACE(text, pos)
            pos = space.end() if space else pos
            char = text[pos : pos + 1]
            if char == "#" or (char == "/" and text.startswith("//", pos)):
                line = _LINE_END(text, pos)
                end = line.start() if line else len(text)
            elif char == "/" and text.startswith("/*", pos):
                close = text.find("*/", pos + 2)
                if close < 0:
                    self.unclosed_comment(pos)
                end = len(text) if close < 0 else close + 2
            else:
                return pos
            self.comments.append(Comment(Span(pos, end), text[pos:end]))
            self.depart("comment", pos, end)
            pos = end

    def depart(self, kind: str, start: int, end: int) -> None:
        self.departures.append(Departure(kind, Span(start, end)))

    def taken(self, word: StringLiteral, place: str, start: int) -> StringLiteral:
        """Record departures and fault of a string, and return the string."""
        self.departures += word.departures
        if word.fault:
            self.fault(word.fault, place)
        return word

    # What hjson rejects. `recover` reports these and continues.

    def place(self, key: Key | None) -> str:
        """A description of the place of a value; only `recover` needs it."""
        return ""

    def bare(self, scalar: Scalar, end: int, key: Key | None) -> tuple[Scalar, int]:
        """An unquoted string, which hjson accepts."""
        return scalar, end

    def ends_by_layout(self, pos: int) -> bool:
        """Whether the innermost mapping or list was closed without a bracket; never, to hjson."""
        return False

    def fault(self, fault: Fault, place: str) -> None:
        """A literal that hjson fails on."""
        raise RefusedError(fatal=fault.fatal)

    def nothing(self, start: int) -> Node | None:
        """Only a byte order mark, blanks and comments. Without the mark it would be an empty object."""
        raise RefusedError

    def no_key(self, pos: int, ended: int, comma: int) -> tuple[Key | None, int, bool]:
        """A missing key."""
        raise RefusedError

    def no_colon(self, key: Key, pos: int, *, closed: bool = True) -> tuple[Key | None, int, bool]:
        """A key without a colon: another token is at `pos`."""
        raise RefusedError

    def no_value(self, pos: int, key: Key | None) -> tuple[Node | None, int]:
        """A missing value."""
        raise RefusedError

    def wrong_bracket(self, pos: int, ended: int, comma: int) -> bool:
        """A closing bracket that does not match the innermost opening one; True to accept it as matching."""
        raise RefusedError

    def unclosed(self) -> None:
        """The text ends inside a mapping or list."""
        raise RefusedError

    def unclosed_comment(self, pos: int) -> None:
        """A block comment runs to the end of the text."""
        raise RefusedError(fatal=True)

    def too_deep(self, pos: int) -> int:
        """A bracket nested deeper than `MAX_DEPTH`; returns the offset after its content."""
        raise RefusedError(fatal=True)

    def more(self, root: Node | None, pos: int) -> None:
        """Text after the root."""
        raise RefusedError
