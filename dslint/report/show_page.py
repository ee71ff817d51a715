"""The output of `dslint show`: the effective config as a table, as JSON, or as the config that DeepSpeed sees."""

from __future__ import annotations

import json
from typing import Any

from dslint.config.effective import EffectiveEntry
from dslint.config.values import Origin
from dslint.report.speed_words import as_data, duration, parts, speeds, spread
from dslint.report.style import visible, wrap
from dslint.report.words import count
from dslint.speed.step import StepTime

LONGEST, CUT = 24, "..."
"""The characters of a value that are shown, and how a longer one ends."""

STRIKE, DIM, BOLD, RESET = "\x1b[9m", "\x1b[2m", "\x1b[1m", "\x1b[0m"

WORDS = {
    Origin.WRITTEN: "written",
    Origin.DEFAULT: "default",
    Origin.FILLED: "filled",
    Origin.DERIVED: "derived",
    Origin.MAPPED: "mapped",
    Origin.DROPPED: "dropped",
    Origin.REFUSED: "refused",
}


def table(entries: list[EffectiveEntry], *, color: bool, width: int) -> str:
    """A table of key, value and origin, a block for each section. Keys without effect are struck through and labelled. The last line says
    if values are cut.
    """
    keys = [entry.key.partition(".")[2] or entry.key for entry in entries]
    first = min(max((len(key) + 2 * ("." in entry.key) for key, entry in zip(keys, entries, strict=True)), default=3), 44)
    second = min(max((len(shown(entry)) for entry in entries), default=5), 16)
    lines: list[str] = []
    section = None
    for entry, key in zip(entries, keys, strict=True):
        here = entry.key.partition(".")[0] if "." in entry.key else ""
        if here != section:
            section = here
            lines += ([""] if lines else []) + ([_paint(section, BOLD, color)] if section else [])
        lines.append(_row(entry, key, first, second, color=color, width=width))
    if any(len(_whole(entry)) > LONGEST for entry in entries):
        lines += ["", *wrap("Long values are cut: --output-format json prints them in full.", width)]
    return "\n".join(lines)


def _row(entry: EffectiveEntry, key: str, first: int, second: int, *, color: bool, width: int) -> str:
    indent = "  " if "." in entry.key else ""
    name = visible(key).ljust(first - len(indent))
    value = visible(shown(entry)).ljust(second)
    origin = WORDS[entry.origin] + (f": {entry.note}" if entry.note else "")
    taken = len(indent) + len(name) + len(value) + 4
    if taken + len(origin) > width and entry.note:
        origin = f"{WORDS[entry.origin]}\n{indent}    {entry.note}"
    if entry.lost:
        name = _paint(name.rstrip(), STRIKE, color) + " " * (len(name) - len(name.rstrip()))
    return f"{indent}{name}  {value}  {_paint(origin, DIM, color and entry.origin is Origin.DEFAULT)}".rstrip()


def shown(entry: EffectiveEntry) -> str:
    """The value as in a config: the literal if it is used as written; a question mark if it is unknown."""
    if not entry.known:
        return "?" if not entry.lost or entry.written is None else f"({entry.written})"
    text = _whole(entry)
    return text if len(text) <= LONGEST else text[: LONGEST - len(CUT)] + CUT


def _whole(entry: EffectiveEntry) -> str:
    """The value with all its characters, "" if it is unknown."""
    if not entry.known:
        return ""
    if entry.origin is Origin.WRITTEN and entry.written is not None and len(entry.written) <= LONGEST:
        return entry.written
    return json.dumps(entry.value, default=str)


def time_of_step(time: StepTime, *, color: bool, width: int) -> list[str]:
    """The predicted time of a step, with its large parts, as lines."""
    what = f"{count(round(time.job.samples), 'sample')} of {time.job.length:,} tokens"
    rows = (f"{duration(time.seconds)} ({spread(time)}) for {what}: {speeds(time)}", *parts(time))
    return [_paint("Time of a step", BOLD, color), *(f"  {line}" for row in rows for line in wrap(row, width - 2))]


def as_json(entries: list[EffectiveEntry], time: StepTime | None = None) -> str:
    """The keys, each an object: path, value (null if unknown), known, origin, note, written, line, column; and the time of a step, if it
    was predicted.
    """
    rows: list[dict[str, Any]] = [
        {
            "path": list(entry.path),
            "value": entry.value if entry.known else None,
            "known": entry.known,
            "origin": WORDS[entry.origin],
            "note": entry.note,
            "written": entry.written,
            "line": entry.place.line if entry.place else None,
            "column": entry.place.column if entry.place else None,
        }
        for entry in entries
    ]
    return json.dumps({"version": 1, "keys": rows, "step": as_data(time) if time else None}, indent=2)


def _paint(text: str, code: str, on: bool) -> str:  # noqa: FBT001 - a helper of one line
    return f"{code}{text}{RESET}" if on else text
