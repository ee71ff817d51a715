"""Turns the lines of logs into events: what was printed, by which rank, at which line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from dslint.diagnose.collect import (
    FOREIGN,
    LONGEST_TRACEBACK,
    BracedBlock,
    Collector,
    MessageReader,
    TracebackReader,
    goes_on,
    of_one_process,
)
from dslint.diagnose.frames import Frame, read_frame
from dslint.diagnose.prefixes import LogLine, LogPlace, Prefixes
from dslint.diagnose.reading import Kept, LogSource, read_lines
from dslint.diagnose.restarts import Restarts
from dslint.diagnose.scan import Scanner, joined
from dslint.diagnose.signs import FREQUENT, SIGNS, Sign

OPEN = 256
"""The most processes that may be in the middle of a traceback or a block at the same time."""

COMPLETE = 500
"""The tracebacks of a job that are read with their frames. Of further ones only the errors count."""

AT_EXIT = "at exit"
"""The mark of an error that Python ignored while a process ended: one in a finalizer may come at any time."""

HOOK = "hook"
"""The mark of an error in sys.excepthook, which only reports the error that ended the program."""

NEXT_FRAME = 5
"""The most lines from one frame of a stack to the next one, with its code, and marks below that."""

NEXT_OF_CHAIN = 2
"""The most lines from the line that announces another exception to that one: an empty line is between them."""

HEADLESS = "headless"
"""The mark of a traceback without its first line."""

MARKS = ("ignored", "stack", HOOK, "next_follows")
"""The kinds of lines that say something of the traceback below them."""

_AT_EXIT = re.compile(r"atexit callback|atexit\._run_exitfuncs|<module 'threading'")
_LATE_RANK = re.compile(r"\S.*\[rank ?(\d{1,5})\]: Traceback \(most recent call last\)")
_BAR = re.compile(r"it/s|s/it")
_TIME = re.compile(r"(?<!\d)(?P<date>20\d\d-\d\d-\d\d)[ T_](?P<time>\d\d:\d\d:\d\d)")


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Something that a log tells: its kind (that of a sign, or "config", "model", "raised"), the values, and the line that it is from.

    `when` is the last time stamp that the log showed up to there, as text. `frames` is the traceback of a "raised" event.
    """

    kind: str
    place: LogPlace
    text: str
    values: dict[str, str] = field(default_factory=dict)
    rank: int | None = None
    source: str = ""
    host: str | None = None
    when: str | None = None
    frames: tuple[Frame, ...] = ()

    def number(self, name: str) -> int | None:
        """A value as an integer, None if the line does not tell it."""
        value = self.values.get(name)
        if not value:
            return None
        try:
            return int(value.replace(",", "").replace("_", ""))
        except ValueError:
            return None

    def real(self, name: str) -> float | None:
        """A value as a number."""
        value = self.values.get(name)
        if not value:
            return None
        try:
            return float(value.replace(",", ""))
        except ValueError:
            return None


def _may_go_on(line: LogLine, values: dict[str, str]) -> bool:
    """Whether further lines may belong to the message of an error. One without a colon has no message: below it stands something else."""
    return goes_on(values["message"]) and not line.text.rstrip().endswith(values["kind"])


def _of_its_rank(line: LogLine) -> LogLine:
    """A line in which a traceback begins, as one of the rank that prints it: it may stand behind a progress bar that has no line end."""
    match = _LATE_RANK.search(line.text)
    if match:
        return line._replace(source=f"{line.source.rpartition('#')[0]}#{match[1]}", rank=int(match[1]))
    if line.rank is not None and _BAR.search(line.before):
        return line._replace(source=f"#{line.rank}")
    return line


class Recogniser:
    """Recognises the lines of all signs. `scanner` finds lines that contain a literal of one, with `bounded` not all of frequent ones."""

    def __init__(self, signs: Sequence[Sign] = SIGNS, *, bounded: bool = True) -> None:
        self._signs: dict[str, list[Sign]] = {}
        for sign in signs:
            for literal in sign.literals:
                self._signs.setdefault(literal, []).append(sign)
        frequent = [literal for literal, found in self._signs.items() if all(sign.kind in FREQUENT for sign in found)]
        self.scanner = Scanner(self._signs, frequent if bounded else ())
        self._literals = _any_of(tuple(self._signs))

    def find(self, text: str) -> Iterator[tuple[str, dict[str, str]]]:
        """The kinds of a line, with the values of each."""
        for literal in dict.fromkeys(self._literals.findall(text)):
            for sign in self._signs[literal]:
                match = sign.pattern.search(text)
                if match:
                    values = {name: value for name, value in match.groupdict().items() if value is not None}
                    if sign.kind == "error":
                        values["kind"], values["message"] = of_one_process(
                            values.pop("bare", "") or values["kind"], values.get("message", "")
                        )
                    yield sign.kind, values


