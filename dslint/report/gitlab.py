"""GitLab Code Quality: a JSON array of findings, which GitLab shows in a merge request.

Files that cannot be read are findings too, at the end. Suppressed findings and notes about whole files are left out: GitLab has no
place for them. Paths start at the root of the project (`CI_PROJECT_DIR`, or else the working directory).
https://docs.gitlab.com/ci/testing/code_quality/
"""

from __future__ import annotations

import json
import os
from typing import TextIO

from dslint.diagnostics import Diagnostic, Effect, Severity
from dslint.lint.results import FileResult, Results
from dslint.report.json_format import portable
from dslint.report.paths import file_and_cell, from_root
from dslint.report.style import Style, visible
from dslint.suppress.fingerprints import fingerprints


def write(results: Results, out: TextIO, style: Style) -> None:  # noqa: ARG001 - has neither colours nor a width
    """Write the results as a Code Quality report."""
    root = os.environ.get("CI_PROJECT_DIR") or os.getcwd()  # noqa: PTH109 - pathlib is slow to import
    found = [*results.diagnostics, *(_unreadable(file, file.error) for file in results.files if file.error is not None)]
    report = [_entry(diagnostic, fingerprint, root) for diagnostic, fingerprint in zip(found, fingerprints(found), strict=True)]
    json.dump(portable(report), out, indent=2)
    out.write("\n")


def _unreadable(file: FileResult, error: str) -> Diagnostic:
    return Diagnostic(file.path, "unreadable", file.kind, Severity.ERROR, Effect.ADVICE, None, error)


def _entry(diagnostic: Diagnostic, fingerprint: str, root: str) -> dict[str, object]:
    file, cell = file_and_cell(diagnostic.path)
    sentences = " ".join(part for part in (cell and f"({cell})", diagnostic.message, diagnostic.help) if part)
    return {
        "description": visible(f"{diagnostic.code}: {sentences}"),
        "check_name": visible(diagnostic.name),
        "fingerprint": fingerprint,
        "severity": _severity(diagnostic),
        "location": {
            "path": from_root(file, root) or file,
            "lines": {"begin": max(diagnostic.range.start.line, 1) if diagnostic.range and not cell else 1},
        },
    }


def _severity(diagnostic: Diagnostic) -> str:
    """A crash is worse than wrong training; of the infos, lost time is worse than advice."""
    if diagnostic.severity is Severity.ERROR:
        return "blocker" if diagnostic.effect is Effect.CRASH else "critical"
    if diagnostic.severity is Severity.WARNING:
        return "major"
    return "info" if diagnostic.effect is Effect.ADVICE else "minor"
