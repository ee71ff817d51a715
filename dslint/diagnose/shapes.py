"""Learns what stands before the lines of a log: the shape of a prefix, from lines with a known inner text.

A log that a cluster collected has columns before each line, such as a time, a pod and a stream. Too many programs write them to list them
all. But a line of DeepSpeed, of transformers or of a traceback is known wherever it begins: what stands before it is a prefix. Its shape
(numbers and names may vary, words and punctuation may not) is then removed from all lines that have it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from dslint.record import Record

LONGEST = 400
"""The most characters of a prefix."""

MOST = 48
"""The shapes that are remembered; of more, those that were used longest ago are forgotten."""

FEW = 16
"""A column with at most so many values in the lines around names a process or a machine, unless each line has its own."""

_TIMES = (
    r"(?:[A-Z][a-z]{2},? )?\d{1,2}[ /-][A-Z][a-z]{2}[ /-]20\d\d[ :T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?[+-]\d{2}:?\d{2})?",
    r"(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} {1,2}\d{1,2} (?:20\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z]{3,4})?(?: 20\d\d)?",
    r"20\d\d[-/.]\d\d[-/.]\d\d[T _]\d\d:\d\d:\d\d(?:[.,:]\d+)?(?:Z| ?[+-]\d{2}:?\d{2}| UTC)?",
    r"20\d\d[-/.]\d\d[-/.]\d\d",
    r"20\d{6}[-T_ ]\d\d:?\d\d:?\d\d(?:[.,]\d+)?Z?",
    r"\d\d[-/.]\d\d[-/.](?:20)?\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?",
    r"\d\d[-/]\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?",
    r"[EWIFD]?\d{4} \d\d:\d\d:\d\d(?:[.,]\d+)?",  # glog
    r"(?:\d+-|\d+ days?, )?\d{1,2}:\d\d:\d\d(?:[.,]\d+)?(?: ?[AP]M\b)?",
    r"[+]?\d+\.\d+s?(?![\w.])",  # seconds, also since 1970
    r"1\d{9}(?:\d{3}|\d{6}|\d{9})?(?!\w)",
)
_LEVELS = r"(?:DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|CRIT(?:ICAL)?|FATAL|SEVERE|TRACE|std(?:out|err)|out|err|[FP])(?![\w.\-/@+])"
_TOKEN = re.compile(
    rf"(?P<time>{'|'.join(_TIMES)})|(?P<level>(?i:{_LEVELS}))|(?P<run>[\w/][\w.\-/@+]*)|(?P<space>\s+)|(?P<sign>.)", re.DOTALL
)
_VARYING = re.compile(r"(?P<digits>\d+)|(?P<letters>[A-Za-z]+)|(?P<space>\s+)|(?P<sign>.)", re.DOTALL)

INNER = re.compile(
    r"(?:\u256d\u2500+ |\+ Exception Group |-{20,}\s)?Traceback \(most recent call last\)"
    r"|(?:  |\t)File \"[^\"\n]{1,500}\", line \d+"
    r"|(?<=[\])}>\u3011]) File \"[^\"\n]{1,500}\", line \d+, in [\w<>.]+$"  # behind a bracket, where a copy has lost blanks
    r"|\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d+\] \[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\] \[[\w.]+:\d+:"
    r"|\[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\|[\w./]+:\d+\] (?=20|>>)"
    r"|\[(?:rank ?|default)\d+\]:"
    r"|\*\*\*\*\* Running training \*\*\*\*\*|\{'loss': |\bMA \d+\.\d+ GB +Max_MA|Model config \w+Config \{"
)
"""How lines begin that are known wherever they stand."""

HEAD = re.compile(
    r"(?:  |\t)File \"|Traceback \(most|\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d+\] \[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\] \[[\w.]+:\d+:"
    r"|\[(?:INFO|WARNING|ERROR)\|[\w./]+:\d+\] (?=20|>>)"
    r"|(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning|Timeout)(?::\s|:?$)"
)
"""How a line begins from which nothing is removed."""

NAME = r"((?=[\w.\-/@+]*\d)[\w/][\w.\-/@+]*)"
"""The pattern of a column with a name in which a number stands, such as a machine: other names, as of a program, may begin a line."""

_RANK = re.compile(r"(?i)(?:^|[^a-z])(?:(?:global_?|mpi|world_?)?rank|r|proc(?:ess)?|task)[ _=:#-]{0,2}(\d{1,5})(?!\d)")
_RAISED = re.compile(r"\w+ {5,}")
"""The error in front of a traceback, as IPython prints it: filled with blanks, while one word and a blank are a column."""

_MACHINE = re.compile(r"[A-Za-z][A-Za-z0-9]*[\w-]*\d[\w-]*(?:\.[a-z][\w.-]*)?")


class PrefixShape:
    """A prefix without its values: a pattern with a group for each column that may vary."""

    def __init__(self, prefix: str, quote: str = "") -> None:
        self.quote = quote
        self.width = len(prefix)
        self.is_filled = bool(re.search(r"\S\s{2,}$", prefix))  # names of different lengths, filled with blanks
        self.words, parts = _pattern(prefix)
        self.pattern = "".join(parts[:-1] if self.is_filled else parts)
        self.regex = re.compile(self.pattern)
        self.is_blank = not prefix.strip()
        self.varying: frozenset[int] = frozenset()

    def cut(self, text: str) -> tuple[int, tuple[str, ...]] | None:
        """Where the inner text begins, and the values of the columns; None for a line of another shape."""
        match = self.regex.match(text)
        if match is None or not match.end():
            return None
        end = match.end()
        if self.is_filled:
            filled = text[end : self.width]
            if not text[end : end + 1].isspace() and text[end:]:
                return None
            end = self.width if filled and not filled.strip() else end + 1
        return end, match.groups()

    def study(self, lines: Iterable[str]) -> None:
        """Learn from the lines around which columns change from line to line, and so do not tell processes apart."""
        rows = [found[1] for line in lines if (found := self.cut(line)) is not None]
        self.varying = frozenset(index for index, column in enumerate(zip(*rows, strict=True)) if changes(column))

    def process(self, values: Sequence[str]) -> str:
        """What tells the process of a line from others."""
        return "|".join((*self.words, *(value for index, value in enumerate(values) if index not in self.varying)))


def changes(column: Sequence[str]) -> bool:
    """Whether a column is a count or a time: almost every line has another value, there are very many, or numbers only grow."""
    distinct = len(set(column))
    if (distinct > 2 and distinct > len(column) / 2) or distinct > max(FEW, len(column) / 8):
        return True
    return distinct > 3 and all(map(str.isdecimal, column)) and all(int(left) <= int(right) for left, right in pairwise(column))


def _pattern(prefix: str) -> tuple[tuple[str, ...], list[str]]:
    """The words of a prefix, and its pattern in parts. A prefix ends exactly: blanks after it are the indentation of the inner line."""
    words: list[str] = []
    parts: list[str] = []
    tokens = list(_TOKEN.finditer(prefix))
    for index, token in enumerate(tokens):
        text, is_last = token[0], index + 1 == len(tokens)
        match token.lastgroup:
            case "time":
                parts.append(_generalized(text))
            case "level":
                parts.append("[A-Za-z]+")
            case "run" if any(map(str.isdigit, text)) and not is_last:
                parts.append(r"(\d+(?:\.\d+)?)" if text.isdecimal() else NAME)
            case "run":
                words.append(text)
                parts.append(re.sub(r"\d+", r"\\d+", re.escape(text)))
            case "space" if is_last:
                parts.append(re.escape(text))
            case "space":
                parts.append(r"\s*" if index == 0 else r"\s+")
            case _:
                parts.append(re.escape(text))
    if len(tokens) > 1 and tokens[-1].lastgroup == "space":
        parts[-1] = rf"(?:{parts[-1]}|\s*$)"  # editors and collectors drop blanks at the end of a line
    return tuple(words), parts


def _generalized(time: str) -> str:
    """The pattern of a time stamp."""
    parts = []
    for token in _VARYING.finditer(time):
        match token.lastgroup:
            case "digits":
                parts.append(r"\d+")
            case "letters":
                parts.append("[A-Za-z]+")
            case "space":
                parts.append(r"\s+")
            case _:
                parts.append(re.escape(token[0]))
    return "".join(parts)


class Prefix(Record):
    """What stood before a line: where the inner text begins, the quote that ends the line, the process, and what the columns tell."""

    end: int
    quote: str = ""
    process: str = ""
    rank: int | None = None
    host: str | None = None


class Shapes:
    """The shapes of a log, the one that was used last first."""

    def __init__(self) -> None:
        self._shapes: list[PrefixShape] = []

    def cut(self, text: str) -> Prefix | None:
        """The learned prefix of a line; None if it has none of the shapes."""
        for index, shape in enumerate(self._shapes):
            found = shape.cut(text)
            if found is not None:
                if index:
                    self._shapes.insert(0, self._shapes.pop(index))
                end, values = found
                return Prefix(end, shape.quote, shape.process(values), rank_in(text[:end]), _host(values))
        return None

    def learn(self, text: str, around: Callable[[], Iterable[str]] = tuple) -> Prefix | None:
        """Learn the prefix of a line with a known inner text from it and the lines around; None without one."""
        inner = INNER.search(text, 0, 2 * LONGEST)
        if inner is None or inner.start() == 0 or inner.start() > LONGEST:
            return None
        if _RAISED.fullmatch(text[: inner.start()]):
            return None
        return self.add(text[: inner.start()], text, around)

    def add(self, prefix: str, text: str, around: Callable[[], Iterable[str]] = tuple) -> Prefix | None:
        """Remember a prefix of a line."""
        quote = prefix[-1] if prefix[-1] in "'\"" and text.rstrip(", ").endswith(prefix[-1]) else ""
        shape = PrefixShape(prefix, quote)
        if all(shape.pattern != known.pattern for known in self._shapes):
            shape.study(around())
            self._shapes = [shape, *self._shapes[: MOST - 1]]
        return self.cut(text)

    def plain(self) -> None:
        """Forget indentation: a line begins without it."""
        if self._shapes and any(shape.is_blank for shape in self._shapes):
            self._shapes = [shape for shape in self._shapes if not shape.is_blank]


def rank_in(prefix: str) -> int | None:
    """The rank that a prefix names."""
    match = _RANK.search(prefix)
    return int(match[1]) if match else None


def _host(values: Sequence[str]) -> str | None:
    """The machine or pod that a prefix names: a name with letters and digits that is not a path or a rank."""
    names = (value for value in values if _MACHINE.fullmatch(value) and not _RANK.search(value))
    return next(names, None)
