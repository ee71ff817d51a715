"""The Markdown format of `dslint diagnose`, for issues and chats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dslint.diagnose.diagnosis import Diagnosis, LikelyCause, MeasuredMemory
from dslint.diagnose.summary import rows
from dslint.report.markdown import escaped
from dslint.report.style import clipped, visible

LONGEST = 500
"""The most characters of a line of the log."""


def as_markdown(found: Sequence[Diagnosis]) -> str:
    """The diagnoses as Markdown."""
    return "\n".join(line for number, one in enumerate(found, 1) for line in _job(one, f" {number}" if len(found) > 1 else ""))


def _job(found: Diagnosis, number: str) -> Iterator[str]:
    yield f"### dslint diagnose: job{number}"
    yield ""
    yield escaped(found.outcome.sentence)
    yield from (escaped(f"{problem}.") for problem in found.unread)
    facts = rows(found.job)
    if facts:
        yield from ("", "| what ran | | place |", "| --- | --- | --- |")
        yield from (f"| {escaped(row.name)} | {escaped(row.value)} | {escaped(found.at(row.place))} |" for row in facts)
    for title, causes in (("Cause", found.causes), ("Also in the log", found.notices)):
        for cause in causes:
            yield from _cause(title, cause)
    if found.measured:
        yield from ("", "| memory of a rank | measured | estimated | place |", "| --- | --- | --- | --- |")
        for one in found.measured:
            yield f"| {escaped(one.moment.label)} | {one.moment.now:.2f} GiB | {_estimated(one)} | {escaped(found.at(one.moment.place))} |"
    if found.not_estimated:
        yield from ("", escaped(found.not_estimated))
    if found.findings:
        yield from ("", f"#### {escaped(found.rules_title)}", "")
        yield from (
            f"- **{finding.code}** {escaped(found.with_place(finding))} {escaped(finding.help or '')}".rstrip()
            for finding in found.findings
        )
    yield ""


def _estimated(one: MeasuredMemory) -> str:
    return f"{one.estimated:.2f} GiB" if one.estimated is not None else ""


def _cause(title: str, cause: LikelyCause) -> Iterator[str]:
    yield from ("", f"#### {title}: {escaped(cause.title)}", "")
    if cause.where:
        yield f"- {escaped(cause.where)}"
    yield from (f"- {escaped(sentence)}" for sentence in cause.why)
    for advice, changes in cause.steps:
        yield f"- **To do:** {escaped(advice)}"
        if changes:
            yield from ("", "  ```diff", *(f"  {visible(line).replace('```', '')}" for line in changes.splitlines()), "  ```", "")
    if cause.evidence:
        yield from ("", "```text")
        yield from (clipped(visible(f"{shown.place}: {shown.text}"), LONGEST).replace("```", "") for shown in cause.evidence)
        yield "```"
