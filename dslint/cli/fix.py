"""What `--fix`, `--unsafe-fixes`, `--diff` and `--fix-only` print: the files that were fixed, or how they would change."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from difflib import unified_diff

from dslint.cli.check_options import CheckOptions
from dslint.cli.options import read_stdin, warn
from dslint.fixes.run import ALL, SAFE, FixedFile, FixOptions, fix_files, fix_text
from dslint.lint.discovery import Target, shown
from dslint.lint.group import count_for_report
from dslint.lint.results import FileResult
from dslint.report.style import printable, visible
from dslint.report.words import count
from dslint.settings import Finder
from dslint.source.read import ReadError


def fix(targets: Sequence[Target], finder: Finder, wanted: CheckOptions) -> tuple[list[FileResult], int, bool]:
    """Fix files in place (standard input: to standard output), or with `--diff` print how they would change.

    Returns:
        The results for the files as they are now, how many findings were fixed (as a report counts them), and whether all were written.
    """
    options = FixOptions(ALL if wanted.unsafe_fixes else SAFE, write=not wanted.diff, ignores=wanted.ignores)
    files: list[FixedFile] = []
    results: list[FileResult] = []
    if "-" in wanted.paths:
        name = wanted.stdin_filename or "<stdin>"
        try:
            given = fix_text(read_stdin(), name, finder, options)
        except ReadError as error:
            results.append(FileResult(name, "unreadable", error=str(error), context=finder.for_file(name).context))
        else:
            assert given is not None, "what is named is always linted"
            files.append(given)
            results += given.results
            if not wanted.diff:
                _write(given.after)
    fixed, found = fix_files(targets, finder, options)
    files += fixed
    for file in files:
        if file.error:
            warn(file.error)
        elif wanted.diff:
            _write("".join(map(_harmless, _diff(shown(file.path), file.before, file.after))))
    number = sum(count_for_report(file.fixed) for file in files if file.error is None)
    if number:
        warn(f"{'would fix' if wanted.diff else 'fixed'} {count(number, 'finding')}.")
    return results + found, number, not any(file.error for file in files)


def _diff(path: str, before: str, after: str) -> Iterable[str]:
    for line in unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), path, path):
        yield line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"


def _harmless(line: str) -> str:
    """A line of a diff, still a line of a patch: tabs and the line end stay, other control characters become visible."""
    text = line.rstrip("\r\n")
    return "\t".join(printable(visible(part)) for part in text.split("\t")) + line[len(text) :]


def _write(text: str) -> None:
    """Write a text to standard output as it is: no line end is translated."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()
