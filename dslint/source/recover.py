"""Error recovery: describes what is wrong with a text that DeepSpeed's loader rejects, and builds a tree of the rest.

The text does not determine which bracket is missing or wrong: it is read under several guesses, and the guess with the fewest problems
wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from dslint.record import Record
from dslint.source.reader import MAX_DEPTH, Box, Reader
from dslint.source.recover_words import expected_in, found_at, last_of, opener_of, place_of, quote, token_at
from dslint.source.scalars import Fault, StringLiteral, unquoted
from dslint.source.tree import Document, Key, Mapping, Node, Scalar, Sequence, Span, SyntaxProblem, Value

MAX_PROBLEMS = 20
"""Reading stops after this many problems: a text with more is not a config."""

LONG_TEXT = 100_000
"""A longer text is read under one guess only: configs are shorter, and eight passes would be slow."""


Pattern: TypeAlias = Callable[[str, int], re.Match[str] | None]


class _Guess(Record):
    """How to interpret a broken text.

    `layout`: an unclosed bracket ends where the indentation decreases. `cut`: unquoted text with a closing bracket should end before its
    line does. `swapped`: a closing bracket of the wrong kind belongs to the innermost opening one; otherwise to an outer one.
    """

    layout: bool
    cut: bool
    swapped: bool


_GUESSES = tuple(
    _Guess(layout, cut, swapped)
    for layout, cut in ((True, True), (True, False), (False, True), (False, False))
    for swapped in (True, False)
)

_COMMAS = re.compile(r"(?:,[ \t\n\r]*+)++").match
_COLONS = re.compile(r"(?:[:=]>?[ \t\n\r]*+)++").match
_STRAYS = re.compile(r"(?:[\]},][ \t\n\r]*+)++").match
_INDENT = re.compile(r"[ \t]{0,200}").match
_PAIR = re.compile(r"(?:\"[^\"\r\n]*+\"|'[^'\r\n]*+'|[^ \t\n\r:{}\[\],\"']++)[ \t\n\r]*+:").match
_REST_OF_NAME = re.compile(r"[^\r\n:{}\[\],=]*+(?=[:=])").match
_NESTING = re.compile(r'"(?:[^"\\\r\n]++|\\.)*+"?|[\[{]|[\]}]').finditer
_KEY = re.compile(r"\"[^\"\r\n]*+\"[ \t]*+:").match
_SECOND_QUOTE = re.compile(r"[\"'][ \t]*+(?=[:,}\]\r\n]|\Z)").match
_REST_OF_STRING = re.compile(r"[^\"'\r\n:,{}\[\]]++[\"']").match
_PUNCTUATION = re.compile(r"[{}\[\],]").finditer
_LITERAL = re.compile(r"(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?+[0-9]++)?+|true|false|null)[ \t]++(?=[\"'{\[\w-])").match
_PYTHON_WORDS: dict[str, tuple[str, bool | None]] = {
    "True": ("true", True),
    "False": ("false", False),
    "None": ("null", None),
}
_NO_NUMBERS = {"NaN", "Infinity", "-Infinity", "nan", "inf", "-inf"}
_CURLY = "\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb"


class _EnoughError(Exception):
    """Too many problems to continue."""


def recover(text: str) -> tuple[Reader, Node | None, list[SyntaxProblem]]:
    """Read a text that `Reader` rejects: the reader, the root that could be built, and at least one problem."""
    best = _Recovery(text, _GUESSES[0])
    best.run()
    for guess in _GUESSES[1:]:
        if best.cost == 1 or len(text) > LONG_TEXT:
            break
        mender = _Recovery(text, guess)
        mender.run()
        if (mender.cost, len(mender.problems)) < (best.cost, len(best.problems)):
            best = mender
    # Recovery sometimes goes back a few tokens, which may record the same departure twice.
    best.comments = sorted(set(best.comments), key=lambda comment: comment.span)
    best.departures = list(dict.fromkeys(best.departures))
    return best, best.root, sorted(best.problems, key=lambda problem: problem.span)


class _Recovery(Reader):
    """A `Reader` that continues after errors. `cost` counts all errors, reported or not.

    After an error that loses synchronization (an unclosed string, a key without a value) nothing is reported until a value was read again:
    one mistake, one problem.
    """

    recovering = True

    def __init__(self, text: str, guess: _Guess) -> None:
        super().__init__(text)
        self.guess = guess
        self.root: Node | None = None
        self.problems: list[SyntaxProblem] = []
        self.cost = 0
        self._lost = -1
        self._cut_line = -1
        self._lines: Document | None = None
        self._reopened = False
        self._deep = False
        self._keyed: Sequence | None = None

    def run(self) -> None:
        try:
            self.root = self.document()
        except _EnoughError:
            self.root = self.boxes[0].node if self.boxes else None
            self._close_all()

    def problem(self, kind: str, span: Span, message: str, *, lost: int = -1) -> None:
        """Record a problem. `lost`: synchronization is lost up to this offset."""
        self.cost += 1
        if self.read_to > self._lost:
            self.problems.append(SyntaxProblem(kind, span, message))
        if len(self.problems) == MAX_PROBLEMS or self.cost > 10 * MAX_PROBLEMS:
            raise _EnoughError
        self._lost = max(self._lost, lost)

    def place(self, key: Key | None) -> str:
        return place_of(self.boxes, key)

    def _line(self, offset: int) -> int:
        self._lines = self._lines or Document(self.text, None)
        return self._lines.position(offset).line

    # Literals.

    def fault(self, fault: Fault, place: str) -> None:
        lost = -1
        if fault.kind == "unclosed-string":
            lost = len(self.text) if fault.predicate.startswith("opens with '''") else fault.span.end
        self.problem(fault.kind, fault.span, f"{place} {fault.predicate}", lost=lost)

    def taken(self, word: StringLiteral, place: str, start: int) -> StringLiteral:
        # A string without a closing quote most likely ends before the comma and the brackets at the end of its line.
        if not word.closed and not self.text.startswith("'''", start):
            end = start + len(self.text[start : word.end].rstrip(" \t,}]"))
            fault = word.fault
            if fault and fault.kind == "unclosed-string":
                fault = fault._replace(span=Span(start, end))
            word = word._replace(value=word.value.rstrip(" \t,}]"), end=end, fault=fault)
        return super().taken(word, place, start)

    def bare(self, scalar: Scalar, end: int, key: Key | None) -> tuple[Scalar, int]:
        raw = scalar.raw
        start = scalar.span.start
        cut = _cut(raw) if self.guess.cut else -1
        if cut < 0:
            return scalar, end
        place = self.place(key)
        literal = _LITERAL(raw)
        if literal and (raw[literal.end()] in "\"'{[" or key is None):
            after = start + literal.end()
            closer = self.boxes[-1].closer or "}"
            self.problem(
                "missing-comma", token_at(self.text, after), f'expected "," or "{closer}" after {place}, found {found_at(self.text, after)}'
            )
            word, end, _, _ = unquoted(literal[1], 0)
            end += start
            return Scalar(Span(start, end), word.value, word.raw), end
        written = raw[:cut].rstrip()
        meant: Value = written.strip(_CURLY + "\"'")
        if written in _PYTHON_WORDS:
            better, meant = _PYTHON_WORDS[written]
            advice = f"write {better}"
        elif written in _NO_NUMBERS:
            advice = "DeepSpeed's loader does not support this number"
        elif written.endswith(('"', "'")):
            advice = "its opening quote is missing"
        elif raw[0] in _CURLY:
            advice = f'replace the curly quotes: write "{meant}"'
        else:
            advice = "put it in quotes"
        span = Span(start, start + len(written))
        # The first of several on a line contains the others.
        if end == self._cut_line:
            self.cost -= 1
        self._cut_line = end
        taken = quote(raw[cut:])
        self.problem("unquoted-text", span, f"{place} is not quoted, so it extends to the end of the line and includes {taken}: {advice}")
        return Scalar(span, meant, written, "bare"), span.end

    def value(self, pos: int, key: Key | None) -> tuple[Node | None, int]:
        text = self.text
        if key and len(self.boxes) < MAX_DEPTH and _KEY(text, pos):
            # A key instead of a value: the opening brace is missing.
            message = f'expected "{{" or a value after the key {quote(key.value)}, found the key {found_at(self.text, pos)}'
            self.problem("missing-bracket", token_at(self.text, pos), message)
            box = Box(Mapping(Span(pos, pos), []), "}")
            box.indent = -1
            self.boxes.append(box)
            return box.node, pos - 1
        scalar, end = super().value(pos, key)
        if not isinstance(scalar, Scalar) or scalar.style not in {"json", "single"} or not scalar.raw.endswith(('"', "'")):
            return scalar, end
        second = _SECOND_QUOTE(text, end) if scalar.value else None
        rest = None if scalar.value else _REST_OF_STRING(text, end)
        if second and not text.startswith(":", second.end()):
            self.problem("second-quote", Span(end, end + 1), f"extra quote after {self.place(key)}")
            return scalar, second.end()
        if rest and not text.startswith(":", rest.end()):
            self.problem("second-quote", Span(pos, pos + 1), f"extra quote before {self.place(key)}")
            end = rest.end()
            return Scalar(Span(pos + 1, end), rest[0][:-1], text[pos + 1 : end], scalar.style), end
        return scalar, end

    # Members and items.

    def nothing(self, start: int) -> Node | None:
        self.problem("empty", Span(0, start), "the file is empty after the byte order mark, which crashes DeepSpeed's loader")
        return None

    def unbraced(self, pos: int) -> tuple[Node | None, int]:
        return self.members(pos)

    def _no_object(self, pos: int) -> None:
        """Stop if the text does not begin like a config."""
        box = self.boxes[0]
        if len(self.boxes) == 1 and not box.closer and isinstance(box.node, Mapping) and not box.node.members and not self.problems:
            self.problem("no-object", token_at(self.text, pos), f'expected "{{" at the start of the file, found {found_at(self.text, pos)}')
            self.boxes.clear()
            raise _EnoughError

    def no_key(self, pos: int, ended: int, comma: int) -> tuple[Key | None, int, bool]:
        self._no_object(pos)
        char = self.text[pos]
        if char == ",":
            return None, self._extra_comma(pos, ended, comma), False
        message = f'{expected_in(self.boxes, ended, comma)}, found "{char}"'
        inside = self.skip(pos + 1)
        if char == "{" and ended < 0 and _PAIR(self.text, inside):
            self.problem("missing-key", Span(pos, pos + 1), message)
            return None, inside, False
        self.problem("missing-key", Span(pos, pos + 1), message, lost=pos)
        return None, self._after(_COLONS, pos), True

    def _extra_comma(self, pos: int, ended: int, comma: int) -> int:
        last = last_of(self.boxes)
        message = f"found a second comma after {last}" if comma >= 0 and last else f'{expected_in(self.boxes, ended, comma)}, found ","'
        self.problem("extra-comma", Span(pos, pos + 1), message)
        return self._after(_COMMAS, pos)

    def _after(self, pattern: Pattern, pos: int) -> int:
        """The offset after unexpected punctuation."""
        match = pattern(self.text, pos)
        return self.skip(match.end() if match else pos)

    def no_colon(self, key: Key, pos: int, *, closed: bool = True) -> tuple[Key | None, int, bool]:
        text = self.text
        start, end = key.span
        if not closed:
            return self._unclosed_key(key, pos)
        self._no_object(start)
        expected = f'expected ":" after the key {quote(key.value)}, found '
        quotes = key.raw[0] in "\"'"
        if quotes and pos == end:
            mended = self._misquoted(key)
            if mended:
                return mended
        if text.startswith("=", pos):
            self.problem("missing-colon", Span(pos, pos + 1), f'{expected}"="')
            return key, self._after(_COLONS, pos), True
        if key.raw[0] == ";":
            self.problem("missing-comma", Span(start, start + 1), f'{expected_in(self.boxes, 0, -1)}, found ";"')
            return None, self.skip(start + 1), False
        if not quotes:
            name = _REST_OF_NAME(text, start)
            if name and text[name.end()] == "=":
                key = Key(Span(start, start + len(name[0].rstrip())), name[0].strip(), name[0].rstrip())
                message = f'expected ":" after the key {quote(key.value)}, found "="'
                self.problem("missing-colon", Span(name.end(), name.end() + 1), message)
                return key, self.skip(name.end() + 1), True
            if name:
                return self._spaced_key(start, name[0].rstrip(), name.end() + 1)
        token = token_at(self.text, pos)
        if token.start == token.end or text[pos] in ",}]" or (_PAIR(text, pos) and (quotes or "\n" in text[end:pos])):
            self.problem("missing-colon", token if token.end > token.start else key.span, expected + found_at(self.text, pos), lost=pos)
            return None, pos, False
        self.problem("missing-colon", token, expected + found_at(self.text, pos))
        return key, pos, True

    def _misquoted(self, key: Key) -> tuple[Key | None, int, bool] | None:
        """A key with an extra or missing quote, if that explains the missing colon."""
        text = self.text
        start, end = key.span
        second = _SECOND_QUOTE(text, end)
        if second and text.startswith(":", second.end()):
            self.problem("second-quote", Span(end, end + 1), f"extra quote after the key {quote(key.value)}")
            return key, self.skip(second.end() + 1), True
        rest = None if key.value else _REST_OF_STRING(text, end)
        if rest:
            key = Key(Span(start + 1, rest.end()), rest[0][:-1], text[start + 1 : rest.end()])
            self.problem("second-quote", Span(start, start + 1), f"extra quote before the key {quote(key.value)}")
            pos = self.skip(rest.end())
            return key, self.skip(pos + 1) if text.startswith(":", pos) else pos, True
        if key.raw.find(":") > 1:
            message = f"the key opens with {key.raw[0]} and is not closed before the colon"
            self.problem("unclosed-string", Span(start, start + key.raw.find(":")), message)
            return self._unclosed_key(key, end)
        return None

    def _unclosed_key(self, key: Key, pos: int) -> tuple[Key | None, int, bool]:
        """A key without its closing quote: it ends before the first colon."""
        start = key.span.start
        colon = key.raw.find(":")
        if colon < 0:
            return None, pos, False
        self._lost = -1
        raw = key.raw[:colon].rstrip()
        return Key(Span(start, start + len(raw)), raw[1:], raw), self.skip(start + colon + 1), True

    def _spaced_key(self, start: int, raw: str, after: int) -> tuple[Key | None, int, bool]:
        name = raw.strip(_CURLY) if raw[0] in _CURLY else raw
        if name != raw:
            message = f'the key {raw} has curly quotes; write "{name}"'
        else:
            message = f"the key {quote(raw)} contains a blank and must be quoted"
        span = Span(start, start + len(raw))
        self.problem("key-needs-quotes", span, message)
        return Key(span, name, raw), self.skip(after), True

    def no_value(self, pos: int, key: Key | None) -> tuple[Node | None, int]:
        text = self.text
        node = self.boxes[-1].node
        char = text[pos : pos + 1]
        if isinstance(node, Sequence) and char == ",":
            # A comma is extra only after another comma or the opening bracket.
            return None, self._extra_comma(pos, 0 if node.items else -1, 0 if node.items else -1)
        token = token_at(self.text, pos)
        if isinstance(node, Sequence):
            last = last_of(self.boxes)
            expected = f'expected "," or "]" after {last}' if last else "expected an item"
            # Report it once: the list should be an object.
            if node is not self._keyed:
                self.problem("extra-colon", token, f'{expected}, found ":" (a list has no keys)')
            self._keyed = node
        else:
            name = f" for {quote(key.value)}" if key else ""
            span = key.span if key and not char else token
            after = self._after(_COLONS, pos)
            lost = pos if not char or text[after : after + 1] in "{[" else -1
            self.problem("missing-value", span, f"expected a value{name}, found {found_at(self.text, pos)}", lost=lost)
            if after > pos and text[after : after + 1] not in "{}[],":
                return self.value(after, key)
        return None, self._after(_COLONS, pos)

    # Brackets.

    def open(self, pos: int) -> Box:
        box = super().open(pos)
        if self.guess.layout:
            box.indent = self._indent(pos)
        return box

    def _indent(self, pos: int) -> int:
        """The indentation of the line of `pos`."""
        line = self.newline_before(pos) + 1
        indent = _INDENT(self.text, line)
        return indent.end() - line if indent else 0

    def ends_by_layout(self, pos: int) -> bool:
        if len(self.boxes) < 2 or pos == len(self.text):
            return False
        outer = self.boxes[-2].node
        # A key in a list in an object: the list is not closed.
        if not self.guess.swapped and isinstance(self.boxes[-1].node, Sequence) and isinstance(outer, Mapping) and _KEY(self.text, pos):
            self._left_open(f" before {found_at(self.text, pos)}")
            return True
        if not self.guess.layout:
            return False
        column = pos - self.newline_before(pos) - 1
        if column != self._indent(pos):
            return False
        ended = False
        while len(self.boxes) > 1:
            indent = self.boxes[-1].indent
            if column >= indent if self.text[pos] in "}]" else column > indent:
                break
            self._left_open(f" before line {self._line(pos)}")
            ended = True
        return ended

    def _left_open(self, where: str) -> None:
        """Report the innermost opening bracket, and close it."""
        start = self.boxes[-1].node.span.start
        self.problem("unclosed-bracket", Span(start, start + 1), f"{opener_of(self.boxes)} is not closed{where}")
        self._close()

    def _close(self) -> None:
        node = self.boxes.pop().node
        node.span = Span(node.span.start, max(self.read_to, node.span.end))
        self.read_to = node.span.end

    def _close_all(self) -> None:
        while self.boxes:
            self._close()

    def wrong_bracket(self, pos: int, ended: int, comma: int) -> bool:
        found = self.text[pos]
        span = Span(pos, pos + 1)
        box = self.boxes[-1]
        if not box.closer:
            why = "the file does not begin with one" if len(self.boxes) == 1 and found == "}" else "no bracket is open"
            self.problem("stray-bracket", span, f'unmatched "{found}": {why}')
            return False
        if self.guess.swapped:
            if box.node is self._keyed:
                return True  # the opening bracket was wrong, which is already reported
            opener = opener_of(self.boxes)
            line, here = self._line(box.node.span.start), self._line(pos)
            where = f" (to close {opener} on line {line})" if line != here else ""
            self.problem("wrong-bracket", span, f'{expected_in(self.boxes, ended, comma)}, found "{found}"{where}')
            return True
        if not any(outer.closer == found for outer in self.boxes):
            self.problem("stray-bracket", span, f'unmatched "{found}": no "{"{" if found == "}" else "["}" is open')
            return False
        self._left_open(f': found "{found}"')
        while self.boxes[-1].closer != found:
            self._close()
        return True

    def unclosed(self) -> None:
        if not (self._reopened and len(self.boxes) == 1):
            start = self.boxes[-1].node.span.start
            message = f"{opener_of(self.boxes)} is never closed"
            around = sum(1 for box in self.boxes if box.closer) - 1
            if around:
                message += f", and neither {'is the bracket' if around == 1 else f'are the {around} brackets'} around it"
            self.problem("unclosed-bracket", Span(start, start + 1), message)
        self._close_all()

    def unclosed_comment(self, pos: int) -> None:
        self.problem("unclosed-comment", Span(pos, pos + 2), 'this comment opens with "/*" and is never closed', lost=len(self.text))

    def too_deep(self, pos: int) -> int:
        if not self._deep:
            self._deep = True
            message = f"brackets nested more than {MAX_DEPTH} deep crash DeepSpeed's loader"
            self.problem("nesting-too-deep", Span(pos, pos + 1), message)
        depth = 0
        for token in _NESTING(self.text, pos):
            if token[0] in "{[":
                depth += 1
            elif token[0] in "}]":
                depth -= 1
                if not depth:
                    return token.end()
        self._lost = len(self.text)
        return len(self.text)

    def more(self, root: Node | None, pos: int) -> None:
        text = self.text
        while pos < len(text):
            if text[pos] in "}]":
                self.problem("stray-bracket", Span(pos, pos + 1), f'unmatched "{text[pos]}": all brackets are already closed')
                pos = self._after(_STRAYS, pos)
            elif isinstance(root, Mapping) and (text[pos] == "," or _PAIR(text, pos)):
                end = root.span.end
                if not self._reopened:
                    self.problem("stray-bracket", Span(end - 1, end), 'this "}" closes the whole config, but more text follows')
                self._reopened = True
                pos = self.skip(self.inside(Box(root, "}"), self._after(_STRAYS, pos)))
            else:
                expected = "expected the end of the file"
                self.problem("extra-text", token_at(self.text, pos), f"{expected} after the config, found {found_at(self.text, pos)}")
                return


def _cut(raw: str) -> int:
    """Where unquoted text should end: at the first comma, if it closes a bracket that opened before it; otherwise -1."""
    depth = 0
    first = -1
    for match in _PUNCTUATION(raw):
        char = match[0]
        if char in "{[":
            depth += 1
        elif char != "," and depth:
            depth -= 1
        elif not depth:
            first = match.start() if first < 0 else first
            if char != ",":
                return first
    return -1
