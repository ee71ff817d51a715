"""Extract the errors from the output of a failed program: a line, a traceback, or the whole log of a job.

Parts that vary from run to run (numbers, paths, addresses, the contents of objects) become placeholders, so that an error can be compared
with recorded errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.record import Record

LONGEST = 600
"""The number of characters of a message that are compared: longer messages usually end with a dump."""

LAST = 50
"""The maximum number of distinct errors read from a text, or of lines if the text names no error."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PREFIX = re.compile(
    r"""^(?:
        \[?(?:rank\s?|default)\d+\]?:\s?  # of torchrun
        | [\w.-]+:\s(?=\s|Traceback|\[rank|[\w.]+(?:Error|Exception)\b)  # of pdsh: the name of the node
        | (?:\d{4}-)?\d\d-\d\d[T\s]\d\d:\d\d:\d\d[\d.,Z+:]*\s  # the time
        | \[\d{4}-\d\d-\d\d[^\]]*\]\s
        | \[?(?:ERROR|CRITICAL|INFO|WARNING)\]?[:\s]\s*
        | E\s{3}  # of pytest
        | [|>]\s?
    )+""",
    re.VERBOSE,
)
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning)|Exception)(?:: ?(.*))?$")
_LISTED = re.compile(r"^\d+ validation errors? for [\w.]+")
_FRAME = re.compile(
    r'^\s*File ".*", line \d+|^\s*[\^~]+\s*$|^Traceback \(most recent|^[EFIW]\d{4} \d\d:|^(?:During handling|The above exception)'
)
_PYDANTIC = re.compile(r"(?<!\d)(\d++) validation errors? for ([\w.]+)(.*)", re.DOTALL)
_FAULT = re.compile(r"[\[(]type=([\w.]+)(?:, input_value=.{0,2000}?, input_type=\w+|; [^)]{0,2000})?[\])]", re.DOTALL)
_NO_PLACE = re.compile(r"(?:Input should|Value error|Assertion failed|Field required|Extra inputs|Unable to)\b")
_REFUSED = re.compile(r"^\s*(?:(?P<key>[A-Za-z_][\w.]*)\s*:?\s+)?Extra inputs are not permitted\b")
_KEY = re.compile(r"[A-Za-z_][\w.]{0,200}")
_LINK = re.compile(r"\s*For further information visit \S+")

_VARYING = (
    (re.compile(r"https?://\S+"), "<url>"),
    (re.compile(r"(?<![\w.])(?:[A-Za-z]:)?(?:[\\/][\w.@+-]+){2,}[\\/]?"), "<path>"),
    (re.compile(r"0x[0-9a-fA-F]+"), "#"),
    (re.compile(r"\{[^{}]*\}"), "<...>"),
    (re.compile(r"\[[^\[\]]*\]"), "<...>"),
    (re.compile(r"(?<![\w.])-?\d+(?:[.,_]\d+)*(?:e[+-]?\d+)?(?!\w)"), "#"),
    (re.compile(r"\s+"), " "),
)


class LoggedError(Record):
    """An error: its type ("" if unknown), its message with placeholders for the varying parts, and the key it names.

    `where` is the location that pydantic prints before a message: a dotted path inside the section.
    """

    kind: str
    message: str
    where: str = ""

    def __str__(self) -> str:
        at = f"{self.where}: " if self.where else ""
        return f"{self.kind}: {at}{self.message}" if self.kind and self.message else self.kind or self.message


def errors_in(text: str) -> list[LoggedError]:
    """The errors in a text, each once, the last one first: the error that ends a job stands at the end of its log.

    If the text names no error type, each line counts as a message.
    """
    lines = clean_lines(text)
    told = dict.fromkeys(line for line in reversed(lines) if line.strip())
    found = [*_named(lines), *_keys_without_head(lines)][::-1] or [raised for line in list(told)[:LAST] for raised in read_error("", line)]
    return list(dict.fromkeys(found))[:LAST]


def _keys_without_head(lines: list[str]) -> Iterator[LoggedError]:
    """What pydantic says of keys that DeepSpeed does not know, where the line with their number and section was not copied."""
    if any(_PYDANTIC.search(line) for line in lines):
        return
    above = ""
    for line in lines:
        refused = _REFUSED.match(line)
        if refused:
            key = refused["key"] or (above.strip() if _KEY.fullmatch(above.strip()) else "")
            yield LoggedError("ValidationError", "Extra inputs are not permitted (extra_forbidden)", key)
        above = line if line.strip() else above


def clean_lines(text: str) -> list[str]:
    """The lines of a text without colours and without the prefixes of launchers."""
    return [_PREFIX.sub("", _ANSI.sub("", line)) for line in text.replace("\r", "\n").split("\n")]


def read_error(kind: str, message: str) -> list[LoggedError]:
    """An error, or the list of errors inside a pydantic ValidationError."""
    listed = _PYDANTIC.search(message)
    if listed is None:
        return [LoggedError(kind, normal(message))]
    model, text = listed[2].rpartition(".")[2], _LINK.sub("", listed[3])
    faults: list[LoggedError] = []
    begin = 0
    for match in _FAULT.finditer(text):  # what is told of a fault stands before its type
        faults.append(_fault(model, " ".join(text[begin : match.start()].split()), match[1]))
        begin = match.end()
    return faults or [LoggedError("ValidationError", normal(listed[2]))]


def normal(message: str) -> str:
    """A message in one line, with placeholders for numbers, paths, addresses and the contents of objects."""
    message = message[: 4 * LONGEST]
    for pattern, stand_in in _VARYING:
        message = pattern.sub(stand_in, message)
    return message.strip()[:LONGEST]


def _fault(model: str, told: str, name: str) -> LoggedError:
    where, _, message = ("", "", told) if _NO_PLACE.match(told) else told.partition(" ")
    return LoggedError("ValidationError", f"{model}: {normal(message)} ({name})", where)


def _named(lines: list[str]) -> Iterator[LoggedError]:
    """The errors that begin with a type at the start of a line, each with the lines up to the next frame or empty line."""
    kind = ""
    told: list[str] = []
    for line in [*lines, ""]:
        head = _RAISED.match(line) if not line.startswith(" ") else None
        listed = _LISTED.match(line)
        if kind and (head or listed or not line.strip() or _FRAME.match(line)):
            yield from read_error(kind, "\n".join(told))
            kind = ""
        if head:
            kind, told = head[1], [head[2] or ""]
        elif listed:
            kind, told = "ValidationError", [line]
        elif kind and len(told) < 60:
            told.append(line)
