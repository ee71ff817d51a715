"""A folder of files, linted as the command line lints them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from dslint.diagnostics import Diagnostic
from dslint.facts import Facts
from dslint.frameworks.loader import with_loaders
from dslint.lint.discovery import Target
from dslint.lint.files import lint_subject
from dslint.lint.results import FileResult
from dslint.lint.setups import lint_command, merged
from dslint.registry.rules import loaded_rules
from dslint.setups.open import open_text
from dslint.source.read import ReadError, read
from dslint.suppress.comments import apply_comments

RULES = [rule for rule in loaded_rules() if not rule.pedantic]


class Folder:
    """Files below a directory that is the working directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_text(text, encoding="utf-8")

    def results(self, *names: str, command: str | None = None, named: bool = True, facts: Facts | None = None) -> dict[str, FileResult]:
        """What is found in these files, or of a command, by path."""
        facts = facts or Facts()
        found: list[FileResult] = lint_command(command, facts, RULES) if command is not None else []
        for target in (Target(name, named) for name in names):
            found += lint_one(target, facts)
        return {result.path: apply_comments(result) for result in merged(found)}

    def found(self, *names: str, command: str | None = None, facts: Facts | None = None) -> list[tuple[str, str, int]]:
        """Codes, files and lines of what is found."""
        results = self.results(*names, command=command, facts=facts).values()
        return [(d.code, d.path, d.range.start.line if d.range else 0) for result in results for d in result.diagnostics]

    def diagnostics(self, *names: str, command: str | None = None, facts: Facts | None = None) -> list[Diagnostic]:
        """All that is found."""
        return [d for result in self.results(*names, command=command, facts=facts).values() for d in result.diagnostics]


def lint_one(target: Target, facts: Facts) -> list[FileResult]:
    """As `dslint.lint.files.lint_target` does, with all rules."""
    try:
        text = read(target.path)
    except ReadError as error:
        return [FileResult(target.path, "unreadable", error=str(error))]
    context = with_loaders(facts)
    subject = open_text(text, target.path, context, named=target.named)
    return [] if subject is None else lint_subject(subject, context, RULES)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """An empty folder with a repository's mark, as the working directory."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)
