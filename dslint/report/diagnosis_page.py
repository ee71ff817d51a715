"""The text format of `dslint diagnose`: one screen for a job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from dslint.diagnose.diagnosis import Diagnosis, End, Evidence, LikelyCause
from dslint.diagnose.summary import rows
from dslint.diagnostics import Diagnostic, Severity
from dslint.report.style import Style, clipped, columns, visible, wrap
from dslint.report.words import COLORS, count

LONGEST = 480
"""The most characters of a line of the log."""

_USEFUL = re.compile(
    r"\b(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\b|out of memory|timeout|[Ee]rror:|[Kk]illed|CANCELLED|exits with return code"
)
"""What makes a line evidence."""

MOST_FINDINGS = 12
"""The most findings about the config of a job that are printed below its causes; the rest are counted."""

COLOR_OF_END = {End.FINISHED: "green", End.UNFINISHED: "yellow", End.UNKNOWN: "yellow"}


def page(found: Sequence[Diagnosis], style: Style) -> str:
    """The page for the jobs of a log."""
    blocks = ["\n".join(_overview(found, style))] if len(found) > 1 else []
    for numbers in _groups(found):
        head = [style.paint(_head(numbers[0], found), "bold")] if len(found) > 1 else []
        blocks.append("\n".join([*head, *job(found[numbers[0] - 1], style)]))
        if len(numbers) > 1:
            blocks.append(style.paint(_same(numbers, found), "bold"))
    return "\n\n".join(blocks)


def _groups(found: Sequence[Diagnosis]) -> Iterator[list[int]]:
    """The numbers of the jobs, those together that follow each other and are told with the same words."""
    told = [_told(one) for one in found]
    for _, group in groupby(range(1, len(found) + 1), lambda number: told[number - 1]):
        yield list(group)


def _told(found: Diagnosis) -> object:
    """What the page tells of a job, without the lines and times that show it."""
    causes = [(cause.title, cause.why, cause.all_advice, cause.rank, cause.host) for cause in (*found.causes, *found.notices)]
    findings = [(finding.code, finding.message) for finding in found.findings]
    return found.outcome.sentence, causes, findings, [(row.name, row.value) for row in rows(found.job)], found.measured, found.unread


def _same(numbers: Sequence[int], found: Sequence[Diagnosis]) -> str:
    """The line for the jobs that are like the one before them."""
    first, last = numbers[1], numbers[-1]
    begins = found[first - 1].at(found[first - 1].job.first)
    which = f"Job {first} is" if first == last else f"Jobs {first} to {last} are"
    return visible(f"{which} like job {numbers[0]}: the same end, cause and facts{f', from {begins} on' if begins else ''}.")


def _overview(found: Sequence[Diagnosis], style: Style) -> Iterator[str]:
    """A line for each job, equal ones after each other in one: how it ended, and why."""
    rows: list[tuple[int, int, str, str]] = []
    for number, one in enumerate(found, 1):
        why = one.causes[0].title if one.causes else ""
        if rows and rows[-1][2:] == (one.outcome.end.value, why):
            rows[-1] = (rows[-1][0], number, *rows[-1][2:])
        else:
            rows.append((number, number, one.outcome.end.value, why))
    yield style.paint(f"{len(found)} jobs in this log", "bold")
    for first, last, end, why in rows:
        name = f"Job {first}" if first == last else f"Jobs {first} to {last}"
        text = visible(f"  {name}: {end}{f', {why}' if why else ''}")
        yield style.paint(clipped(text, max(20, style.width - 1)), COLOR_OF_END.get(End(end), "red"))


def _head(number: int, found: Sequence[Diagnosis]) -> str:
    """Which job it is, with the log that it begins in if there are several."""
    first = found[number - 1].job.first
    logs = {file for one in found for file in one.job.files}
    return visible(f"Job {number} of {len(found)}" + (f", {first.file}" if first and len(logs) > 1 else ""))


def job(found: Diagnosis, style: Style) -> Iterator[str]:
    """The lines about one job: the cause with its evidence and what to do first, what ran last."""
    color = COLOR_OF_END.get(found.outcome.end, "red")
    sentence = visible(found.outcome.sentence)
    if not found.causes:
        yield from (style.paint(line, color, "bold") for line in wrap(sentence, style.width))
        if found.outcome.evidence and found.outcome.evidence.text:
            yield from _evidence(found, found.outcome.evidence, style)
    for index, cause in enumerate(found.causes):
        if index == 1:
            yield from _title("Also possible", style)
        yield from _cause(found, cause, style, first=(color, sentence) if index == 0 else None)
    for problem in found.unread:
        yield from ("", *wrap(f"{visible(problem)}.", style.width))
    if found.notices:
        yield from _title("Also in the log", style)
    for notice in found.notices:
        yield from _cause(found, notice, style)
    yield from _findings(found, style)
    yield from _memory(found, style)
    yield from _facts(found, style)


def _facts(found: Diagnosis, style: Style) -> Iterator[str]:
    """What ran, folded into one paragraph, each fact with its line."""
    facts = rows(found.job)
    if not facts:
        return
    yield from _title("What ran", style)
    parts = []
    for row in facts:
        at = visible(found.at(row.place))
        parts.append(f"{row.name} {visible(row.value)}" + (f" ({at})" if at else ""))
    yield from (f"  {line}" for line in wrap("; ".join(parts) + ".", style.width - 2))


def _memory(found: Diagnosis, style: Style) -> Iterator[str]:
    if found.measured:
        yield from _title("Memory of a rank", style)
    for measured in found.measured:
        told = f", {measured.estimated:.2f} GiB estimated" if measured.estimated is not None else ""
        moment = measured.moment
        yield from _row(moment.label, f"{moment.now:.2f} GiB measured{told}", visible(found.at(moment.place)), style)
    yield from (f"  {line}" for line in wrap(visible(found.not_estimated), style.width - 2) if line)


def _findings(found: Diagnosis, style: Style) -> Iterator[str]:
    if not found.findings:
        return
    yield from _title(found.rules_title, style)
    for finding in found.findings[:MOST_FINDINGS]:
        yield from _finding(found, finding, style)
    if len(found.findings) > MOST_FINDINGS:
        yield f"  and {count(len(found.findings) - MOST_FINDINGS, 'more finding')}"


def _title(text: str, style: Style) -> Iterator[str]:
    yield ""
    yield style.paint(text, "bold")


def _row(name: str, text: str, at: str, style: Style) -> Iterator[str]:
    """A row of a table, with its place in the log at the right end."""
    left = f"  {name}  "
    lines = wrap(text, max(20, style.width - len(left) - max(12, columns(at) + 2)))
    first = f"{left}{lines[0]}"
    yield first + (" " * max(2, style.width - columns(first) - columns(at)) + style.paint(at, "dim") if at else "")
    yield from (" " * len(left) + line for line in lines[1:])


def _cause(found: Diagnosis, cause: LikelyCause, style: Style, first: tuple[str, str] | None = None) -> Iterator[str]:
    """A cause: the sentence, its evidence, why, and what to do. The first one of a job has the color and the sentence of the outcome."""
    indent = "" if first else "  "
    likely = "Most likely: " if first and not cause.certain else ""
    for line in wrap(likely + clipped(visible(cause.title), 600), style.width - len(indent)):
        yield indent + (style.paint(line, first[0], "bold") if first else style.paint(line, "bold"))
    for shown in cause.evidence[:1]:
        yield from _evidence(found, shown, style, cause.title)
    told = " ".join(filter(None, (first[1] if first else "", cause.where)))
    for sentence in filter(None, (visible(told), *cause.why)):
        yield from _wrapped(clipped(visible(sentence), 1000), style)
    for shown in cause.evidence[1:]:
        yield from _evidence(found, shown, style)
    if first and cause.all_advice:
        yield from _title("What to do", style)
    numbered = bool(first) and len(cause.steps) > 1
    for number, (advice, changes) in enumerate(cause.steps, 1):
        head = f"{number}. " if numbered else "" if first else "help: "
        for index, line in enumerate(wrap(head + visible(advice), style.width - 4)):
            hanging = " " * len(head) if index and numbered else ""
            yield ("  " if first else "    ") + hanging + style.paint(line, "cyan")
        for line in changes.splitlines():
            color = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
            yield "      " + style.paint(visible(line), color)


def _wrapped(text: str, style: Style, paint: str = "") -> Iterator[str]:
    for line in wrap(text, style.width - 4):
        yield "    " + (style.paint(line, paint) if paint else line)


def _evidence(found: Diagnosis, shown: Evidence, style: Style, said: str = "") -> Iterator[str]:
    """A line of the log, from its useful part on if it is very long; only its place if the cause is the line itself."""
    text = visible(shown.text.strip())
    useful = _USEFUL.search(text)
    if len(text) > LONGEST and useful and useful.start() > LONGEST // 4:
        text = f"…{text[useful.start() :]}"
    at = visible(found.at(shown.place))
    line = at if said and text == visible(said) else f"{at}: {clipped(text, LONGEST)}"
    yield from ("    " + style.paint(part, "dim") for part in wrap(line, style.width - 4))


def _finding(found: Diagnosis, finding: Diagnostic, style: Style) -> Iterator[str]:
    color = COLORS[finding.severity] if finding.severity is not Severity.INFO else "blue"
    told = found.told_as(finding)
    if told:
        yield f"  {style.paint(finding.code, color, 'bold')} {told} the cause above."
        return
    yield from (
        "  " + (style.paint(finding.code, color, "bold") + line[len(finding.code) :] if index == 0 else line)
        for index, line in enumerate(wrap(f"{finding.code} {visible(found.with_place(finding))}", style.width - 2))
    )
    if finding.help:
        yield from _wrapped(visible(f"help: {finding.help}"), style, paint="cyan")
