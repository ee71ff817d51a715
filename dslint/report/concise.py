r"""A line per finding, for editors, `grep` and `wc -l`.

    path:line:column: error DS501 [name] message
    path:line:column: error DS104 [name] [*] message

Problem matchers read it with `^(.+?):(\d+):(\d+): (error|warning|info) (?:(DS\w+) )?\[([^\]]+)\] (.*)$`. `[*]` marks what
`--fix` fixes. A file that cannot be read has no code and its kind as the name; what has no place is reported at 1:1.
At the end stands what was found, in how many files, and what was not checked; of a clean run only that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from dslint.diagnostics import Applicability, Diagnostic, Severity
from dslint.lint.results import FileResult, Results
from dslint.report.style import Style, printable, visible
from dslint.report.words import COLORS, first_reasons, fixable, more, page_of, reasons, verdict


def write(results: Results, out: TextIO, style: Style) -> None:
    """Write a line per finding, and a summary."""
    lines = [line for file in results.printed for line in _file(file, style)]
    if not results.quiet:
        lines += _summary(results)
    out.writelines(printable(line, color=style.color) + "\n" for line in lines)


def _summary(results: Results) -> Iterator[str]:
    yield " ".join(filter(None, (verdict(results), more(results, None))))
    if fixes := fixable(results):
        yield _one_line(fixes)  # names files
    yield from map(_one_line, reasons(results) if results.verbose else first_reasons(results))


def _file(file: FileResult, style: Style) -> Iterator[str]:
    if file.error is not None:
        yield _about_file(file, Severity.ERROR, file.error, style)
    for diagnostic in file.diagnostics:
        yield _diagnostic(diagnostic, style)


def _about_file(file: FileResult, severity: Severity, sentence: str, style: Style) -> str:
    return f"{_one_line(file.path)}:1:1: {_painted(severity, style)} [{_one_line(file.kind)}] {_one_line(sentence)}"


def _diagnostic(diagnostic: Diagnostic, style: Style) -> str:
    place = f"{diagnostic.range.start.line}:{diagnostic.range.start.column}" if diagnostic.range else "1:1"
    loud = f"{_painted(diagnostic.severity, style)} {style.link(style.paint(diagnostic.code, 'bold'), page_of(diagnostic))}"
    fixes = "[*] " if diagnostic.fix and diagnostic.fix.applicability is Applicability.SAFE else ""
    return f"{_one_line(diagnostic.path)}:{place}: {loud} [{_one_line(diagnostic.name)}] {fixes}{_one_line(diagnostic.message)}"


def _painted(severity: Severity, style: Style) -> str:
    return style.paint(severity.value, COLORS[severity], "bold")


def _one_line(text: str) -> str:
    return visible(text.replace("\r", "\\r").replace("\n", "\\n"))
