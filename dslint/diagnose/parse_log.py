"""Read what a program printed when it died: a line, a traceback, or the whole log of a job, down to the errors in it.

What varies from run to run (numbers, paths, addresses, the contents of objects) is made the same, so that a text of today can be compared
with a record of another day.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

LONGEST = 600
"""Characters of a message that count: longer ones go on with a dump of something."""

LAST = 50
"""How many different errors of a text count, or lines where it names none."""

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
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning))(?:: ?(.*))?$")
_LISTED = re.compile(r"^\d+ validation errors? for [\w.]+")
_FRAME = re.compile(
    r'^\s*File ".*", line \d+|^\s*[\^~]+\s*$|^Traceback \(most recent|^[EFIW]\d{4} \d\d:|^(?:During handling|The above exception)'
)
_PYDANTIC = re.compile(r"(\d+) validation errors? for ([\w.]+)(.*)", re.DOTALL)
_FAULT = re.compile(r"(.*?)[\[(]type=([\w.]+)(?:, input_value=.*?, input_type=\w+|; [^)]*)?[\])]", re.DOTALL)
_NO_PLACE = re.compile(r"(?:Input should|Value error|Assertion failed|Field required|Extra inputs|Unable to)\b")
_PYDANTIC_1 = {"value_error.extra": ("Extra inputs are not permitted", "extra_forbidden")}
"""Faults that pydantic 1, and so DeepSpeed up to 0.14, words otherwise."""

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


class Raised(NamedTuple):
    """An error: its type ("" if the text does not say), its message with the varying parts made the same, and the place it names.

    `where` is what pydantic says before a message: a dotted path from the section on.
    """

    kind: str
    message: str
    where: str = ""

    def __str__(self) -> str:
        at = f"{self.where}: " if self.where else ""
        return f"{self.kind}: {at}{self.message}" if self.kind and self.message else self.kind or self.message


def errors_in(text: str) -> list[Raised]:
    """The errors in a text, each once, the last first: what ends a job stands at the end of its log.

    A text without the name of an error is taken line by line, each as a message.
    """
    lines = [_PREFIX.sub("", _ANSI.sub("", line)) for line in text.replace("\r", "\n").split("\n")]
    told = dict.fromkeys(line for line in reversed(lines) if line.strip())
    found = list(_named(lines))[::-1] or [raised for line in list(told)[:LAST] for raised in read_error("", line)]
    return list(dict.fromkeys(found))[:LAST]


def read_error(kind: str, message: str) -> list[Raised]:
    """An error, or the several that one of pydantic's is made of."""
    listed = _PYDANTIC.search(message)
    if listed is None:
        return [Raised(kind, normal(message))]
    faults = [_fault(listed[2].rpartition(".")[2], " ".join(told.split()), name) for told, name in _FAULT.findall(_LINK.sub("", listed[3]))]
    return faults or [Raised("ValidationError", normal(listed[2]))]


def normal(message: str) -> str:
    """A message in one line, with numbers, paths, addresses and the contents of objects made the same."""
    message = message[: 4 * LONGEST]
    for pattern, stand_in in _VARYING:
        message = pattern.sub(stand_in, message)
    return message.strip()[:LONGEST]


def _fault(model: str, told: str, name: str) -> Raised:
    where, _, message = ("", "", told) if _NO_PLACE.match(told) else told.partition(" ")
    message, name = _PYDANTIC_1.get(name, (message, name))
    return Raised("ValidationError", f"{model}: {normal(message)} ({name})", where)


def _named(lines: list[str]) -> Iterator[Raised]:
    """The errors whose type is named at the beginning of a line, each with the lines that follow up to the next frame or empty line."""
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
