"""`--add-ignores`: suppress every current finding, with a reason."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from dslint.cli.options import warn
from dslint.config.detect import FileKind
from dslint.diagnostics import Diagnostic
from dslint.errors import UserError
from dslint.fixes.write_inside import write_inside
from dslint.lint.discovery import shown
from dslint.lint.files import lint_given
from dslint.lint.guard import INTERNAL_ERROR
from dslint.lint.results import FileResult
from dslint.report.words import count, listed
from dslint.settings import Finder, Layer
from dslint.source.read import ReadError, decode, decode_base64, read_bytes
from dslint.suppress.adding import settings_file, with_comments, with_entries
from dslint.suppress.run import suppress


def add_ignores(files: Iterable[FileResult], finder: Finder, reason: str) -> None:
    """Write comments and settings entries that suppress all findings of these files.

    Raises:
        UserError: a file cannot be read or written, or its settings cannot be added to.
    """
    changed: list[str] = []
    number = 0
    left: dict[str, tuple[Layer | None, list[Diagnostic]]] = {}
    for found in files:
        # What dslint failed on cannot be suppressed.
        file = found._replace(diagnostics=tuple(d for d in found.diagnostics if d.code != INTERNAL_ERROR))
        if not file.is_judged or not file.diagnostics:
            continue
        remaining = _comment(file, finder, reason) if file.kind is FileKind.DS_CONFIG and os.path.isfile(file.path) else file.diagnostics
        if len(remaining) < len(file.diagnostics):
            changed.append(file.path)
        number += len(file.diagnostics)
        path, layer = settings_file(finder.for_file(file.path).layers)
        left.setdefault(path, (layer, []))[1].extend(remaining)
    for path, (layer, diagnostics) in left.items():
        if diagnostics:
            _write(path, with_entries(layer, path, diagnostics, reason))
            changed.append(path)
    if changed:
        warn(
            f"suppressed {count(number, 'finding')} in {listed(changed[:5])}"
            + (f" and {len(changed) - 5:,} more files" if len(changed) > 5 else "")
            + "."
        )


def _comment(file: FileResult, finder: Finder, reason: str) -> Sequence[Diagnostic]:
    """Add comments to a config, and return the findings that they do not cover."""
    try:
        text = decode(read_bytes(file.path))
    except ReadError:  # a script or a program that is not UTF-8
        return file.diagnostics
    if decode_base64(text):
        return file.diagnostics
    settings = finder.for_file(file.path)

    def lint(fresh: str) -> FileResult:
        return suppress(lint_given(fresh, file.path, settings)[:1], finder)[0]

    commented = with_comments(text, file, reason, lint)
    if commented == text:
        return file.diagnostics
    _write(file.path, commented, before=text)
    return [diagnostic for diagnostic in lint(commented).diagnostics if diagnostic.code != INTERNAL_ERROR]


def _write(path: str, text: str, *, before: str | None = None) -> None:
    try:
        write_inside(path, text, before=before)
    except OSError as error:
        raise UserError(f"cannot write {shown(path)}: {error.strerror or error}") from None
