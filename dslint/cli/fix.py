"""What `--fix`, `--unsafe-fixes`, `--diff` and `--fix-only` do: mend files in place, or show how."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from difflib import unified_diff
from os.path import normpath
from typing import TYPE_CHECKING

from dslint.cli.options import read_stdin, warn
from dslint.config.context import Context
from dslint.diagnostics import Applicability
from dslint.fix.apply import Fixed, fix
from dslint.fix.atomic_write import write_whole
from dslint.lint.discovery import Target, shown
from dslint.lint.files import lint_all, lint_given, lint_target
from dslint.lint.results import FileResult
from dslint.report.words import count
from dslint.settings import Finder
from dslint.setup.files import is_setup
from dslint.source.read import ReadError, decode_base64, read
from dslint.suppress.run import suppress

if TYPE_CHECKING:
    from dslint.cli.check_options import CheckOptions

SAFE = frozenset({Applicability.SAFE})
ALL = frozenset({Applicability.SAFE, Applicability.UNSAFE})


class CannotWrite(Exception):
    """A file that was mended and cannot be written; the text is a sentence for people."""


def mend(targets: Iterable[Target], finder: Finder, wanted: CheckOptions) -> tuple[list[FileResult], int, list[CannotWrite]]:
    """Mend files in place (standard input: to standard output), or with `--diff` print how they would change.

    What leads to configs is mended first: the configs are judged with what it says then. Only what is among the targets is mended.

    Returns:
        The results for what is left (with `--diff`: for the files as they are), how many findings were fixed, and what was not written.
    """
    allowed = ALL if wanted.unsafe_fixes else SAFE
    results: list[FileResult] = []
    failed: list[CannotWrite] = []
    number = 0
    if "-" in wanted.paths:
        name = wanted.stdin_filename or "<stdin>"
        text = read_stdin()
        fixed = fix_text(text, name, finder, allowed, ignores=wanted.ignores)
        number += len(fixed.fixed)
        results += lint_given(fixed.text, name, finder.for_file(name))
        _write("".join(_diff(name, text, fixed.text)) if wanted.diff else fixed.text)
    targets = list(targets)
    leading = [target for target in targets if is_setup(target.path)]
    led: dict[str, list[Context]] = {}
    for target in [*leading, *(target for target in targets if not is_setup(target.path))]:
        if target not in leading and leading:
            led = led or _led(leading, finder)
        try:
            number += _mend_file(target, finder, allowed, wanted, led.get(normpath(shown(target.path)), ()))
        except CannotWrite as error:
            warn(str(error))
            failed.append(error)
    if number:
        warn(f"{'would fix' if wanted.diff else 'fixed'} {count(number, 'finding')}.")
    return results + lint_all(targets, finder), number, failed


def _led(leading: Iterable[Target], finder: Finder) -> dict[str, list[Context]]:
    """What is known in the trainings that lead to a config, by its path."""
    from dslint.lint.setups import links_of

    found: dict[str, list[Context]] = {}
    for target in leading:
        for path, context in links_of(target.path, shown(target.path), finder.for_file(target.path).context):
            found.setdefault(normpath(path), []).append(context)
    return found


def _mend_file(target: Target, finder: Finder, allowed: frozenset[Applicability], wanted: CheckOptions, led: Sequence[Context]) -> int:
    """Mend a file, which is written (or, with `--diff`, compared), and say how many findings were fixed."""
    path, name = target.path, shown(target.path)
    try:
        text = read(path)
    except ReadError:
        return 0  # the result says so
    if decode_base64(text):
        return 0
    if not target.named and not led and not lint_target(target, finder.for_file(path)):
        return 0  # it was only found, and is no config
    fixed = fix_text(text, path, finder, allowed, ignores=wanted.ignores, led=led)
    if wanted.diff:
        _write("".join(_diff(name, text, fixed.text)))
    elif fixed.fixed:
        try:
            write_whole(path, fixed.text)
        except OSError as error:
            raise CannotWrite(f"cannot write {name}: {error.strerror or error}") from None
    return len(fixed.fixed)


def fix_text(
    text: str, name: str, finder: Finder, allowed: frozenset[Applicability], *, ignores: bool, led: Sequence[Context] = ()
) -> Fixed:
    """Mend a text as if it were the file `name`, to which trainings lead where `led` is known."""
    settings = finder.for_file(name)

    def lint(fresh: str) -> FileResult:
        found = lint_given(fresh, name, settings, led=led)[:1]
        return suppress(found, finder)[0] if ignores else found[0]  # what is suppressed is not fixed

    return fix(text, lint, allowed)


def _diff(path: str, before: str, after: str) -> Iterable[str]:
    for line in unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), path, path):
        yield line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"


def _write(text: str) -> None:
    """Write a text to standard output as it is: no line end is translated."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()
