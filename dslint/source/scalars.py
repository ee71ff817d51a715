"""Strings, numbers and unquoted text: one literal at a time, exactly as hjson reads them.

DeepSpeed loads a config with hjson 3.1, so this module follows its quirks: what hjson reads as a string is a string, and what crashes it
is a `Fault`. The common case, a plain JSON literal, does not reach this module: the reader matches it with one regular expression.
"""

from __future__ import annotations

import contextlib
import re

from dslint.record import Record
from dslint.source.tree import Departure, Scalar, Span
from dslint.source.unknown import UNKNOWN, UnknownInConfig

MAX_INTEGER_DIGITS = 4300
"""Python's default limit for `int(text)`; above it hjson and json both raise ValueError."""

MOST_DIGITS = 1000
"""Longer integers are not judged: the product of four of them, as of the batch sizes, could not be printed."""

_PLACEHOLDER_INTEGER = 10**18

# Compiled where they are used: most configs have no string that needs them.
_DOUBLE_CHUNK = r'[^"\\\x00-\x1f]*+'
_SINGLE_CHUNK = r"[^'\\\x00-\x1f]*+"
_HEX = r"[0-9A-Fa-f]{4}"
_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}

# \d is intended: hjson accepts digits of every script after the first one.
_NUMBER = r"(-?(?:0|[1-9]\d*+))(\.\d++)?+([eE][-+]?+\d++)?+([\t ]*+)"
_STOP = r"[,}\]#\r\n]|/[/*]"
_LINE_END = r"[\r\n]"
_NOT_A_NUMBER = r"(NaN|-?Infinity)[ \t]*+(?:[,}\]]|\Z)"
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


class Fault(Record):
    """What hjson rejects in a literal. `predicate` continues a sentence that begins with the place ("the value of ...").

    `fatal`: hjson fails with an error of another type, and so does not try the file as a single value.
    """

    kind: str
    span: Span
    predicate: str
    fatal: bool = False


class StringLiteral(Record):
    """A string literal: its value, its end, its fault, and what json would reject."""

    value: str
    end: int
    fault: Fault | None
    departures: list[Departure]
    closed: bool = True


def quoted(text: str, start: int) -> StringLiteral:
    """The string that opens at `start` with `"` or `'`.

    An unclosed string ends with its line; other faults keep the written text as the value.
    """
    quote = text[start]
    chunk = re.compile(_DOUBLE_CHUNK if quote == '"' else _SINGLE_CHUNK).match
    parts: list[str] = []
    departures: list[Departure] = []
    fault: Fault | None = None
    pos = start + 1
    while True:
        match = chunk(text, pos)
        if match:
            parts.append(match[0])
            pos = match.end()
        char = text[pos : pos + 1]
        if char == quote:
            return StringLiteral("".join(parts), pos + 1, fault, departures)
        if char == "" or char in "\r\n":
            return StringLiteral("".join(parts), pos, fault or _unclosed(text, start, pos), departures, closed=False)
        if char != "\\":
            what = 'a raw tab in its quotes; write "\\t"' if char == "\t" else f"the control character U+{ord(char):04X} in its quotes"
            fault = fault or Fault("control-character", Span(pos, pos + 1), f"has {what}")
            parts.append(char)
            pos += 1
            continue
        escape = text[pos + 1 : pos + 2]
        if escape in _ESCAPES:
            if escape == "'":
                departures.append(Departure("odd-literal", Span(pos, pos + 2)))
            parts.append(_ESCAPES[escape])
            pos += 2
        elif escape == "u":
            code, end = _unicode_escape(text, pos)
            if code is None or code < 0:
                fault = fault or Fault(
                    "bad-escape",
                    Span(pos, pos + 2),
                    'has a "\\u" without four hex digits; write a backslash as "\\\\"',
                    fatal=code is not None,
                )
                parts.append("\\u")
                pos += 2
                continue
            if not all(re.fullmatch(_HEX, text[at + 2 : at + 6]) for at in range(pos, end, 6)):
                departures.append(Departure("odd-literal", Span(pos, end)))
            parts.append(chr(code))
            pos = end
        else:
            if escape and escape not in "\r\n":
                shown = escape if escape.isprintable() else f"U+{ord(escape):04X}"
                fault = fault or Fault(
                    "bad-escape",
                    Span(pos, pos + 2),
                    f'has the escape "\\{shown}", which JSON does not know; write a backslash as "\\\\"',
                )
            parts.append("\\")
            pos += 1


def _unclosed(text: str, start: int, end: int) -> Fault:
    quote = text[start]
    hint = f" (\\{quote} does not close a string)" if text.find("\\" + quote, start, end) >= 0 else ""
    return Fault("unclosed-string", Span(start, end), f"opens with {quote} and is not closed before the end of its line{hint}")


def _unicode_escape(text: str, pos: int) -> tuple[int | None, int]:
    r"""The code point of the `\u` escape at `pos`, with surrogate pairs combined, and its end; None if it is invalid."""
    code = _hex_value(text[pos + 2 : pos + 6])
    pos += 6
    if code is not None and code & 0xFC00 == 0xD800 and text.startswith("\\u", pos):
        low = _hex_value(text[pos + 2 : pos + 6])
        if low is not None and low & 0xFC00 == 0xDC00:
            return 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00)), pos + 6
    return code, pos


