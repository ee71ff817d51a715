"""`dslint check`: lint files and say what was found."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import replace

import click

from dslint.cli.check_options import CheckOptions
from dslint.cli.options import FACTS, color_option, read_stdin, run_settings, settings_options, terminal_width, wants_color, warn
from dslint.errors import UserError
from dslint.lint.discovery import Discovered, discover, listed
from dslint.lint.files import lint_all, lint_given, lint_launch
from dslint.lint.results import FileResult, Results
from dslint.lint.run import INTERNAL_ERROR
from dslint.report import write
from dslint.report.words import count
from dslint.settings import Finder
from dslint.settings.table import FORMATS
from dslint.source.read import ReadError

CLEAN, FINDINGS, FAILED = 0, 1, 2

PROGRESS_FROM = 500
"""The number of files from which a progress bar is worth its lines."""


class OutputType(click.ParamType):  # type: ignore[type-arg] # older releases of click have no parameter here
    """A report to write to a file: `FORMAT=FILE`."""

    name = "FORMAT=FILE"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        output_format, equals, path = value.partition("=")
        if not equals or not path or output_format not in FORMATS:
            self.fail(f"{value!r} is not of the form FORMAT=FILE, with a format of {', '.join(FORMATS)}", param, ctx)
        return output_format, path


@click.command(name="check", short_help="Find the mistakes in DeepSpeed configs.")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path())
@settings_options(
    *FACTS,
    "checkpoint",
    "env",
    "select",
    "ignore",
    "extend-select",
    "extend-ignore",
    "pedantic",
    "severity",
    "fail-on",
    "strict",
    "include",
    "exclude",
    "extend-exclude",
    "force-exclude",
    "per-file-ignores",
    "policy",
    "output-format",
    "baseline",
)
@click.option(
    "--output",
    "outputs",
    type=OutputType(),
    multiple=True,
    help="Write a report to a file too, beside the one that is printed. Repeatable.",
)
@click.option(
    "--command",
    "command_line",
    metavar="COMMAND",
    help="Check a launch command, in quotes: what it launches, on how many ranks, with which arguments and config.",
)
@click.option(
    "--files-from",
    metavar="FILE",
    help='Check the files that FILE ("-": standard input) lists, in place of PATHs: a name a line, or each ended by NUL.',
)
@click.option(
    "--write-baseline", is_flag=True, help="Write the baseline: all findings if there is none yet; else take out of it those that are gone."
)
@click.option(
    "--add-ignores", metavar="REASON", help="Ignore all that is found from now on, by comments or in the settings, for this reason."
)
@click.option("--no-ignores", is_flag=True, help="Report what comments, settings and baseline suppress, too.")
@click.option("--fix", is_flag=True, help="Mend what can be mended without changing what DeepSpeed does.")
@click.option("--unsafe-fixes", is_flag=True, help="Mend what changes the training or costs comments, too.")
@click.option("--fix-only", is_flag=True, help="Mend, and report nothing of what is left.")
@click.option("--diff", is_flag=True, help="Print what would be mended, and write nothing.")
@click.option("--statistics", is_flag=True, help="Print how often each rule found something, in place of the findings.")
@click.option("-v", "--verbose", is_flag=True, help="Say why what was not given was assumed.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 though there are findings; the same as --fail-on never.")
@click.option("--watch", is_flag=True, help="Check again whenever a file changes, until interrupted.")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="How many processes to use.  [default: what the number of files suggests]"
)
@color_option
@click.option("--stdin-filename", metavar="NAME", help='The name to report for a config that comes from standard input ("-").')
def command(finder: Finder, watch: bool, no_ignores: bool, **wishes: object) -> None:  # noqa: FBT001 - click passes them by name
    """Find the mistakes in DeepSpeed configs.

    PATH is a file, a directory (in which only files that look like DeepSpeed configs are judged), a pattern, or "-" for standard input.
    Without one, the current directory is searched. A file may also be a training that uses a config: a YAML file of Accelerate, axolotl,
    LLaMA-Factory and others, a script that launches one, or a Python program.

    \b
    Exit codes:
      0  nothing at or above --fail-on
      1  findings
      2  bad usage or settings, a file that cannot be opened, nothing to check, or a defect of dslint
    """  # noqa: D301 - click wants the character itself
    wanted = CheckOptions(ignores=not no_ignores, **wishes)  # type: ignore[arg-type]
    if wanted.stdin_filename is not None and "-" not in wanted.paths:
        raise click.UsageError('--stdin-filename is for a config from standard input: give "-" as the path.')
    if wanted.fixing and watch:
        raise click.UsageError("--watch only looks: it mends nothing.")
    if wanted.add_ignores is not None:
        if not wanted.add_ignores.strip():
            raise click.UsageError("--add-ignores wants a reason, for those who read it later.")
        if wanted.fixing or wanted.write_baseline or watch or no_ignores or "-" in wanted.paths or wanted.command_line is not None:
            raise click.UsageError("--add-ignores goes with files, and not with fixes, a baseline, --watch or --no-ignores.")
    if wanted.files_from is not None and (wanted.paths or watch):
        raise click.UsageError("--files-from stands in place of PATHs, and cannot be watched.")
    if wanted.command_line is not None and (wanted.paths or watch or wanted.files_from is not None):
        raise click.UsageError("--command stands in place of PATHs, and cannot be watched.")
    if watch:
        from dslint.cli.watch import watch as keep_watching

        if "-" in wanted.paths:
            raise click.UsageError("--watch is for files; standard input does not change.")
        keep_watching(wanted.paths or (".",), lambda fresh: check(fresh, wanted), finder)
        return
    sys.exit(check(finder, wanted))


def check(finder: Finder, wanted: CheckOptions) -> int:
    """Check what is wanted, write all that is wanted, and give the exit code."""
    found = _found(finder, wanted)
    for missing in found.nothing:
        warn(str(missing))
    failed, changes = bool(found.nothing), 0
    if wanted.fixing:
        from dslint.cli.fix import mend

        files, changes, unwritten = mend(found.targets, finder, wanted)
        failed |= bool(unwritten)
    else:
        files = _lint(found, finder, wanted)
    if not files:
        listed_only = wanted.files_from is not None or run_settings(finder)["force-exclude"]
        return _nothing_to_check(wanted.paths, found, files_listed=listed_only)
    if wanted.diff or wanted.fix_only:
        return _only_mended(files, wanted, failed=failed, changes=changes)
    files = _without_ignored(files, finder, wanted)
    if wanted.add_ignores is not None:
        from dslint.cli.ignores import add_ignores

        add_ignores(files, finder, wanted.add_ignores)
        return check(finder.again(), replace(wanted, add_ignores=None))
    written = _report(files, finder, wanted)
    strict = bool(run_settings(finder)["strict"])
    return exit_code(files, failed=failed or not written, forgiving=wanted.exit_zero, strict=strict)


def _found(finder: Finder, wanted: CheckOptions) -> Discovered:
    """The files to look at."""
    if wanted.command_line is not None:
        return Discovered([], [], [])
    if wanted.files_from is not None:
        return Discovered(listed(_list_of(wanted.files_from), finder), [], [])
    return discover((path for path in wanted.paths or (".",) if path != "-"), finder)


def _without_ignored(files: list[FileResult], finder: Finder, wanted: CheckOptions) -> list[FileResult]:
    """The results without what comments, settings and the baseline suppress; the baseline is written where that is wanted."""
    if wanted.ignores:
        from dslint.suppress.run import suppress

        searched = [path for path in wanted.paths or (".",) if os.path.isdir(path)] if wanted.files_from is None else []
        files = suppress(files, finder, searched=searched)
    settings = run_settings(finder)
    baseline = settings["baseline"] and os.path.join(settings.based("baseline")[0][0], settings["baseline"])
    if wanted.write_baseline and not baseline:
        raise click.UsageError("--write-baseline wants to know where: --baseline FILE, or baseline = FILE in the settings.")
    if baseline and (wanted.ignores or wanted.write_baseline):
        return _heed_baseline(os.path.relpath(baseline), files, wanted)
    return files


def _report(files: Iterable[FileResult], finder: Finder, wanted: CheckOptions) -> bool:
    """Write all reports; whether those to files could be written."""
    settings = run_settings(finder)
    results = Results(settings.context, tuple(files), settings.rules, wanted.verbose)
    written = [_write_file(results, *output) for output in wanted.outputs]
    out = sys.stderr if wanted.fixing and "-" in wanted.paths else sys.stdout  # there the mended text has gone to standard output
    color = wants_color(wanted.color, out)
    if wanted.statistics:
        from dslint.report import statistics

        statistics.write(results, out, color=color)
    else:
        write(results, settings["output-format"], out, color=color, width=terminal_width())
    return all(written)


def _only_mended(files: Iterable[FileResult], wanted: CheckOptions, *, failed: bool, changes: int) -> int:
    """The exit code where nothing is reported but what could not be read: with `--diff`, 1 if there is something to mend."""
    for file in files:
        if file.error:
            warn(f"{file.path}: {file.error}")
            failed = True
    if failed:
        return FAILED
    return FINDINGS if wanted.diff and changes and not wanted.exit_zero else CLEAN


def exit_code(files: Iterable[FileResult], *, failed: bool, forgiving: bool, strict: bool = False) -> int:
    """The exit code for the results. `failed` says that something went wrong beside them, `forgiving` that findings are no failure."""
    files = list(files)
    if failed or any(file.error or any(d.code == INTERNAL_ERROR for d in file.diagnostics) for file in files):
        return FAILED
    fails = any(file.fails or (strict and file.not_judged) for file in files)
    return FINDINGS if fails and not forgiving else CLEAN


def _lint(found: Discovered, finder: Finder, wanted: CheckOptions) -> list[FileResult]:
    """Lint what is wanted: standard input, a command, files."""
    given = _lint_stdin(wanted.stdin_filename or "<stdin>", finder) if "-" in wanted.paths else []
    if wanted.command_line is not None:
        given += lint_launch(wanted.command_line, run_settings(finder))
    return given + _lint_files(found, finder, wanted)


def _lint_files(found: Discovered, finder: Finder, wanted: CheckOptions) -> list[FileResult]:
    total, done = len(found.targets), 0
    if total < PROGRESS_FROM or not sys.stderr.isatty():
        return lint_all(found.targets, finder, jobs=wanted.jobs)
    try:
        with click.progressbar(length=total, label="Checking", file=sys.stderr, show_pos=True) as bar:

            def progress(more: int) -> None:
                nonlocal done
                done += more
                bar.update(more)

            return lint_all(found.targets, finder, jobs=wanted.jobs, progress=progress)
    except KeyboardInterrupt:
        click.echo(err=True)
        warn(f"interrupted after {done:,} of {total:,} files; nothing is reported.")
        raise


def _lint_stdin(name: str, finder: Finder) -> list[FileResult]:
    try:
        return lint_given(read_stdin(), name, finder.for_file(name))
    except ReadError as error:
        return [FileResult(name, "unreadable", error=str(error), context=finder.for_file(name).context)]


def _list_of(path: str) -> str:
    try:
        with open(0 if path == "-" else path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None


def _heed_baseline(path: str, files: list[FileResult], wanted: CheckOptions) -> list[FileResult]:
    """The results without what is in the baseline; the baseline itself is written where that is wanted."""
    from dslint.suppress import baseline

    path = path.replace(os.sep, "/")
    if wanted.write_baseline and not os.path.exists(path):
        known = baseline.first(path, files)
        baseline.write(known)
        warn(f"{count(known.counts.total(), 'finding')} written to {path}; from now on only others are reported.")
        return list(baseline.apply(known, files))
    known = baseline.load(path)
    files = list(baseline.apply(known, files))
    left = baseline.shrunk(known, files)
    gone = known.counts.total() - left.counts.total()
    if wanted.write_baseline and gone:
        baseline.write(left)
        warn(f"{_are(gone)} gone and taken out of {path}; {left.counts.total():,} left.")
    elif gone:
        warn(f"{_are(gone, f' of {path}')} gone: --write-baseline takes that out.")
    return files


def _are(number: int, of: str = "") -> str:
    return f"{count(number, 'finding')}{of} {'is' if number == 1 else 'are'}"


def _write_file(results: Results, output_format: str, path: str) -> bool:
    """Write a report to a file, whole or not at all; whether that worked."""
    from io import StringIO

    from dslint.fix.atomic_write import write_whole

    text = StringIO()
    write(results, output_format, text, color=False, width=100)
    try:
        write_whole(path, text.getvalue())
    except OSError as error:
        warn(f"{path} cannot be written: {error.strerror or error}")
        return False
    return True


def _nothing_to_check(paths: tuple[str, ...], found: Discovered, *, files_listed: bool) -> int:
    """Say that there is nothing to check, where nobody said so yet. That named files are excluded, or no file is listed, is as wanted."""
    if not found.nothing and (found.excluded or files_listed):
        return CLEAN
    if not found.nothing:
        where = ", ".join(paths) or "the current directory"
        warn(f"nothing to check: no file in {where} looks like a DeepSpeed config. A file that is named is always looked at.")
    return FAILED
