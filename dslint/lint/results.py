"""The results of a run, from which every report format is written."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from dslint.config.context import Context
from dslint.diagnostics import Diagnostic, Severity
from dslint.facts import Facts
from dslint.not_judged import NotJudged
from dslint.record import Record
from dslint.source.tree import Document

if TYPE_CHECKING:
    from dslint.rule import RuleInfo


class Skipped(Record):
    """A rule that was skipped, and the fact it needs: `needs` is the name of a field of `Facts`."""

    code: str
    needs: str


class SuppressedBy(StrEnum):
    """What suppressed a finding."""

    COMMENT = "comment"
    """a comment in the file itself"""
    SETTINGS = "settings"
    """`per-file-ignores` or an entry of `ignores` in the settings"""
    BASELINE = "baseline"
    """an entry of the baseline"""


class Suppressed(Record):
    """A suppressed finding: by what, and the reason that was given."""

    diagnostic: Diagnostic
    by: SuppressedBy
    reason: str | None = None


JUDGED = frozenset({"ds_config", "accelerate", "training", "script", "python"})
"""The kinds of file that contain or name a config."""


class FileResult(Record):
    """What was found in one file.

    `kind` says what the file is: "ds_config", "inference", "template", "unrelated", "unreadable", or "settings" for dslint's own.
    `fail_on` is the least severity for which the file fails, or "never".
    `note` is a sentence about the file as a whole (why it was not checked, what was inferred), or None.
    `ran` are the codes of the rules that were selected and not skipped; empty if no config was judged.
    `not_judged` lists what was not checked, and why: the whole file, or a part of it such as one launch of a script.
    `left_out` counts the findings that are not shown because the file is not a whole training; `note` says why.
    `document` is None when the file could not be read; `error` is then a sentence with the reason.
    """

    path: str
    kind: str
    document: Document | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    note: str | None = None
    error: str | None = None
    context: Context = Context()
    suppressed: tuple[Suppressed, ...] = ()
    ran: frozenset[str] = frozenset()
    fail_on: str = "warning"
    not_judged: tuple[NotJudged, ...] = ()
    left_out: int = 0

    @property
    def is_judged(self) -> bool:
        """Whether rules ran on a config that this file contains or names."""
        return self.error is None and self.kind in JUDGED and (bool(self.ran) or all(one.is_of_program for one in self.not_judged))

    @property
    def facts(self) -> Facts:
        """The facts that the file was judged with."""
        return self.context.facts

    @property
    def fails(self) -> bool:
        """Whether a finding is severe enough for the file to fail."""
        return any(self.fails_by(diagnostic) for diagnostic in self.diagnostics)

    def fails_by(self, diagnostic: Diagnostic) -> bool:
        """Whether this finding is severe enough for the file to fail."""
        return self.fail_on != "never" and diagnostic.severity.rank >= Severity(self.fail_on).rank


class Results(Record):
    """A whole run: the context as given, the files in order, and the rules that ran on any of them."""

    context: Context
    files: tuple[FileResult, ...]
    rules: tuple[RuleInfo, ...] = ()
    verbose: bool = False
    """Whether to print the evidence for inferred facts."""
    quiet: bool = False
    """Whether to print only findings, without a summary."""
    group: bool = True
    """Whether the format `full` prints a finding that many files share only once."""
    at_most: int | None = None
    """How many findings the formats `full` and `concise` print, the most severe ones; None: all."""

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """All diagnostics, by file and then by place."""
        return [diagnostic for file in self.files for diagnostic in file.diagnostics]

    @property
    def suppressed(self) -> list[Suppressed]:
        """All suppressed findings."""
        return [suppressed for file in self.files for suppressed in file.suppressed]

    @property
    def printed(self) -> tuple[FileResult, ...]:
        """The files with the findings that `at_most` leaves: the most severe ones, in the order of the files."""
        if self.at_most is None:
            return self.files
        kept = set(
            sorted(range(len(self.diagnostics)), key=[-found.severity.rank for found in self.diagnostics].__getitem__)[: self.at_most]
        )
        numbers = iter(range(len(self.diagnostics)))
        return tuple(file._replace(diagnostics=tuple(found for found in file.diagnostics if next(numbers) in kept)) for file in self.files)

    def count(self, severity: Severity) -> int:
        """How many diagnostics have this severity."""
        return sum(diagnostic.severity is severity for diagnostic in self.diagnostics)

    @property
    def skipped(self) -> dict[str, set[str]]:
        """Codes of the rules that were skipped somewhere, by the fact they need."""
        needs: dict[str, set[str]] = {}
        for file in self.files:
            for skip in file.skipped:
                needs.setdefault(skip.needs, set()).add(skip.code)
        return needs