def _hex_value(digits: str) -> int | None:
    """Four characters as hjson reads them: with `int`, which also takes a sign, blanks and underscores."""
    if len(digits) != 4 or digits[1] in "xX":
        return None
    try:
        return int(digits, 16)
    except ValueError:
        return None


def multiline(text: str, start: int, newline: int, last_newline: int) -> StringLiteral:
    """The '''string''' that opens at `start`.

    `newline` is the last line feed before it or -1, `last_newline` the last one of the text or -1. hjson counts the indentation back to a
    line feed, and on the first line continues from the end of the text; without any line feed it crashes.
    """
    fault: Fault | None = None
    indent = start - 1 - newline
    if newline < 0:
        if last_newline < 0:
            fault = Fault(
                "multiline-first-line",
                Span(start, start + 3),
                "is a ''' string in a file without a line end, which crashes DeepSpeed's loader",
                fatal=True,
            )
        else:
            indent = start + len(text) - 1 - last_newline
    begin = _skip_blanks(text, start + 3)
    at_end = begin == len(text)
    if text.startswith("\n", begin):
        begin = _skip_blanks(text, begin + 1, indent)
    close = text.find("'''", begin)
    closed = close >= 0
    if not closed:
        fault = fault or Fault("unclosed-string", Span(start, start + 3), "opens with ''' and is never closed", fatal=at_end)
        close = len(text)
    first, *rest = text[begin:close].split("\n")
    lines = [first]
    for line in rest:
        blanks = len(line) - len(line.lstrip(" \t\r"))
        lines.append(line[min(blanks, indent) :])
    value = "\n".join(lines).replace("\r", "").removesuffix("\n")
    end = min(close + 3, len(text))
    return StringLiteral(value, end, fault, [Departure("multiline-string", Span(start, end))], closed)


def _skip_blanks(text: str, pos: int, limit: int | None = None) -> int:
    stop = len(text) if limit is None else min(len(text), pos + limit)
    while pos < stop and text[pos] in " \t\r":
        pos += 1
    return pos


def unquoted(text: str, start: int) -> tuple[Scalar, int, Fault | None, Departure | None]:
    """The number, true, false, null or unquoted string at `start`, and its end.

    A number or a word counts as such only if a comma, a closing bracket, a comment or the line's end follows; everything else is text
    up to the end of the line, commas and comments included.
    """
    stop = re.compile(_STOP).search(text, start)
    end = stop.start() if stop else len(text)
    first = text[start]
    if first in "tfn":
        word = text[start:end].rstrip()
        if word in _WORDS:
            span = Span(start, start + len(word))
            # hjson strips every Unicode blank, json only four.
            odd = text[span.end : end].strip(" \t")
            departure = Departure("odd-literal", Span(span.end, end)) if odd else None
            return Scalar(span, _WORDS[word], word), end if odd else span.end, None, departure
    elif first == "-" or "0" <= first <= "9":
        match = re.compile(_NUMBER).match(text, start)
        if match and match.end() == end:
            span = Span(start, match.start(4))
            value, fault = _number(span, match[1], (match[2] or "") + (match[3] or ""))
            raw = text[start : span.end]
            return Scalar(span, value, raw), span.end, fault, None if raw.isascii() else Departure("odd-literal", span)
    line_end = re.compile(_LINE_END).search(text, start)
    end = line_end.start() if line_end else len(text)
    raw = text[start:end].rstrip(" \t")
    span = Span(start, start + len(raw))
    kind = "not-a-number" if re.match(_NOT_A_NUMBER, raw) else "bare-string"
    return Scalar(span, raw.strip(), raw, "bare"), span.end, None, Departure(kind, span)


def _number(span: Span, integer: str, rest: str) -> tuple[int | float | UnknownInConfig, Fault | None]:
    if rest:
        value = float(integer + rest)
        if abs(value) == float("inf"):
            predicate = "is too large for a floating-point number and crashes DeepSpeed's loader"
            return value, Fault("number-too-large", span, predicate, fatal=True)
        return integral(value), None
    digits = len(integer.removeprefix("-"))
    if MOST_DIGITS < digits <= MAX_INTEGER_DIGITS:
        return UNKNOWN, None
    if digits <= MAX_INTEGER_DIGITS:
        # The environment can lower Python's limit.
        with contextlib.suppress(ValueError):
            return int(integer), None
    predicate = f"has {digits} digits; Python reads integers of at most {MAX_INTEGER_DIGITS} digits"
    placeholder = -_PLACEHOLDER_INTEGER if integer.startswith("-") else _PLACEHOLDER_INTEGER
    return placeholder, Fault("integer-too-long", span, predicate, fatal=True)


def integral(value: float) -> int | float:
    """The number as hjson returns it: below 1e10, a float without a fraction becomes an integer."""
    if abs(value) < 1e10 and value == int(value):
        return int(value)
    return value
