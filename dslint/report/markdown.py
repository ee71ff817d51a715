"""Markdown for GitHub's step summary (`>> "$GITHUB_STEP_SUMMARY"`) and for comments on pull requests: a headline and a table per file.

A step summary holds 1 MiB: if not all findings fit, the most severe are kept and the rest is counted. Text from files may have been sent
by anyone: it is escaped so that nothing in it is a link, a mention, a reference or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TextIO

from dslint.diagnostics import Diagnostic, Severity
from dslint.lint.results import FileResult, Results
from dslint.record import Record
from dslint.report.style import Style, clipped, visible, visible_lines
from dslint.report.words import count, hidden, inferred_facts, note_of, page_of, reasons, skipped_rules, verdict

LIMIT = 1_000_000
"""The most bytes to write: the 1 MiB of a step summary, less some room for other output of the step."""

LONG = 5
"""More remarks than this are folded."""

REMARKS = 200
"""The most remarks to write."""

TEXT = 1_000
"""The most characters of a message or a path."""

HEAD = "| Place | Severity | Code | Finding |\n| --- | --- | --- | --- |\n"


class TableRow(Record):
    """A row of a table, and its severity."""

    severity: Severity
    text: str


def write(results: Results, out: TextIO, style: Style) -> None:  # noqa: ARG001 - has neither colours nor a width
    """Write the results as Markdown."""
    said = verdict(results)
    before = f"### dslint: {said[0].lower()}{said[1:]}\n"
    after = _remarks(results)
    tables = [(f"\n#### {escaped(visible(file.path))}\n\n{HEAD}", list(_rows(file))) for file in results.files]
    kept = _fitting(tables, LIMIT - _size(before) - _size(after) - 100)
    out.write(before)
    for (head, rows), shown in zip(tables, kept, strict=True):
        if shown:
            out.write(head + "".join(rows[index].text for index in sorted(shown)))
    left_out = sum(len(rows) for _, rows in tables) - sum(map(len, kept))
    if left_out:
        out.write(f"\n{count(left_out, 'finding')} omitted: the step summary is full.\n")
    out.write(after)


def _rows(file: FileResult) -> Iterator[TableRow]:
    if file.error is not None:
        yield _row("", Severity.ERROR, escaped(file.kind), [file.error])
    for diagnostic in file.diagnostics:
        yield _row(_line_and_column(diagnostic), diagnostic.severity, _code(diagnostic), [diagnostic.message, diagnostic.help])


def _row(place: str, severity: Severity, code: str, parts: Iterable[str | None]) -> TableRow:
    finding = "<br>".join(escaped(part) for part in parts if part)
    return TableRow(severity, f"| {place} | {severity.value} | {code} | {finding} |\n")


def _code(diagnostic: Diagnostic) -> str:
    """The code of a rule, as a link to its page if the site has an address."""
    page = page_of(diagnostic)
    return f"[{escaped(diagnostic.code)}]({page})" if page else escaped(diagnostic.code)


def _line_and_column(diagnostic: Diagnostic) -> str:
    start = diagnostic.range.start if diagnostic.range else None
    return f"{start.line}:{start.column}" if start else ""


def _fitting(tables: list[tuple[str, list[TableRow]]], room: int) -> list[set[int]]:
    """Which rows of each table fit. A table's head takes room with its first row."""
    kept: list[set[int]] = [set() for _ in tables]
    rows = [(table, index) for table, (_, rows) in enumerate(tables) for index in range(len(rows))]
    for table, index in sorted(rows, key=lambda row: -tables[row[0]][1][row[1]].severity.rank):
        head, of_table = tables[table]
        room -= _size(of_table[index].text) + (0 if kept[table] else _size(head))
        if room < 0:
            break
        kept[table].add(index)
    return kept


def _size(text: str) -> int:
    return len(text.encode("utf-8"))


def _remarks(results: Results) -> str:
    """Notes that are not findings, folded if there are many."""
    suppressed = hidden(results)
    lines = [*([suppressed] if suppressed else []), *inferred_facts(results), *skipped_rules(results)]
    lines += [visible(reason) for reason in reasons(results)]
    lines += [f"{visible(file.path)}: {note}" for file in results.files if (note := note_of(file))]
    if not lines:
        return ""
    more = len(lines) - REMARKS
    text = "".join(f"- {escaped(line)}\n" for line in lines[:REMARKS]) + (f"- and {more:,} more\n" if more > 0 else "")
    if len(lines) <= LONG:
        return f"\n{text}"
    return f"\n<details>\n<summary>{count(len(lines), 'remark')}</summary>\n\n{text}\n</details>\n"


_SPECIAL = re.compile(
    r"(?P<markup>[\\`*\[\]<>|~&$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|^[-+ ]|(?<=\d)[.)](?= ))"
    r"|(?P<commit>\b(?!\d+\b)[0-9a-fA-F]{7,40}\b)"
    r"|[@#:!%^](?=\S)|[wW](?=\.)|-(?=\d)"
)
"""Markdown syntax; and what GitHub and GitLab would turn into a mention, a reference, a link, a commit or an emoji: these are broken up
by an invisible `<wbr>`."""


def escaped(text: str) -> str:
    """A text as inert Markdown, in one line."""
    return "<br>".join(_SPECIAL.sub(_inert, line) for line in clipped(visible_lines(text), TEXT).split("\n"))


def _inert(special: re.Match[str]) -> str:
    text = special[0]
    if special["commit"]:
        return "<wbr>".join(text[start : start + 6] for start in range(0, len(text), 6))
    if special["markup"]:
        return f"&#{ord(text)};" + ("<wbr>" if text in "~&$" else "")
    return text + "<wbr>"
