"""Fixes files: each is linted, fixed and linted again until nothing is left to fix, and written once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from functools import partial
from os.path import normpath

from dslint.config.context import Context
from dslint.diagnostics import Applicability, Diagnostic
from dslint.errors import UserError
from dslint.fixes.apply import fix
from dslint.fixes.write_inside import write_inside
from dslint.lint.discovery import Target, shown, with_mentions
from dslint.lint.files import combined, lint_given, lint_target, unasked
from dslint.lint.guard import failed, guarded
from dslint.lint.results import FileResult
from dslint.record import Record
from dslint.settings import Finder
from dslint.source.read import ReadError, decode, decode_base64, read, read_bytes
from dslint.suppress.run import suppress

SAFE = frozenset({Applicability.SAFE})
ALL = frozenset({Applicability.SAFE, Applicability.UNSAFE})


class FixOptions(Record):
    """Which fixes are made, whether files are written, and whether comments and settings suppress findings, which then are not fixed."""

    allowed: frozenset[Applicability] = SAFE
    write: bool = True
    ignores: bool = True


class FixedFile(Record):
    """A file, before and after: `fixed` are the findings that were fixed, `error` says why it was not written.

    `results` are those of linting it as it is now, nothing suppressed: that of the file itself, then those of the configs it leads to.
    """

    path: str
    before: str
    after: str
    fixed: tuple[Diagnostic, ...]
    results: tuple[FileResult, ...]
    error: str | None = None


def fix_text(
    text: str,
    path: str,
    finder: Finder,
    options: FixOptions,
    *,
    named: bool = True,
    hinted: bool = False,
    contexts: Sequence[Context] | None = None,
) -> FixedFile | None:
    """Fix a text as if it were a file; None for a file that was only found, and is not a config.

    Args:
        text: the text.
        path: the file's path.
        finder: where its settings are.
        options: which fixes are made. Nothing is written here.
        named: whether a person named the file.
        hinted: whether a program mentions a file that was only found.
        contexts: what is known in the trainings that lead to it; by default the files near it are searched.
    """
    settings = finder.for_file(path)
    linted: dict[str, list[FileResult]] = {}

    def lint(fresh: str) -> FileResult:
        linted[fresh] = lint_given(fresh, path, settings, named=named, hinted=hinted, contexts=contexts)
        if not linted[fresh]:
            return FileResult(shown(path), "unrelated")
        return suppress(linted[fresh][:1], finder)[0] if options.ignores else linted[fresh][0]

    fixed = fix(text, lint, options.allowed)
    if not linted[text]:
        return None
    return FixedFile(path, text, fixed.text, fixed.fixed, tuple(linted[fixed.text if options.write else text]))


def fix_files(targets: Sequence[Target], finder: Finder, options: FixOptions) -> tuple[list[FixedFile], list[FileResult]]:
    """Fix files. What leads to configs comes first: the configs are linted with what it says then. Only the targets are fixed.

    Returns:
        The files that could be fixed, in the order of fixing, and the results of linting all targets as they are on disk now.
    """
    targets = with_mentions(targets)
    leading = [target for target in targets if target.leads]
    others = [target for target in targets if not target.leads]
    files = {target: _fix_file(target, finder, options, {}) for target in leading}
    led = _led(leading, finder)
    files |= {target: _fix_file(target, finder, options, led) for target in others}
    changed = options.write and any(file.fixed for target in others if isinstance(file := files[target], FixedFile))
    results: list[FileResult] = []
    for target in targets:
        file = files[target]
        if changed and target in leading:  # what it leads to is another config now
            results += guarded(partial(_lint, target, finder), shown(target.path))
        else:
            results += file.results if isinstance(file, FixedFile) else file
    return [file for file in files.values() if isinstance(file, FixedFile)], combined(results, targets, finder)


def _lint(target: Target, finder: Finder) -> list[FileResult]:
    return lint_target(target, finder.for_file(target.path))


def _led(leading: Iterable[Target], finder: Finder) -> dict[str, list[Context]]:
    """What is known in the trainings that lead to a config, by its path."""
    found: dict[str, list[Context]] = {}
    for target in leading:
        from dslint.setups.graph import links_of  # most runs see no training

        with contextlib.suppress(Exception):  # what fails here fails in linting the target, too, and is reported there
            for path, context in links_of(read(target.path), target.path, shown(target.path), finder.for_file(target.path).context):
                found.setdefault(normpath(path), []).append(context)
    return found


def _fix_file(target: Target, finder: Finder, options: FixOptions, led: dict[str, list[Context]]) -> FixedFile | list[FileResult]:
    """The file with its fixes made, and written; only the results of linting it where it cannot be fixed."""
    try:
        return _fix_readable(target, finder, options, led.get(normpath(shown(target.path))))
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - as in `guarded`: the other files are still fixed
        return [failed(shown(target.path), error)]


def _fix_readable(target: Target, finder: Finder, options: FixOptions, contexts: Sequence[Context] | None) -> FixedFile | list[FileResult]:
    if target.outside is not None:
        return _lint(target, finder)
    try:
        text = decode(read_bytes(target.path))
    except ReadError:
        return [unasked(result) for result in _lint(target, finder)]  # it cannot be written back as it was
    if decode_base64(text) is not None:
        return _lint(target, finder)
    fixed = fix_text(text, target.path, finder, options, named=target.named or bool(contexts), hinted=target.mentioned, contexts=contexts)
    if fixed is None or not fixed.fixed or not options.write:
        return fixed or []
    try:
        write_inside(target.path, fixed.after, before=text)
    except OSError as error:
        unchanged = fix_text(text, target.path, finder, options._replace(allowed=frozenset()), named=True, contexts=contexts)
        results = unchanged.results if unchanged else ()
        message = f"cannot write {shown(target.path)}: {error.strerror or error}"
        return FixedFile(target.path, text, text, fixed.fixed, results, message)
    return fixed
