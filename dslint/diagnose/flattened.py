"""Tracebacks whose lines were copied into one: from a page that joins lines, or from a terminal that fills them with blanks."""

from __future__ import annotations

import re

HEAD = "Traceback (most recent call last):"

_FRAME = re.compile(r'\s(File "[^"\n]{1,500}", line \d{1,9}, in [\w<>.]{1,200})(?=\s|$)')
_ERROR = re.compile(r"\s((?:[A-Za-z_]\w{0,80}\.){0,8}[A-Z]\w{0,80}(?:Error|Exception|Interrupt)(?:: |\s*$))")
_NEXT = re.compile(r"\s(During handling of the above exception|The above exception was the direct cause)")


def lines_in(text: str) -> list[str]:
    """The lines of a text that holds a whole traceback; the text itself if it holds none."""
    parts = text.split(HEAD)
    if not any(_FRAME.search(part) for part in parts[1:]):
        return [text]
    lines = [parts[0].rstrip()] if parts[0].strip() else []
    for part in parts[1:]:
        lines += [HEAD, *_below(part)]
    return lines


def _below(text: str) -> list[str]:
    """The lines of a traceback below the first one."""
    frames = list(_FRAME.finditer(text))
    ends = [frame.start() for frame in frames[1:]] + [len(text)]
    lines: list[str] = []
    rest = text
    for frame, end in zip(frames, ends, strict=True):
        lines.append(f"  {frame[1]}")
        rest = text[frame.end() : end]
        if end < len(text) and rest.strip():
            lines.append(f"    {rest.strip()}")
    error = _ERROR.search(rest)
    code, message = (rest[: error.start(1)], rest[error.start(1) :]) if error else (rest, "")
    if frames and code.strip():
        lines.append(f"    {code.strip()}")
    following = _NEXT.search(message)
    lines.append(message[: following.start()].strip() if following else message.strip())
    return [*lines, "", message[following.start() :].strip(), ""] if following else [line for line in lines if line]
