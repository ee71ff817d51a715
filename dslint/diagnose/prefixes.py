"""Removes what launchers, containers and collectors put before each line, and keeps what it tells: the rank, the machine, the time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from dslint.diagnose.envelopes import opened, unescaped
from dslint.diagnose.flattened import lines_in
from dslint.diagnose.shapes import HEAD, INNER, Shapes, changes

LONGEST = 1 << 14
"""The most characters of a line that are kept. The longest useful lines are launch commands."""

DEEPEST = 8
"""The most prefixes before a line, one inside the other."""

MOST_AHEAD = 8
"""The lines with different prefixes from which prefixes are learned ahead."""

_DIGITS = re.compile(r"\d+")

_NUMBERED = re.compile(r" {0,3}(\d{1,5}):(?: |(?!\d))")
_NAMED = re.compile(r"([A-Za-z0-9][\w.-]{0,99}): (?=\[20\d\d-|\[rank ?\d+\]|\[W\d|\[E\d)|(worker-\d+|node-?\d+): ")
_HOST = re.compile(r"([A-Za-z0-9][\w.-]{0,99}): ")
_MPI = re.compile(r"\[\d+,(?:mpirank:)?(\d+)(?:,[\w.-]+)?\]<std(?:out|err)>:\s?")
_POD = re.compile(r"\[pod/([\w.-]+)/[\w.-]+\] ")
_RAY = re.compile(r"\([\w.]{1,80} pid=(\d+)(?:, ip=([\d.]+))?\) ")
_RANK = re.compile(r"\[(?:rank ?|default)(\d+)\]:\s?")
_PDSH = re.compile(r"cmd = pdsh (?:-\w+ (?:\d+ )?)*?-w ([\w.,-]+)")
"""The command with which DeepSpeed's launcher starts the other machines: pdsh prints their names before each of their lines."""
_END_OF_ROW = re.compile(r"\s\|\s*$")
"""How a line ends that was copied as a row of a table."""

_QUOTE = re.compile(r"(?:> ?)+")


