"""Makes the fixes of findings: as many at a time as touch different text, again and again until nothing is left to fix."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dslint.diagnostics import Applicability, Diagnostic, Edit
from dslint.lint.results import FileResult
from dslint.record import Record
from dslint.source.edit import apply

ROUNDS = 20
"""One fix may bring another finding to light; it does not go on for ever."""

Lint = Callable[[str], FileResult]
"""Lints a text as if it were the file."""


class Fixed(Record):
    """What came of fixing a text: the text, the findings that were fixed, and the result of linting what is left."""

    text: str
    fixed: tuple[Diagnostic, ...]
    result: FileResult


def fix(text: str, lint: Lint, allowed: Iterable[Applicability]) -> Fixed:
    """Fix what may be fixed in a text.

    A fix that would break the text, or that leaves its own finding where it was, is not made.

    Args:
        text: the file's text.
        lint: lints a text with the file's settings.
        allowed: the kinds of fixes that may be made.
    """
    wanted = frozenset(allowed)
    result = lint(text)
    done: list[Diagnostic] = []
    along: list[Diagnostic] = []  # what went with them
    refused: set[tuple[str, str | None]] = set()
    tried_all = 0  # the number of fixes made when those that were refused had another chance
    for _ in range(ROUNDS):
        chosen = _compatible(d for d in result.diagnostics if d.fix and d.fix.applicability in wanted and _key(d) not in refused)
        if not chosen and refused and len(done) > tried_all:
            refused, tried_all = set(), len(done)
            continue
        if not chosen:
            break
        tried, fresh = _try(text, chosen, result, lint)
        if tried is None and len(chosen) > 1:  # one of them does harm: apply only the first, then continue with the others
            chosen = chosen[:1]
            tried, fresh = _try(text, chosen, result, lint)
        if tried is None or fresh is None:
            refused.add(_key(chosen[0]))
            continue
        along += _along(result, fresh, chosen, wanted)
        done += chosen
        text, result = tried, fresh
    again = {_key(d) for d in (*done, *result.diagnostics)}
    return Fixed(text, (*done, *{_key(d): d for d in along if _key(d) not in again}.values()), result)


def _along(before: FileResult, after: FileResult, chosen: list[Diagnostic], wanted: frozenset[Applicability]) -> list[Diagnostic]:
    """The findings that went with the chosen ones, whose fixes touch the same text: a report counted them as fixable, too."""
    left = {_key(d) for d in after.diagnostics}
    made = {_key(d) for d in chosen}
    return [d for d in before.diagnostics if d.fix and d.fix.applicability in wanted and _key(d) not in left | made]


def _key(diagnostic: Diagnostic) -> tuple[str, str | None]:
    return diagnostic.code, diagnostic.pointer


def _compatible(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Diagnostics with fixes for different text, the first ones in the file before others."""
    chosen: list[Diagnostic] = []
    taken: list[tuple[int, int]] = []
    for diagnostic in diagnostics:
        edits = diagnostic.fix.edits if diagnostic.fix else ()
        if edits and all(_apart(edit, span) for edit in edits for span in taken):
            chosen.append(diagnostic)
            taken += [(edit.start, edit.end) for edit in edits]
    return chosen


def _apart(edit: Edit, span: tuple[int, int]) -> bool:
    return edit.end < span[0] or span[1] < edit.start


def _try(text: str, chosen: list[Diagnostic], before: FileResult, lint: Lint) -> tuple[str | None, FileResult | None]:
    """The text with these fixes made, and its result; None if that causes syntax errors or fixes nothing."""
    edits = {(edit.start, edit.end, edit.content) for diagnostic in chosen if diagnostic.fix for edit in diagnostic.fix.edits}
    tried = apply(text, edits)
    if tried == text:
        return None, None
    result = lint(tried)
    if result.kind != before.kind or result.document is None or before.document is None:
        return None, None
    if result.document.problems and len(result.document.problems) >= len(before.document.problems):
        return None, None
    keys = [_key(d) for d in result.diagnostics]
    had = [_key(d) for d in before.diagnostics]
    stays = all(keys.count(_key(d)) >= had.count(_key(d)) for d in chosen)
    return (None, None) if stays else (tried, result)
