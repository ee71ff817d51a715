"""Collects what a log prints over several lines: tracebacks, configs, model configs. Each collector belongs to one process."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.diagnose.frames import Frame, read_frame
from dslint.diagnose.prefixes import LogLine

LONGEST_BLOCK = 4000
"""The most lines of a block in brackets, such as a printed config: one whose last bracket is cut off does not take the rest of the log."""

LONGEST_TRACEBACK = 400
"""The most lines of a traceback: one without its last line does not take the rest of the log. Python shortens a recursion."""

FOREIGN = 40
"""The most lines of other processes in a traceback: without prefixes, processes interrupt each other."""

LONGEST_MESSAGE = 30
"""The most lines of a message."""

LONGEST_BARE = 5
"""The most lines of a message without a traceback: nothing says whether they are of the same process."""

LONGEST_LINE = 2000
"""The most characters of a further line of a message."""

FRAMES = 60
"""The innermost frames that are kept."""

BOX = ("│", "╭", "╰")
"""How the lines of a traceback begin that rich prints."""

WIDEST_BOX = 100
"""The most columns of such a box. A narrower one is as wide as the terminal, where the message below it is wrapped, too."""

OF_TORCHRUN = "ChildFailedError"
"""The error below which torchrun reports how each process ended."""

ARROWS = ("--", "->")
"""How IPython marks the line that raised, among those before and after it."""

_NUMBERED = re.compile(r" {1,8}\d+ ")
_RAISED = re.compile(  # Ray names the error of the worker in brackets
    r"^(?P<kind>(?:[A-Za-z_][\w]*\.)*"
    r"(?:[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning|Failure|Mismatch\w*|Timeout|Expired|Iteration)|Exception)(?:\([A-Z]\w*\))?)"
    r"(?::\s?(?P<message>.*))?$"
)
_NAMED_FIRST = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)) {2,}Traceback ")
"""How IPython begins a traceback: with the error that ends it."""

_OTHER_KIND = re.compile(r"^(?P<kind>(?:[a-z_]\w*\.)+(?:[A-Z]\w+|timeout))(?:: (?P<message>.*))?$")
_GOES_ON = re.compile(r"(?:^|:)\s*$|validation errors? for|mismatch|Please correct|NCCL version [\d.]+$")
_OPEN = re.compile(r"\s(?:is|not|equal|to|the|a|an|of|and|or|in|with|for|by|from|[*+=]|!=)$")
"""How a line ends that was wrapped within a sentence."""

_WORD_WRAPPED = re.compile(r".{40,100}[^\s.!?:;)\]] ")
"""A line that rich wrapped, which leaves the blank behind the last word."""

_NEXT = re.compile(
    r"\[|Traceback|During |The above|[EWIF]\d{3,4} |terminate called|wandb: |Exception ignored in|srun: |slurmstepd: |20\d\d-\d\d-\d\d[ T]"
    r"|\S+\.py:\d+: \w*Warning: "
)
"""How a line begins that another printer than an exception prints below its message."""

Collected = tuple[str, LogLine, dict[str, str], tuple[Frame, ...]]


class Collector:
    """Takes lines until it is complete."""

    is_complete = False

    def take(self, line: LogLine) -> bool:
        """Take the next line of the process; False if the line does not belong here."""
        raise NotImplementedError

    def result(self) -> Iterator[Collected]:
        """What was collected: kind, line, values, frames."""
        raise NotImplementedError


class BracedBlock(Collector):
    """The lines from an opening brace to the brace that closes it, at the start of a line."""

    def __init__(self, line: LogLine, kind: str, values: dict[str, str]) -> None:
        self.line, self.kind, self.values = line, kind, values
        self.lines = ["{" + line.text.partition("{")[2]]
        self.depth = _depth(self.lines[0])
        self.is_complete = self.depth <= 0

    def take(self, line: LogLine) -> bool:
        self.lines.append(line.text)
        self.depth += _depth(line.text)
        self.is_complete = self.depth <= 0 or len(self.lines) > LONGEST_BLOCK
        return True

    def result(self) -> Iterator[Collected]:
        yield self.kind, self.line, {**self.values, "text": "\n".join(self.lines)}, ()


def _depth(text: str) -> int:
    return text.count("{") - text.count("}")


class TracebackReader(Collector):
    """A traceback, up to the last line of its message. Its event is at the line of the exception, or of a cut traceback at the line of the
    innermost frame, and has the values in `marks`.
    """

    def __init__(self, line: LogLine, marks: dict[str, str]) -> None:
        self.line, self.marks, self.innermost = line, marks, line
        self.frames: list[Frame] = []
        self.raised: re.Match[str] | None = None
        named = _NAMED_FIRST.match(line.text)
        self.named = named[1] if named else ""
        self.message: list[str] = []
        self.is_indented = False
        """Whether all lines of the message after the first one are indented, as those of a list are."""
        self.seen = self.foreign = self.width = self.last = self.joined = self.blank = 0

    @property
    def has_begun(self) -> bool:
        """Whether more than the first line was read."""
        return bool(self.frames) or self.raised is not None

    def take(self, line: LogLine) -> bool:
        self.seen += 1
        if self.raised is not None:
            return self._continue(line)
        frame = read_frame(line.text)
        if frame:
            self.frames, self.innermost = [*self.frames[-FRAMES:], frame], line
            return True
        if not line.text or line.text.startswith((" ", "\t", *ARROWS, *BOX)):
            self.blank += not line.text
            if line.text.startswith(BOX):
                self.width = max(self.width, len(line.text.rstrip()))
            is_code = line.text.startswith(ARROWS if _NUMBERED.match(line.text) else (" ", "\t", *ARROWS))
            if self.frames and is_code and not line.text.lstrip().startswith('File "'):  # a frame that was cut off
                code = self.frames[-1].code
                self.frames[-1] = self.frames[-1].with_code(line.text)
                self.innermost = line if self.frames[-1].code != code else self.innermost
            self.is_complete = self.seen > LONGEST_TRACEBACK
            return True
        raised = _RAISED.match(line.text) or (_OTHER_KIND.match(line.text) if self.frames else None)
        if raised:
            self.raised, self.line = raised, line
            self.message = [raised["message"] or ""]
            self.last = len(line.text.rstrip())
            ends = raised["message"] is None or raised["kind"].endswith(OF_TORCHRUN)
            self.is_complete = ends or (not goes_on(self.message[0]) and not self._is_wrapped())
            return True
        self.foreign += 1
        self.is_complete = self.foreign > FOREIGN
        return False

    def _continue(self, line: LogLine) -> bool:
        """Take a further line of the message, which ends at an empty line or at the next thing that is printed."""
        if not line.text.strip() and self.blank >= len(self.frames) > 0:
            return True  # a copy with an empty line after each line
        if (
            not line.text.strip()
            or _NEXT.match(line.text)
            or _RAISED.match(line.text)
            or (self.is_indented and not line.text.startswith((" ", "\t")))
        ):
            self.is_complete = True
            return not line.text.strip()
        if _is_open(self.message[-1]) or self._is_wrapped(line.text):
            self.message[-1] = f"{self.message[-1].rstrip()} {line.text[:LONGEST_LINE]}".lstrip()
            self.last = len(line.text.rstrip())
            self.joined += 1
            self.is_complete = self.joined > LONGEST_MESSAGE or not (goes_on(self.message[-1]) or self._is_wrapped())
            return True
        if not _GOES_ON.search(self.message[0]) and len(self.message) == 1:
            self.is_complete = True  # the first line was only long
            return False
        if len(self.message) == 1:
            self.is_indented = line.text.startswith((" ", "\t"))
        self.message.append(line.text[:LONGEST_LINE])
        self.is_complete = len(self.message) > LONGEST_MESSAGE
        return True

    def _is_wrapped(self, following: str = "") -> bool:
        """Whether the terminal wrapped the last line of the message: below a box the next word had no place in it. Without the line
        that follows: whether it may be.
        """
        if not 0 < self.last <= self.width < WIDEST_BOX:
            return False
        return self.last + 1 + len(following.split(maxsplit=1)[0]) > self.width if following else 2 * self.last > self.width

    def result(self) -> Iterator[Collected]:
        if self.raised is None and not self.frames:
            if self.seen > 1:
                yield "unread", self.line, self.marks, ()
            return
        kind, message = self.raised["kind"] if self.raised else self.named, "\n".join(self.message)
        kind, message = of_one_process(kind, message)
        yield (
            "raised",
            self.line if self.raised or self.named else self.innermost,
            {"kind": kind, "message": message, **self.marks},
            tuple(self.frames),
        )


class MessageReader(TracebackReader):
    """The message of an error without a traceback, whose first line says that it goes on."""

    def __init__(self, line: LogLine, values: dict[str, str]) -> None:
        super().__init__(line, {})
        self.values = values
        self.message = [values["message"]]

    def take(self, line: LogLine) -> bool:
        taken = self._continue(line)
        self.is_complete |= len(self.message) > LONGEST_BARE
        return taken

    def result(self) -> Iterator[Collected]:
        yield "error", self.line, {**self.values, "message": "\n".join(self.message)}, ()


def goes_on(message: str) -> bool:
    """Whether the next line belongs to a message, too."""
    return bool(_GOES_ON.search(message) or _is_open(message))


def _is_open(message: str) -> bool:
    """Whether the last line of a message was wrapped within a sentence."""
    last = message.rpartition("\n")[2]
    return bool(_OPEN.search(last) or _WORD_WRAPPED.fullmatch(last))


BEGINNING = 20
"""The first characters of a message by which its repetition is known."""

_REPEATED = re.compile(r"(?P<kind>[A-Za-z_][\w.]{5,}?)(?P=kind)+")


def of_one_process(kind: str, message: str) -> tuple[str, str]:
    """An error that several processes print at once, as one of them prints it alone: "ValueErrorValueError: : nono" is "ValueError: no"."""
    repeated = _REPEATED.fullmatch(kind)
    if repeated is None:
        return kind, message
    number = len(kind) // len(repeated["kind"])
    first = message.partition("\n")[0].strip(": ")
    part = first[: len(first) // number]
    if part and part * number == first:
        return repeated["kind"], part
    again = first.find(first[:BEGINNING], 1)  # with other numbers
    return repeated["kind"], first[:again] if len(first) > BEGINNING and again > 0 else first
