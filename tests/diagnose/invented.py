"""Invents what may stand before the lines of a log: columns of times, names, levels and counts, records, quotes, one inside the other."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

START = datetime(2026, 5, 4, 9, 12, 7, 101_234, tzinfo=UTC)
WORDS = [
    "train",
    "gpu",
    "node",
    "pod",
    "worker",
    "llama",
    "job",
    "exp",
    "cluster",
    "batch",
    "api",
    "main",
    "host",
    "box",
    "infra",
    "compute",
    "trainer",
    "launcher",
]
SEPARATORS = (" ", ": ", " | ", "\t", " - ", "] ", " > ", "> ", " :: ", "|", ", ", "  ", " » ", ")\t")
Column = Callable[[int], str]
Layer = Callable[[list[str]], list[str]]

TIMES = (
    "%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S,%f", "%Y-%m-%d %H:%M:%S", "%b %d %H:%M:%S", "%H:%M:%S", "%H:%M:%S.%f",
    "%d/%b/%Y:%H:%M:%S +0000", "%Y/%m/%d %H:%M:%S", "%m-%d %H:%M:%S", "%a %b %d %H:%M:%S UTC %Y", "%m/%d/%Y %H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f+02:00",
    "%Y%m%d-%H%M%S", "%d.%m.%Y %H:%M:%S", "I%m%d %H:%M:%S.%f",
)  # fmt: skip


def _name(pick: random.Random) -> str:
    base = "-".join(pick.choices(WORDS, k=pick.randint(1, 3)))
    tail = pick.choice(
        ("", "-0", f"-{pick.randrange(99)}", f"{pick.randrange(999):03}", f"-{pick.getrandbits(36):09x}-{pick.getrandbits(20):05x}")
    )
    return base + tail + pick.choice(("", "", "", ".example.com", "/pytorch", ".train"))


def _time(pick: random.Random) -> Column:
    if pick.random() < 0.15:
        begin = 1_777_885_927 + pick.randrange(10**6)
        form = pick.choice(("{:.3f}", "{:.6f}", "{:.0f}"))
        return lambda line: form.format(begin + line * 0.37)
    form = pick.choice(TIMES)
    step = pick.choice((0.001, 0.21, 3.3))
    return lambda line: (START + timedelta(seconds=line * step)).strftime(form)


def _constant(text: str) -> Column:
    return lambda line: text


def _column(pick: random.Random) -> Column:
    kind = pick.randrange(8)
    if kind <= 2:
        return _time(pick)
    if kind == 3:
        return _constant(_name(pick))
    if kind == 4:
        return _constant(pick.choice(("INFO", "ERROR", "stderr", "stdout F", "E", "warning", "stderr F", "[err]", "debug")))
    if kind == 5:
        begin = pick.randrange(10**5)
        width = pick.choice((0, 6))
        return lambda line: str(begin + line).rjust(width)
    if kind == 6:
        return _constant(
            pick.choice(
                (f"pid={pick.randrange(10**5)}", f"[{pick.randrange(10**5)}]", f"rank={3}", f"({pick.randrange(99)})", "job_id=4711")
            )
        )
    return _constant(
        pick.choice(
            (f"{_name(pick)}[{pick.randrange(10**5)}]", f"<{_name(pick)}>", f"{_name(pick)}@{_name(pick)}", f"#{pick.randrange(99)}")
        )
    )


def _columns(pick: random.Random) -> Layer:
    """Columns with separators, some in brackets."""
    parts: list[tuple[Column, str, str]] = []
    for _ in range(pick.randint(1, 4)):
        left, right = pick.choice((("", ""), ("", ""), ("[", "]"), ("(", ")"), ("<", ">"), ("{", "}")))
        parts.append((_column(pick), left, right))
    separator, last = pick.choice(SEPARATORS), pick.choice(SEPARATORS)
    return lambda lines: [
        separator.join(left + column(number) + right for column, left, right in parts) + last + line for number, line in enumerate(lines)
    ]


def _record(pick: random.Random) -> Layer:
    """A record in JSON for each line."""
    field = pick.choice(("message", "msg", "log", "text", "textPayload", "MESSAGE"))
    end = "\n" if field == "log" else ""
    others = {pick.choice(("host", "pod", "stream", "level", "labels")): _name(pick), pick.choice(("time", "ts", "@timestamp")): None}
    time, is_nested, is_first = _time(pick), pick.random() < 0.2, pick.random() < 0.5

    def record(number: int, line: str) -> str:
        rest = {name: value or time(number) for name, value in others.items()}
        text = {field: line + end}
        whole = {**text, **rest} if is_first else {**rest, **text}
        return json.dumps({"insertId": "x1", "jsonPayload": whole} if is_nested else whole)

    return lambda lines: [record(number, line) for number, line in enumerate(lines)]


def _logfmt(pick: random.Random) -> Layer:
    time, name = _time(pick), _name(pick)
    return lambda lines: [f'time="{time(number)}" level=info host={name} msg={json.dumps(line)}' for number, line in enumerate(lines)]


def _indented(pick: random.Random) -> Layer:
    before = pick.choice(("    ", "\t", "> ", ">> ", "> > ", "  ", "# ", "* ", "| ", "        "))
    return lambda lines: [before + line for line in lines]


def _file(pick: random.Random) -> Layer:
    """As grep -n prints it."""
    name = f"logs/{_name(pick)}.log"
    with_name = pick.random() < 0.6
    return lambda lines: [f"{name + ':' if with_name else ''}{number}:{line}" for number, line in enumerate(lines, 1)]


LAYERS = (_columns, _columns, _columns, _columns, _record, _logfmt, _indented, _file)


def wrapped(text: str, pick: random.Random) -> str:
    """The text behind one to three invented prefixes."""
    lines = text.split("\n")
    for layer in [pick.choice(LAYERS)(pick) for _ in range(pick.choice((1, 1, 2, 2, 3)))]:
        lines = layer(lines)
    return "\n".join(lines)
