"""Answers for texts that are not logs of a job: a pasted error, a line of a launcher, frames without a header.

What the signs of jobs do not know, the table of texts, the recorded errors of the rules and the places in libraries may. If none of
them knows the text, the line that looks most like an error is the best answer, and says that it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dslint.diagnose.causes.crash import raised_at, said_by, they_differ
from dslint.diagnose.diagnosis import Evidence, LikelyCause
from dslint.diagnose.explain import UNSPECIFIC, Explained, codes, explain, is_unspecific
from dslint.diagnose.known_arguments import with_known_argument
from dslint.diagnose.places import frames_in
from dslint.diagnose.prefixes import LogLine
from dslint.diagnose.refused_key import with_releases
from dslint.diagnose.search import SIMILAR
from dslint.diagnose.signs.failure import IGNORED
from dslint.diagnose.signs.launch import FIRST_FAILURE
from dslint.diagnose.texts import CAUSE, FOLLOW_UP, GENERAL, NOISE, filled, match_line

MOST = 2
"""The most causes that are told."""

LONGEST = 300
"""The most characters of a line in a title."""

OF_VALUES = "trainer-values-mismatch"
"""The entry about values of a config that are not those of the arguments."""

VALIDATION = "ValidationError: "
"""How a recorded error of pydantic begins: key, section and message follow."""

NAMES = (
    re.compile(r"^(?:[\w.]+\.)?(?:[A-Z]\w*(?:Error|Exception)\b|Exception: )"),
    re.compile(r"^\S{1,80}: (?:fatal )?error: "),
    re.compile(r"\b(?:[A-Z]\w*(?:Error|Exception)|ERROR|FATAL|[Ff]atal|Aborted|core dumped|Segmentation fault|panic)\b"),
    re.compile(
        r"\b(?:[Ee]rror|[Ff]ailed|[Ff]ailure|[Ee]xception|[Cc]annot|[Cc]ould not|can't|[Uu]nable to|not found|[Kk]illed|denied|refused)\b"
    ),
)
"""How lines look that report an error, the plainest first."""

_ONLY_ENDED = re.compile(r"^srun: error: \S+: tasks? [\d,-]+: |exits with return code")
"""Lines that say of a process that it ended, but not why."""

_PLAIN = re.compile(r"\bNCCL INFO\b")
"""Lines that report no error, whatever they name: NCCL tells of each plugin that is not there."""

_SOURCE = re.compile(r"[│|]?\s*\d+ +[│|] ")
"""Lines of code that rich prints around the one that raised, which has an arrow: an assertion there has not failed."""

WARNS = re.compile(
    r"^\W*(?:W\d{4} |\[W\b)|\[(?:WARNING|INFO)\]|(?<!NCCL )\bWARN(?:ING)?\b|\b[A-Z]\w*Warning: |\bfalling back\b"
    r"|was compiled without GPU support|Invalidate trace cache"
)
"""Lines that report what a program then does in another way, in the words of an error."""

_PROMISES = re.compile(
    r"(?i)\b(?:0 errors?|no errors?|without (?:an )?errors?|error_?(?:rate|file)|errors?=0|[\"']?error[\"']?: (?:null|none|0|0\.\d+))\b"
)


def causes_of(lines: Sequence[LogLine]) -> list[LikelyCause]:
    """The causes that a text tells, the most likely first; none for a text without an error."""
    lines = _of_failure(lines) or lines
    text = "\n".join(line.text for line in lines)
    found = explain(text)
    told = sorted(_joined(found.causes), key=lambda one: bool(WARNS.search(_shown(one, lines)[:LONGEST])))
    causes = [_explained(one, lines, text) for one in told[:MOST]]
    if causes:
        return causes
    line = _worst(lines)
    if line is None:
        return list(_followed(lines))[:1]
    frames = tuple(frames_in(line.text for line in lines))
    known = match_line(line.text[:2000])
    said = "dslint does not know this message." if known is None else filled(known[0].cause, known[1])
    why = (said, *raised_at(frames))
    advice = ("Pass more of the log: the lines before this one, from the first traceback on.",)
    return [LikelyCause("unknown", _title(line.text), why, advice, (_evidence(line),), line.rank, line.host, certain=False)]


def _followed(lines: Sequence[LogLine]) -> Iterator[LikelyCause]:
    """What lines say that follow from a failure which the text does not show."""
    for line in lines:
        known = match_line(line.text[:2000])
        if known is not None and known[0].rank == FOLLOW_UP:
            why, advice = (filled(known[0].cause, known[1]),), (filled(known[0].advice, known[1]),)
            yield LikelyCause("unknown", line.text.strip()[:LONGEST], why, advice, (_evidence(line),), line.rank, line.host, certain=False)


def _of_failure(lines: Sequence[LogLine]) -> list[LogLine]:
    """The lines without plain ones, code, errors that Python ignores, and processes that torchrun lists above the first that failed."""
    kept: list[LogLine] = []
    is_ignored = False
    for line in lines:
        if line.text.startswith(IGNORED):
            is_ignored = True
        elif is_ignored:  # up to the error that ends the traceback
            is_ignored = not line.text.strip() or line.text.startswith((" ", "\t", "Traceback"))
        elif FIRST_FAILURE in line.text:
            begin = next((place for place in reversed(range(len(kept))) if kept[place].text.strip() == "Failures:"), len(kept))
            kept[begin:] = [line]
        elif not (_PLAIN.search(line.text[:200]) or _SOURCE.match(line.text)):
            kept.append(line)
    return kept


def _joined(found: Sequence[Explained]) -> list[Explained]:
    """The errors without those that are part of another one: pydantic prints an error for each key, in lines of their own."""
    kept: list[Explained] = []
    for one in found:
        if one.known is None and one.rules and one.printed.startswith(VALIDATION):
            said = _said(one.printed)
            same = (k for k, other in enumerate(kept) if said in other.printed or other.printed.startswith(VALIDATION))
            first = next(same, None)
            if first is not None:
                if kept[first].known is not None:
                    kept[first] = kept[first]._replace(printed=one.printed)
                continue
        kept.append(one)
    return kept


def _said(printed: str) -> str:
    """What a recorded error of pydantic says, without key, section and kind."""
    return printed.rpartition(": ")[2].partition(" (")[0]


def _title(printed: str) -> str:
    """An error as a title: without the box of a traceback that was copied into one line."""
    whole = printed.rpartition("╯")[2].strip() or printed.strip()
    return whole.removeprefix(": ")[:LONGEST]  # the name of the error may stand in the line above


def _shown(found: Explained, lines: Sequence[LogLine]) -> str:
    """The line of an error."""
    return lines[found.known.line_number - 1].text if found.known else found.printed


def _explained(found: Explained, lines: Sequence[LogLine], text: str) -> LikelyCause:
    """A cause from what the tables say about an error."""
    known, place = found.known, found.place
    line = lines[known.line_number - 1] if known else _line_with(found.printed, lines)
    why = [known.cause] if known else []
    advice = [known.advice] if known else []
    if place is not None:
        why, advice = [*why, place.cause], [*advice, *filter(None, [place.advice])]
    rules = tuple(codes(found))
    similar = match_line(found.printed) if not known and not place else None
    if similar is not None:
        why, advice = [filled(similar[0].cause, similar[1])], [filled(similar[0].advice, similar[1])]
    elif not known and not place:
        printed = found.printed.partition(": ")[2] or found.printed
        of_python = is_unspecific(printed) or any(said and printed.startswith(said) for said in UNSPECIFIC)
        rules = () if of_python else rules
        is_same = found.rules[0].fit > SIMILAR
        why = (said_by(rules) if is_same else []) or [
            "A message of Python itself, which says little without its traceback."
            if of_python
            else "Rules of dslint record this error."
            if is_same
            else "An error that rules of dslint record is similar."
        ]
    sure = bool(known and known.entry.rank == CAUSE and known.entry.kind != GENERAL) or any(rule.fit > SIMILAR for rule in found.rules)
    sure = sure and not WARNS.search(line.text[:LONGEST])
    kind, title, shown = known.entry.kind if known else "crash", _title(found.printed), (_evidence(line),)
    values = they_differ(text) if known and known.entry.id == OF_VALUES else []
    cause = LikelyCause(
        kind,
        title,
        (*values, *why),
        tuple(advice),
        shown,
        line.rank,
        line.host,
        certain=sure,
        rules=rules,
        unchecked=rules[:3],
        of_table=(*why, *advice),
    )
    return with_known_argument(with_releases(cause), frames_in(text.split("\n")))


def _line_with(printed: str, lines: Sequence[LogLine]) -> LogLine:
    """The line that an error was read from, which has placeholders for what varies."""
    head = re.split(r"[<#]", printed)[0].strip()[:60]
    key = printed.removeprefix(VALIDATION).partition(": ")[0] if printed.startswith(VALIDATION) else ""
    return next((line for line in lines if (head and head in line.text) or (key and line.text.strip() == key)), lines[-1])


def _worst(lines: Sequence[LogLine]) -> LogLine | None:
    """The line that looks most like an error: of equal ones the first."""
    at = worst([line.text for line in lines])
    return None if at is None else lines[at]


def worst(texts: Sequence[str]) -> int | None:
    """The place of the text that looks most like an error, of equal ones of the first; None if none does."""
    ranked = [(rank, number) for number, text in enumerate(texts) if (rank := _rank(text)) is not None]
    return min(ranked)[1] if ranked else None


def _rank(text: str) -> int | None:
    known = match_line(text[:2000])
    if known is not None and known[0].rank == NOISE:  # finished jobs print it, too
        return None
    if _PROMISES.search(text[:2000]) or _PLAIN.search(text[:200]):
        return None
    if _ONLY_ENDED.search(text[:2000]):
        return len(NAMES)
    return next((rank for rank, pattern in enumerate(NAMES) if pattern.search(text[:2000])), None)


def _evidence(line: LogLine) -> Evidence:
    return Evidence(line.place, line.text)