@lru_cache(maxsize=8)
def _any_of(literals: tuple[str, ...]) -> re.Pattern[str]:
    """What finds the longest of the literals at a position. Every log is read with the same."""
    return re.compile(joined((word, word) for word in map(str.encode, literals)).decode())


class EventReader:
    """Reads the events of logs, one log after the other. With `bounded` it leaves out most jobs of a log that starts very many."""

    def __init__(self, *, bounded: bool = True) -> None:
        self.recogniser = Recogniser(bounded=bounded)
        self.prefixes = Prefixes()
        self.kept = Kept()
        self.when: str | None = None
        self._open: dict[str, Collector] = {}
        self._ignored: dict[str, list[tuple[str, int]]] = {}
        self._follows: dict[str, tuple[int, str]] = {}
        self._hooks: set[str] = set()
        self._bounded = bounded
        self._restarts: Restarts | None = None
        self._tracebacks = 0
        self._unread: dict[str, tuple[int, dict[str, str]]] = {}
        self._behind_bar: str | None = None
        self._interrupted: dict[Collector, Collector] = {}
        """The last traceback that began within another one of the same source, and that other one."""
        self._stacks: dict[str, int] = {}

    def read(self, sources: Iterable[LogSource]) -> Iterator[LogEvent]:
        """The events of logs, in the order of the lines."""
        for source in sources:
            self.when = None
            self._restarts = Restarts() if self._bounded else None
            for line in read_lines(source, self.recogniser.scanner, self.is_busy, self.prefixes, self._restarts, self.kept):
                yield from self.take(line)
            yield from self.finish()

    def is_busy(self) -> bool:
        """Whether some traceback or block is not complete, so that every next line is needed."""
        return bool(self._open)

    def take(self, line: LogLine) -> Iterator[LogEvent]:
        """The events of one more line."""
        stamp = _TIME.search(line.text, 0, 200) or (_TIME.search(line.before) if line.before else None)
        if stamp:
            self.when = f"{stamp['date']} {stamp['time']}"
        if self._behind_bar is not None and line.source not in self._open and read_frame(line.text):
            self._open[line.source] = self._open.pop(self._behind_bar)
        self._behind_bar = None
        collector = self._open.get(line.source)
        if collector is not None:
            consumed = collector.take(line)
            if collector.is_complete:
                del self._open[line.source]
                yield from self._collected(collector)
            if consumed:
                if collector.is_complete and isinstance(collector, TracebackReader) and "ignored" not in collector.marks:
                    yield from self._recognised(line, without=("error", "traceback"))
                return
        yield from self._recognised(line)

    def finish(self) -> Iterator[LogEvent]:
        """The events that are open at the end of a log."""
        waiting, self._open = self._open, {}
        for collector in waiting.values():
            is_head = isinstance(collector, TracebackReader) and not collector.has_begun
            read = self._interrupted.get(collector, collector) if is_head else collector
            read.is_complete = True
            yield from self._collected(read, is_end=True)

    def _recognised(self, line: LogLine, without: tuple[str, ...] = ()) -> Iterator[LogEvent]:
        for kind, values in self.recogniser.find(line.text):
            if kind in without:
                continue
            if kind in ("traceback", "frame"):
                self._begin_traceback(line, with_head=kind == "traceback")
            elif kind in ("config_begins", "model_begins"):
                self._begin(line, BracedBlock(line, kind.removesuffix("_begins"), values))
            elif kind in MARKS:
                self._mark(kind, line)
            elif kind == "error" and self._is_ignored(line):
                yield self._event("raised", line, {**values, "ignored": self._ignored[line.source].pop()[0]})
            elif kind == "error" and self._ends_unread(line):
                yield self._event("raised", line, {**values, **self._unread.pop(line.source)[1]})
            elif kind == "error" and self._follows_at_once(line) and not goes_on(values["message"]):
                yield self._event("raised", line, {**values, "follows": self._follows.pop(line.source)[1]})
            elif kind == "error" and _may_go_on(line, values) and line.source not in self._open:
                self._begin(line, MessageReader(line, values))
            elif kind == "launch":
                self._tracebacks = 0
                yield self._event(kind, line, {**values, **self._left_out()})
            else:
                yield self._event(kind, line, values)

    def _mark(self, kind: str, line: LogLine) -> None:
        """Remember what a line says of the traceback that follows it."""
        match kind:
            case "ignored":
                self._ignore(line, AT_EXIT if _AT_EXIT.search(line.text) else "yes")
            case "stack":
                self._stacks[line.source] = line.place.line
            case "hook":
                self._hooks.add(line.source)
            case "next_follows":
                self._follows[line.source] = line.place.line, "raised from" if "direct cause" in line.text else "handled"

    def _left_out(self) -> dict[str, str]:
        """The number of jobs that were left out before the next one."""
        if not (self._restarts and self._restarts.left_out):
            return {}
        number, self._restarts.left_out = self._restarts.left_out, 0
        return {"left_out": str(number)}

    def _begin_traceback(self, line: LogLine, *, with_head: bool) -> None:
        """Begin to read a traceback, or remember where one begins that is not read."""
        if not with_head:
            self._begin_headless(line)
            return
        line = _of_its_rank(line)
        marks = {"ignored": self._ignored[line.source].pop()[0]} if self._ignored.get(line.source) else {}
        other = self._open.get(line.source)
        if marks and isinstance(other, TracebackReader) and "ignored" in other.marks:  # of two processes that write at the same time
            self._ignore(line, other.marks["ignored"])
        if line.source in self._follows:
            marks["follows"] = self._follows.pop(line.source)[1]
        if line.source in self._hooks:
            self._hooks.discard(line.source)
            marks[HOOK] = "yes"
        self._tracebacks += 1
        if self._tracebacks <= COMPLETE:
            reader = TracebackReader(line, marks)
            if isinstance(other, TracebackReader) and other.has_begun:
                self._interrupted = {reader: other}
            self._begin(line, reader)
            if (
                _BAR.search(line.before) and line.source in self._open
            ):  # the prefix of this line stands before the bar, and was lost with it
                self._behind_bar = line.source
        elif len(self._unread) < OPEN or line.source in self._unread:
            self._unread[line.source] = (line.place.line, marks)

    def _begin_headless(self, line: LogLine) -> None:
        """Begin to read a traceback whose first line was cut off, or that another process interrupted."""
        if 0 < line.place.line - self._stacks.get(line.source, -NEXT_FRAME) <= NEXT_FRAME:
            self._stacks[line.source] = line.place.line  # the next frame of the same stack
            return
        if line.source in self._open or self._tracebacks >= COMPLETE or self._is_ignored(line):
            return
        self._tracebacks += 1
        reader = TracebackReader(line, {HEADLESS: "yes"})
        reader.take(line)
        self._begin(line, reader)

    def _ignore(self, line: LogLine, mark: str) -> None:
        """Expect a traceback of an error that Python ignores."""
        waiting = self._ignored.get(line.source, [])
        near = [one for one in waiting if one[1] <= line.place.line <= one[1] + FOREIGN]
        self._ignored[line.source] = [*near, (mark, line.place.line)]

    def _is_ignored(self, line: LogLine) -> bool:
        """Whether an error without a traceback ends one that Python ignored, and that began in the one of another process."""
        return any(begin <= line.place.line <= begin + FOREIGN for _, begin in self._ignored.get(line.source, [])[-1:])

    def _ends_unread(self, line: LogLine) -> bool:
        """Whether an error ends a traceback that is not read."""
        begin, _ = self._unread.get(line.source, (None, None))
        return begin is not None and begin < line.place.line <= begin + LONGEST_TRACEBACK

    def _follows_at_once(self, line: LogLine) -> bool:
        """Whether an error is the other exception of a chain, and its traceback was left out of what was pasted."""
        begin, _ = self._follows.get(line.source, (None, None))
        return begin is not None and begin < line.place.line <= begin + NEXT_OF_CHAIN and line.source not in self._open

    def _begin(self, line: LogLine, collector: Collector) -> None:
        if len(self._open) < OPEN:
            self._open[line.source] = collector

    def _collected(self, collector: Collector, *, is_end: bool = False) -> Iterator[LogEvent]:
        """What was collected. Frames without a head and without an error are those of a cut traceback only where the log ends."""
        for kind, line, values, frames in collector.result():
            if HEADLESS in values and not values["kind"] and not is_end:
                continue
            yield LogEvent(kind, line.place, line.text, values, line.rank, line.source, line.host, self.when, frames)

    def _event(self, kind: str, line: LogLine, values: dict[str, str]) -> LogEvent:
        return LogEvent(kind, line.place, line.text, values, line.rank, line.source, line.host, self.when)