class LogPlace(NamedTuple):
    """A line of a log: its file and its number, from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class LogLine(NamedTuple):
    """A line without its prefixes. `source` tells apart the processes that wrote to the same log, as far as prefixes do.

    `before` is what was removed from its start.
    """

    place: LogPlace
    text: str
    source: str = ""
    rank: int | None = None
    host: str | None = None
    before: str = ""


Like = Callable[[], Iterable[str]]
"""Gives the lines around a line, without the prefixes that were removed from it."""


class _Layer(NamedTuple):
    """What is known of a line so far, from the prefixes that were removed."""

    text: str
    names: tuple[str, ...] = ()
    rank: int | None = None
    host: str | None = None
    before: str = ""


class Prefixes:
    """Removes the prefixes of lines, one inside the other: those with a known meaning, and those of a shape that is learned."""

    def __init__(self) -> None:
        self.hosts: set[str] = set()
        self.shapes = Shapes()
        self._counts_lines: bool | None = None

    def learn_ahead(self, lines: Iterable[str]) -> None:
        """Learn the shapes of prefixes from the first lines of a log whose inner text is known, for those that stand above them."""
        begin = list(lines)
        known: dict[str, str] = {}
        for line in begin:
            inner = INNER.search(line)
            if inner is not None and inner.start():
                prefix = line[: inner.start()]
                known.setdefault(prefix if _HOST.fullmatch(prefix) else _DIGITS.sub("", prefix), line)
        for line in list(known.values())[:MOST_AHEAD]:
            for _ in self._inside(_Layer(line), DEEPEST, lambda: begin):
                pass

    def strip(self, text: str, place: LogPlace, file_rank: int | None, around: Callable[[], Iterable[str]] = tuple) -> Iterator[LogLine]:
        """The lines inside a line: mostly one. `around` gives the raw lines before and after it, from which columns are learned."""
        if "cmd = pdsh" in text and (machines := _PDSH.search(text)) is not None:
            self.hosts.update(machines[1].split(","))
        for layer in self._inside(_Layer(text, rank=file_rank), DEEPEST, around):
            rank = "" if layer.rank is None else layer.rank
            inner = layer.text[:LONGEST]
            if "|" in layer.before and inner.count("|") == 1:
                inner = _END_OF_ROW.sub("", inner)
            for line in lines_in(inner):
                yield LogLine(place, line, f"{'/'.join(layer.names)}#{rank}", layer.rank, layer.host, layer.before)

    def _inside(self, layer: _Layer, depth: int, around: Callable[[], Iterable[str]] | None) -> Iterator[_Layer]:
        """The innermost layers. Without `around` nothing new is learned."""
        for left in range(depth, 0, -1):
            if HEAD.match(layer.text):
                if around is not None and not layer.before[-1:].isspace():
                    self.shapes.plain()
                break
            record = opened(layer.text)
            if record is not None:
                rank = layer.rank if record.rank is None else record.rank
                host = record.host or layer.host
                names = (*layer.names, record.host or "")
                for part in record.text.split("\n"):
                    yield from self._inside(_Layer(part, names, rank, host, f"{layer.before} {record.time}"), left - 1, around)
                return
            like = partial(self._like, around, DEEPEST - left) if around is not None else None
            following = self._known(layer, like) or self._learned(layer, like)
            if following is None:
                break
            layer = following
        yield layer

    def _known(self, layer: _Layer, like: Like | None) -> _Layer | None:
        """The layer below a prefix with a known meaning."""
        text = layer.text
        if (match := _RANK.match(text) or _MPI.match(text)) is not None:
            return _below(layer, match.end(), rank=int(match[1]))
        if (match := _NUMBERED.match(text)) is not None:
            return _below(layer, match.end(), match[1] if self._names_tasks(like) else "")
        if (match := _POD.match(text) or _RAY.match(text)) is not None:
            return _below(layer, match.end(), match[1])
        match = _NAMED.match(text)
        name = match and (match[1] or match[2])
        if match and name:
            self.hosts.add(name)
            return _below(layer, match.end(), name, host=name)
        match = _HOST.match(text)
        if match and match[1] in self.hosts:
            return _below(layer, match.end(), match[1], host=match[1])
        match = _QUOTE.match(text)
        return _below(layer, match.end()) if match and match.end() else None

    def _learned(self, layer: _Layer, like: Like | None) -> _Layer | None:
        """The layer below a prefix with a learned shape."""
        found = self.shapes.cut(layer.text)
        if found is None and like is not None:
            found = self.shapes.learn(layer.text, like)
        if found is None:
            return None
        below = _below(layer, found.end, found.process, rank=found.rank, host=found.host)
        if not found.quote:
            return below
        inner, _, rest = below.text.rpartition(found.quote)
        return below._replace(text=unescaped(inner)) if not rest.strip(", ;") else below

    def _names_tasks(self, like: Like | None) -> bool:
        """Whether the number before a line is that of a task (of srun), and not that of the line."""
        if self._counts_lines is None and like is not None:
            self._counts_lines = changes([match[1] for line in like() if (match := _NUMBERED.match(line))])
        return not self._counts_lines

    def _like(self, around: Callable[[], Iterable[str]], depth: int) -> Iterator[str]:
        """The lines around, without as many prefixes."""
        for line in around():
            for layer in self._inside(_Layer(line), depth, None):
                yield layer.text


def _below(layer: _Layer, end: int, name: str = "", *, rank: int | None = None, host: str | None = None) -> _Layer:
    """The layer after a prefix that ends at `end`."""
    return _Layer(
        layer.text[end:],
        (*layer.names, name) if name else layer.names,
        layer.rank if rank is None else rank,
        host or layer.host,
        layer.before + layer.text[:end],
    )
