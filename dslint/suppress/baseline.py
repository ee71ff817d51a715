"""The baseline: known findings, so that only new ones are reported. Updates only ever remove entries.

A sorted JSON file to commit. An entry has the path (relative to the baseline's directory), the code, the place and the count of a finding;
it has no line and no value, so that it stays valid while other parts of the file change.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from dslint.diagnostics import Diagnostic
from dslint.errors import UserError
from dslint.fixes.write_inside import write_inside
from dslint.lint.guard import INTERNAL_ERROR
from dslint.lint.results import FileResult, Suppressed, SuppressedBy
from dslint.source.read import ReadError, read
from dslint.suppress.fingerprints import identity

VERSION = 1

Known = tuple[str, str, str]
"""The key of a finding in the baseline: path, code, place."""


class BaselineError(UserError):
    """An unusable baseline; the text is a sentence for the user."""


@dataclass(frozen=True)
class Baseline:
    """Known findings and their counts, with paths relative to the directory `base`."""

    path: str
    counts: Counter[Known] = field(default_factory=Counter)

    @property
    def base(self) -> str:
        """The directory that paths are relative to."""
        return os.path.dirname(os.path.abspath(self.path))

    def known(self, diagnostic: Diagnostic) -> Known:
        """The key of a finding in the baseline."""
        path, code, place = identity(diagnostic)
        return self.relative(path), code, place

    def relative(self, path: str) -> str:
        """A path relative to the baseline's directory, with forward slashes."""
        return os.path.relpath(os.path.abspath(path), self.base).replace(os.sep, "/")


def load(path: str) -> Baseline:
    """Read a baseline.

    Raises:
        BaselineError: the file is missing, unreadable, or not a baseline.
    """
    try:
        data = json.loads(read(path))
        if data["version"] != VERSION:
            raise BaselineError(f"{path} is a baseline of version {data['version']}; this dslint supports version {VERSION}")
        entries = [(file, entry) for file, of_file in data["findings"].items() for entry in of_file]
        return Baseline(path, Counter({(file, str(e["code"]), str(e["place"])): _count(e.get("count", 1)) for file, e in entries}))
    except ReadError as error:
        hint = "; create it with --write-baseline" if error.kind == "missing" else ""
        raise BaselineError(f"{path}: {error}{hint}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BaselineError(f"{path} is not a dslint baseline; delete it and create it again with --write-baseline.") from None


def _count(value: object) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"not a count: {value}")
    return value


def apply(baseline: Baseline, files: Iterable[FileResult]) -> tuple[FileResult, ...]:
    """Suppress the findings in the baseline: of each as many as it counts, the first ones in the file."""
    left = baseline.counts.copy()
    return tuple(_apply(baseline, left, file) for file in files)


def _apply(baseline: Baseline, left: Counter[Known], file: FileResult) -> FileResult:
    kept: list[Diagnostic] = []
    suppressed: list[Suppressed] = []
    for diagnostic in file.diagnostics:
        known = baseline.known(diagnostic)
        if left[known] > 0 and diagnostic.code != INTERNAL_ERROR:
            left[known] -= 1
            suppressed.append(Suppressed(diagnostic, SuppressedBy.BASELINE))
        else:
            kept.append(diagnostic)
    return file._replace(diagnostics=tuple(kept), suppressed=(*file.suppressed, *suppressed)) if suppressed else file


def gone(baseline: Baseline, files: Iterable[FileResult]) -> Counter[Known]:
    """The entries for these files that no longer match (after `apply`)."""
    left = baseline.counts.copy()
    paths: set[str] = set()
    for file in files:
        if file.error is None:
            paths.add(baseline.relative(file.path))
            left.subtract(baseline.known(s.diagnostic) for s in file.suppressed if s.by is SuppressedBy.BASELINE)
    return Counter({known: count for known, count in left.items() if count > 0 and known[0] in paths})


def shrunk(baseline: Baseline, files: Iterable[FileResult]) -> Baseline:
    """The baseline without entries that no longer match and without entries of deleted files."""
    left = baseline.counts - gone(baseline, files)
    there = {path: os.path.exists(os.path.join(baseline.base, path)) for path in {known[0] for known in left}}
    return Baseline(baseline.path, Counter({known: count for known, count in left.items() if there[known[0]]}))


def first(path: str, files: Iterable[FileResult]) -> Baseline:
    """A baseline of all findings."""
    empty = Baseline(path)
    return Baseline(path, Counter(empty.known(d) for file in files for d in file.diagnostics if d.code != INTERNAL_ERROR))


def write(baseline: Baseline) -> None:
    """Write the baseline to its path atomically.

    Raises:
        BaselineError: it cannot be written, or a link leads its path out of the project.
    """
    findings: dict[str, list[dict[str, object]]] = {}
    for (path, code, place), count in sorted(baseline.counts.items()):
        findings.setdefault(path, []).append({"code": code, "place": place, **({"count": count} if count > 1 else {})})
    try:
        write_inside(baseline.path, json.dumps({"version": VERSION, "findings": findings}, indent=2) + "\n")
    except OSError as error:
        raise BaselineError(f"cannot write {baseline.path}: {error.strerror or error}") from None
