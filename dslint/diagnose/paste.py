"""Answers for texts that are not logs of a job: a pasted error, a line of a launcher, frames without a header.

What the signs of jobs do not know, the table of texts, the recorded errors of the rules and the places in libraries may. If none of
them knows the text, the line that looks most like an error is the best answer, and says that it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dslint.diagnose.causes.crash import raised_at
from dslint.diagnose.diagnosis import Cause, Evidence
from dslint.diagnose.explain import Explained, codes, explain
from dslint.diagnose.places import frames_in
from dslint.diagnose.prefixes import Line
from dslint.diagnose.search import SIMILAR
from dslint.diagnose.texts import CAUSE, GENERAL

MOST = 2
"""The most causes that are told."""

LONGEST = 300
"""The most characters of a line in a title."""

NAMES = (
    re.compile(r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b"),
    re.compile(r"^\S{1,80}: (?:fatal )?error: "),
    re.compile(r"\b(?:[A-Z]\w*(?:Error|Exception)|ERROR|FATAL|[Ff]atal|Aborted|core dumped|Segmentation fault|panic)\b"),
    re.compile(
        r"\b(?:[Ee]rror|[Ff]ailed|[Ff]ailure|[Ee]xception|[Cc]annot|[Cc]ould not|can't|[Uu]nable to|not found|[Kk]illed|denied|refused)\b"
    ),
)
"""How lines look that report an error, the plainest first."""

_PROMISES = re.compile(
    r"(?i)\b(?:0 errors?|no errors?|without (?:an )?errors?|error_?(?:rate|file)|errors?=0|[\"']?error[\"']?: (?:null|none|0|0\.\d+))\b"
)


def causes_of(lines: Sequence[Line]) -> list[Cause]:
    """The causes that a text tells, the most likely first; none for a text without an error."""
    text = "\n".join(line.text for line in lines)
    found = explain(text)
    causes = [_explained(one, lines) for one in found.causes[:MOST]]
    if causes:
        return causes
    line = _worst(lines)
    if line is None:
        return []
    frames = tuple(frames_in(line.text for line in lines))
    why = ("dslint does not know this message.", *raised_at(frames))
    advice = ("Pass more of the log: the lines before this one, from the first traceback on.",)
    return [Cause("unknown", line.text.strip()[:LONGEST], why, advice, (_evidence(line),), line.rank, line.host, certain=False)]


def _explained(found: Explained, lines: Sequence[Line]) -> Cause:
    """A cause from what the tables say about an error."""
    known, place = found.known, found.place
    line = lines[known.line_number - 1] if known else _line_with(found.printed, lines)
    why = [known.cause] if known else []
    advice = [known.advice] if known else []
    if place is not None:
        why, advice = [*why, place.cause], [*advice, place.advice]
    rules = tuple(codes(found))
    if not known and not place:
        why = ["Rules of dslint record this error." if found.rules[0].fit > SIMILAR else "An error that rules of dslint record is similar."]
    if rules:
        advice.append(f"Run `dslint check` on the config; rules about this error: {', '.join(rules[:3])}.")
    sure = bool(known and known.entry.rank == CAUSE and known.entry.kind != GENERAL) or any(rule.fit > SIMILAR for rule in found.rules)
    kind, title = known.entry.kind if known else "crash", found.printed.strip()[:LONGEST]
    return Cause(kind, title, tuple(why), tuple(advice), (_evidence(line),), line.rank, line.host, certain=sure, rules=rules)


def _line_with(printed: str, lines: Sequence[Line]) -> Line:
    """The line that an error was read from, which has placeholders for what varies."""
    head = re.split(r"[<#]", printed)[0].strip()[:60]
    return next((line for line in lines if head and head in line.text), lines[-1])


def _worst(lines: Iterable[Line]) -> Line | None:
    """The line that looks most like an error: of equal ones the first."""
    best: tuple[int, Line] | None = None
    for line in lines:
        rank = _rank(line.text)
        if rank is not None and (best is None or rank < best[0]):
            best = (rank, line)
    return best[1] if best else None


def _rank(text: str) -> int | None:
    if _PROMISES.search(text[:2000]):
        return None
    return next((rank for rank, pattern in enumerate(NAMES) if pattern.search(text[:2000])), None)


def _evidence(line: Line) -> Evidence:
    return Evidence(line.place, line.text)
