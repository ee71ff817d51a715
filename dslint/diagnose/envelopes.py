"""Takes the text out of what collectors of logs wrap around each line: JSON, logfmt, members of pretty-printed JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from dslint.record import Record

TEXTS = ("message", "msg", "log", "text", "line", "body", "content", "textPayload", "MESSAGE", "event", "data", "_raw", "@message")
"""The fields that hold the text of a record, in the formats of docker, containerd, fluentd, journald, GCP, CloudWatch and of loggers."""

ERRORS = ("exc_info", "exception", "exc", "stack_trace", "stacktrace", "stack", "traceback", "error")
"""The fields that hold a traceback next to it."""

RANKS = ("rank", "global_rank", "RANK", "world_rank")
HOSTS = ("hostname", "host", "node", "node_name", "_HOSTNAME", "pod_name", "pod", "nodeName", "instance")
TIMES = ("time", "timestamp", "@timestamp", "ts", "asctime", "date", "timeStamp", "datetime")

DEEPEST = 4
"""The depth of a record to which fields are looked for."""

_RECORD = re.compile(r"\{\s*\"")
_MEMBER = re.compile(r"^\s*\"(?:textPayload|message|msg|log|text|line|MESSAGE|content)\":\s*(\"(?:[^\"\\]|\\.)*\"),?\s*$")
_LOGFMT = re.compile(r"(?:^|\s)(?:msg|message|log|text|line)=(\"(?:[^\"\\]|\\.)*\")(?=\s+[\w.]+=|\s*$)")
_PAIR = re.compile(r"(?<!\S)([A-Za-z_][\w.]*)=(\"(?:[^\"\\]|\\.)*\"|\S+)")


class OpenedRecord(Record):
    """The text of a record, and what its other fields tell."""

    text: str
    rank: int | None = None
    host: str | None = None
    time: str = ""


def opened(line: str) -> OpenedRecord | None:
    """The text inside a line; None for a line that is not a record with a text."""
    found = _json(line) if "{" in line and line.rstrip().endswith("}") else None
    if found is None and '="' in line:
        found = _logfmt(line)
    if found is None and line.lstrip().startswith('"'):
        member = _MEMBER.match(line)
        found = OpenedRecord(_unquoted(member[1])) if member else None
    return found


def _json(line: str) -> OpenedRecord | None:
    begin = _RECORD.search(line)
    if begin is None:
        return None
    try:
        record = json.loads(line[begin.start() :])
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    fields = dict(reversed(list(_fields(record, DEEPEST))))  # of equal names the outermost counts
    texts = [value for name in TEXTS if isinstance(value := fields.get(name), str) and value]
    errors = [value for name in ERRORS if isinstance(value := fields.get(name), str) and "\n" in value]
    if not texts and not errors:
        return None
    parts = dict.fromkeys([*texts[:1], *(error for error in errors if error not in (texts or [""])[0])])
    return OpenedRecord(
        "\n".join(part.rstrip("\n") for part in parts), _number(fields, RANKS), _word(fields, HOSTS), _word(fields, TIMES) or ""
    )


def _fields(record: dict[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if not isinstance(value, dict):
            yield name, value
    for value in record.values():
        if isinstance(value, dict) and depth > 1:
            yield from _fields(value, depth - 1)


def _logfmt(line: str) -> OpenedRecord | None:
    match = _LOGFMT.search(line)
    if match is None or len(_PAIR.findall(line)) < 2:
        return None
    fields = {name: value.strip('"') for name, value in _PAIR.findall(line)}
    return OpenedRecord(_unquoted(match[1]), _number(fields, RANKS), _word(fields, HOSTS), _word(fields, TIMES) or "")


def _number(fields: dict[str, Any], names: tuple[str, ...]) -> int | None:
    value = next((str(fields[name]) for name in names if name in fields), "")
    return int(value) if value.isdecimal() and len(value) < 6 else None


def _word(fields: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((value for name in names if isinstance(value := fields.get(name), str) and value), None)


def _unquoted(text: str) -> str:
    """The value of a quoted text."""
    try:
        return str(json.loads(text, strict=False))
    except ValueError:
        return text[1:-1]


def unescaped(text: str) -> str:
    """The inside of a quoted text as it was before it was quoted."""
    return _unquoted(f'"{text}"').rstrip("\n") if "\\" in text else text
