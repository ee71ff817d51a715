"""GitHub Actions: workflow commands, which GitHub shows as annotations of a pull request, and then the whole report for the log.

GitHub shows at most 10 annotations of each severity per step, so the most severe come first and the rest is counted. The log quotes files
that anyone may have sent: commands are disabled while it is written, because a config could contain some.
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from io import StringIO
from typing import TextIO

from dslint.diagnostics import Diagnostic, Severity
from dslint.lint.results import FileResult, Results
from dslint.report import full
from dslint.report.paths import file_and_cell, from_root
from dslint.report.style import Style, visible, visible_lines
from dslint.report.words import count, said

LIMIT = 10
"""The annotations of each severity that GitHub shows for one step."""

COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def write(results: Results, out: TextIO, style: Style) -> None:
    """Write annotations for GitHub, and the report for the log."""
    root = os.environ.get("GITHUB_WORKSPACE")
    annotations = [annotation for file in results.files for annotation in _file(file, root)]
    shown = [text for severity in COMMANDS for text in [text for loud, text in annotations if loud is severity][:LIMIT]]
    out.writelines(text + "\n" for text in shown)
    report = StringIO()
    full.write(results, report, style)
    hidden = len(annotations) - len(shown)
    if hidden:
        report.write(f"{count(hidden, 'finding')} not annotated: GitHub shows {LIMIT} of each severity per step.\n")
    out.write(_quoted(report.getvalue()))


def _quoted(log: str) -> str:
    """A text in which the runner executes no command. The end marker is a hash of the text, which therefore cannot contain it."""
    word = sha256(log.encode("utf-8", "surrogatepass")).hexdigest()
    return f"::stop-commands::{word}\n{log}::{word}::\n"


def _file(file: FileResult, root: str | None) -> Iterator[tuple[Severity, str]]:
    if file.error is not None:
        yield Severity.ERROR, command("error", {**_where(file.path, root), "title": "dslint"}, visible(file.error))
    for diagnostic in file.diagnostics:
        yield diagnostic.severity, _annotation(diagnostic, root)


def _annotation(diagnostic: Diagnostic, root: str | None) -> str:
    file, cell = file_and_cell(diagnostic.path)
    properties = _where(file, root)
    if diagnostic.range is not None and not cell:
        start, end = diagnostic.range.start, diagnostic.range.end
        properties |= {"line": str(start.line), "endLine": str(end.line)}
        if start.line == end.line:  # with columns over several lines GitHub shows nothing
            properties |= {"col": str(start.column), "endColumn": str(end.column)}
    properties["title"] = visible(f"{diagnostic.code} {diagnostic.name}")
    parts = said(diagnostic)
    if cell:
        parts = [f"{cell}, line {diagnostic.range.start.line}:" if diagnostic.range else f"{cell}:", *parts]
    return command(COMMANDS[diagnostic.severity], properties, "\n".join(visible_lines(part) for part in parts))


def _where(path: str, root: str | None) -> dict[str, str]:
    """The file relative to the root of the repository, if it is inside."""
    if path == "<stdin>":
        return {}
    portable = visible(path.encode("utf-8", "backslashreplace").decode())
    return {"file": (from_root(portable, root) if root else None) or portable}


def command(name: str, properties: dict[str, str], message: str) -> str:
    """A workflow command, escaped as the runner unescapes it."""
    listed = ",".join(f"{key}={escape(value, in_property=True)}" for key, value in properties.items())
    return f"::{name} {listed}::{escape(message)}"


def escape(text: str, *, in_property: bool = False) -> str:
    """A text as data of a workflow command, or as the value of one of its properties."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if in_property else text
