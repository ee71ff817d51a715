"""`dslint check`: lint files and report the findings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from io import StringIO

import click

from dslint.cli.check_options import CheckOptions
from dslint.cli.help import Group, GroupedCommand
from dslint.cli.number import Number
from dslint.cli.options import color_option, has_unknown, read_stdin, run_settings, settings_options, terminal_width, wants_color, warn
from dslint.errors import UserError
from dslint.lint.discovery import Discovered, discover, listed, shown, tests_below
from dslint.lint.files import lint_all, lint_given, lint_launch
from dslint.lint.group import for_report
from dslint.lint.guard import INTERNAL_ERROR, guarded
from dslint.lint.guard import failed as failed_on
from dslint.lint.results import FileResult, Results
from dslint.report import write
from dslint.report.words import count
from dslint.settings import Finder
from dslint.settings.table import FACTS, FORMATS, SETTINGS
from dslint.source.read import MAX_BYTES, ReadError, read_bytes

CLEAN, FINDINGS, FAILED = 0, 1, 2

PROGRESS_FROM = 500
"""The number of files from which a progress bar is shown."""


class OutputType(click.ParamType):  # type: ignore[type-arg] # older releases of click have no parameter here
    """A report to write to a file: `FORMAT=FILE`."""

    name = "FORMAT=FILE"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        output_format, equals, path = value.partition("=")
        if not equals or not path or output_format not in FORMATS:
            self.fail(f"{value!r} is not of the form FORMAT=FILE; the formats are {', '.join(FORMATS)}", param, ctx)
        return output_format, path


class CheckCommand(GroupedCommand):
    """`dslint check` with its many options in groups."""

    groups = (
        Group(
            "Facts about the run",
            "ds_config.json --world-size 8 --integration accelerate",
            (*(f"--{name}" for name in FACTS), "--params", "--checkpoint", "--env"),
        ),
        Group(
            "Files",
            'examples train.yaml --exclude "old/*"',
            (
                "--command",
                "--files-from",
                "--stdin-filename",
                "--include",
                "--exclude",
                "--extend-exclude",
                "--force-exclude",
                "--jobs",
                "--watch",
            ),
        ),
        Group(
            "Rules",
            "--select DS5,DS6 --severity DS102=warning",
            ("--select", "--ignore", "--extend-select", "--extend-ignore", "--per-file-ignores", "--pedantic", "--severity", "--policy"),
        ),
        Group("Fixing", "ds_config.json --fix --diff", ("--fix", "--unsafe-fixes", "--fix-only", "--diff")),
        Group(
            "Suppressing findings",
            "--baseline dslint-baseline.json --write-baseline",
            ("--baseline", "--write-baseline", "--add-ignores", "--no-ignores"),
        ),
        Group(
            "Output and exit code",
            "--output-format concise --output sarif=dslint.sarif",
            (
                "--output-format",
                "--output",
                "--statistics",
                "--verbose",
                "--quiet",
                "--group",
                "--at-most",
                "--color",
                "--fail-on",
                "--strict",
                "--exit-zero",
            ),
        ),
        Group("Settings", "--config ci/dslint.toml", ("--config", "--isolated", "--help")),
    )


@click.command(name="check", cls=CheckCommand, short_help="Find mistakes in DeepSpeed configs.")
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
    may_be_unknown=True,
)
@click.option("--params", type=Number(), help="The number of parameters of the model, such as 7e9 or 7B, instead of --model.")
@click.option(
    "--output",
    "outputs",
    type=OutputType(),
    multiple=True,
    help="Also write a report to FILE, in addition to the printed one. Repeatable.",
)
@click.option(
    "--command",
    "command_line",
    metavar="COMMAND",
    help="Check a launch command (quoted): its program, ranks, arguments and config.",
)
@click.option(
    "--files-from",
    metavar="FILE",
    help='Check the files listed in FILE ("-": standard input), one per line or NUL-terminated, instead of PATHs.',
)
@click.option(
    "--write-baseline", is_flag=True, help="Write all findings to a new baseline; in an existing one, drop entries that no longer match."
)
@click.option("--add-ignores", metavar="REASON", help="Suppress every current finding, recording REASON.")
@click.option("--no-ignores", is_flag=True, help="Also report findings that comments, settings or the baseline suppress.")
@click.option("--fix", is_flag=True, help="Apply fixes that do not change what DeepSpeed does.")
@click.option("--unsafe-fixes", is_flag=True, help="Apply fixes, those that change training or drop comments, too.")
@click.option("--fix-only", is_flag=True, help="Apply fixes without reporting the remaining findings.")
@click.option("--diff", is_flag=True, help="Print the fixes as a diff without writing files.")
@click.option("--statistics", is_flag=True, help="Print the number of findings of each rule instead of the findings.")
@click.option("-v", "--verbose", is_flag=True, help="Explain inferred values.")
@click.option("-q", "--quiet", is_flag=True, help="Print findings only, without the summary.")
@click.option("--group/--no-group", default=True, help="Print the same finding of many files once.  [default: group]")
@click.option(
    "--at-most",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print at most N findings, the most severe ones, and say how many there are. For full and concise.",
)
@click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are findings; the same as --fail-on never.")
@click.option("--watch", is_flag=True, help="Check again whenever a file changes, until interrupted.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="The number of processes.  [default: all cores after a second]")
@color_option
@click.option("--stdin-filename", metavar="NAME", help='The name to report for a config read from standard input ("-").')
def command(finder: Finder, params: float | None, watch: bool, no_ignores: bool, **wishes: object) -> None:  # noqa: FBT001 - click passes them by name
    """Find mistakes in DeepSpeed configs.

    PATH is a file, a directory, a pattern, or "-" for standard input; the default is the current directory. In directories dslint checks
    files that look like DeepSpeed configs, and the training setups that use a config: YAML files of Accelerate and of training
    frameworks, launch scripts, programs and notebooks.

    \b
    Exit codes:
      0  no findings at or above --fail-on
      1  findings
      2  usage or settings error, unreadable file, nothing to check, or an internal error
    """  # noqa: D301 - click needs the character itself
    if params is not None:
        if click.get_current_context().params.get(SETTINGS["model"].variable.lower()) is not None:
            raise click.UsageError("--model and --params cannot be combined.")
        from dslint.facts.model_config import sized_model

        finder = finder.given("--params", model=sized_model(params))
    wanted = CheckOptions(ignores=not no_ignores, **wishes)  # type: ignore[arg-type]
    if wanted.stdin_filename is not None and "-" not in wanted.paths:
        raise click.UsageError('--stdin-filename requires "-" as a path.')
    if wanted.fixing and watch:
        raise click.UsageError("--watch cannot be combined with fixes.")
    if wanted.add_ignores is not None:
        if not wanted.add_ignores.strip():
            raise click.UsageError("--add-ignores requires a reason.")
        if not wanted.add_ignores.isprintable():
            raise click.UsageError("--add-ignores requires a reason of one line, without control characters.")
        if wanted.fixing or wanted.write_baseline or watch or no_ignores or "-" in wanted.paths or wanted.command_line is not None:
            raise click.UsageError(
                "--add-ignores requires files and cannot be combined with fixes, --write-baseline, --watch or --no-ignores."
            )
    if wanted.files_from is not None and (wanted.paths or watch):
        raise click.UsageError("--files-from cannot be combined with PATHs or --watch.")
    if wanted.command_line is not None and (wanted.paths or watch or wanted.files_from is not None):
        raise click.UsageError("--command cannot be combined with PATHs, --files-from or --watch.")
    if watch:
        from dslint.cli.watch import watch as keep_watching

        if "-" in wanted.paths:
            raise click.UsageError("--watch requires files, not standard input.")
        keep_watching(wanted.paths or (".",), lambda fresh: check(fresh, wanted), finder)
        return
    sys.exit(check(finder, wanted))


def check(finder: Finder, wanted: CheckOptions) -> int:
    """Check, write all reports, and return the exit code."""
    found = _found(finder, wanted)
    for missing in found.nothing:
        warn(str(missing))
    _refuse_outputs(wanted.outputs, found)
    failed, changes = bool(found.nothing), 0
    if wanted.fixing:
        from dslint.cli.fix import fix

        files, changes, written = fix(found.targets, finder, wanted)
        failed |= not written
    else:
        files = _lint(found, finder, wanted)
    if not files:
        listed_only = wanted.files_from is not None or run_settings(finder)["force-exclude"]
        return _nothing_to_check(wanted.paths, found, finder, files_listed=listed_only)
    if wanted.diff or wanted.fix_only:
        return _only_mended(files, wanted, failed=failed, changes=changes)
    files = _without_ignored(files, finder, wanted)
    if wanted.add_ignores is not None:
        from dslint.cli.ignores import add_ignores

        add_ignores(files, finder, wanted.add_ignores)
        return check(finder.again(), wanted._replace(add_ignores=None))
    written = _report([for_report(file) for file in files], finder, wanted)
    settings = run_settings(finder)
    return exit_code(
        files,
        failed=failed or not written,
        forgiving=wanted.exit_zero,
        strict=bool(settings["strict"]),
        left_out=has_unknown(settings),
    )


def _refuse_outputs(outputs: Iterable[tuple[str, str]], found: Discovered) -> None:
    """Refuse reports that would overwrite each other or a file that is checked."""
    inputs = {os.path.realpath(target.path) for target in found.targets} if outputs else set()
    taken: set[str] = set()
    for _, path in outputs:
        real = os.path.realpath(path)
        if real in inputs:
            raise click.UsageError(f"--output {path} would overwrite a file that is checked.")
        if real in taken and (os.path.isfile(real) or not os.path.exists(real)):
            raise click.UsageError(f"two --output write to {path}.")
        taken.add(real)


def _found(finder: Finder, wanted: CheckOptions) -> Discovered:
    """The files to check."""
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
        raise click.UsageError("--write-baseline requires --baseline FILE (or baseline = FILE in the settings).")
    if baseline and (wanted.ignores or wanted.write_baseline):
        return _apply_baseline(os.path.relpath(baseline), files, wanted)
    return files


def _report(files: Iterable[FileResult], finder: Finder, wanted: CheckOptions) -> bool:
    """Write all reports; False if one to a file failed."""
    settings = run_settings(finder)
    results = Results(settings.context, tuple(files), settings.rules, wanted.verbose, wanted.quiet, wanted.group, wanted.at_most)
    written = [_write_file(results, *output) for output in wanted.outputs]
    out = sys.stderr if wanted.fixing and "-" in wanted.paths else sys.stdout  # the fixed text is on standard output
    color = wants_color(wanted.color, out)
    if wanted.statistics:
        from dslint.report import statistics

        statistics.write(results, out, color=color)
    else:
        text, whole = _rendered(results, settings["output-format"], color=color, width=terminal_width())
        out.write(text)
        written.append(whole)
        if settings["output-format"] in ("full", "concise"):
            _say_what_is_left(results, known=bool(settings["baseline"]))
    return all(written)


def _say_what_is_left(results: Results, *, known: bool) -> None:
    """Say how many findings were not printed, and how to start with a baseline where there is none."""
    total, printed = len(results.diagnostics), sum(len(file.diagnostics) for file in results.printed)
    if printed == total:
        return
    warn(f"printed the {printed:,} most severe of {total:,} findings.")
    if not known:
        warn("to report only new findings from now on: dslint check --baseline dslint-baseline.json --write-baseline")


def _rendered(results: Results, output_format: str, *, color: bool, width: int) -> tuple[str, bool]:
    """A report as text, and whether that worked. A file that cannot be reported becomes an internal error; the others are reported."""

    def text_of(results: Results) -> str:
        out = StringIO()
        write(results, output_format, out, color=color, width=width)
        return out.getvalue()

    try:
        return text_of(results), True
    except Exception:  # noqa: BLE001 - found again below, for the files that cause it
        return text_of(results._replace(files=tuple(_reportable(file, results, text_of) for file in results.files))), False


def _reportable(file: FileResult, results: Results, text_of: Callable[[Results], str]) -> FileResult:
    try:
        text_of(results._replace(files=(file,)))
    except Exception as error:  # noqa: BLE001 - whatever is in one file, the others are reported
        return failed_on(file.path, error)
    return file


def _only_mended(files: Iterable[FileResult], wanted: CheckOptions, *, failed: bool, changes: int) -> int:
    """The exit code if only unreadable files are reported: with `--diff`, 1 if there are fixes."""
    for file in files:
        internal = [d.message for d in file.diagnostics if d.code == INTERNAL_ERROR]
        for reason in [*([file.error] if file.error else []), *internal]:
            warn(f"{file.path}: {reason}")
            failed = True
    if failed:
        return FAILED
    return FINDINGS if wanted.diff and changes and not wanted.exit_zero else CLEAN


def exit_code(files: Iterable[FileResult], *, failed: bool, forgiving: bool, strict: bool, left_out: bool) -> int:
    """The exit code for the results. `failed`: something else went wrong; `forgiving`: findings do not fail the run; `left_out`: a part of
    every file was not judged.
    """
    files = list(files)
    if failed or any(file.error or any(d.code == INTERNAL_ERROR for d in file.diagnostics) for file in files):
        return FAILED
    fails = (strict and left_out) or any(file.fails or (strict and (file.not_judged or file.context.outside)) for file in files)
    return FINDINGS if fails and not forgiving else CLEAN


def _lint(found: Discovered, finder: Finder, wanted: CheckOptions) -> list[FileResult]:
    """Lint standard input, a command, or files."""
    stdin = wanted.stdin_filename or "<stdin>"
    given = guarded(partial(_lint_stdin, stdin, finder), stdin) if "-" in wanted.paths else []
    if wanted.command_line is not None:
        given += guarded(partial(lint_launch, wanted.command_line, run_settings(finder)), "<command>")
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
        warn(f"interrupted after {done:,} of {total:,} files; no findings are reported.")
        raise


def _lint_stdin(name: str, finder: Finder) -> list[FileResult]:
    try:
        return lint_given(read_stdin(), name, finder.for_file(name))
    except ReadError as error:
        return [FileResult(name, "unreadable", error=str(error), context=finder.for_file(name).context)]


def _list_of(path: str) -> str:
    try:
        data = sys.stdin.buffer.read(MAX_BYTES + 1) if path == "-" else read_bytes(path, pipes=True)
    except ReadError as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if len(data) > MAX_BYTES:
        raise UserError(f"the list of files on standard input is larger than {MAX_BYTES // 2**20} MiB.")
    return data.decode("utf-8", "surrogateescape")


def _apply_baseline(path: str, files: list[FileResult], wanted: CheckOptions) -> list[FileResult]:
    """The results without findings of the baseline; with --write-baseline the baseline is written."""
    from dslint.suppress import baseline

    path = path.replace(os.sep, "/")
    if wanted.write_baseline and not os.path.exists(path):
        known = baseline.first(path, files)
        baseline.write(known)
        warn(f"wrote {count(known.counts.total(), 'finding')} to {path}; only new findings are reported.")
        return list(baseline.apply(known, files))
    known = baseline.load(path)
    files = list(baseline.apply(known, files))
    left = baseline.shrunk(known, files)
    gone = known.counts.total() - left.counts.total()
    if wanted.write_baseline and gone:
        baseline.write(left)
        warn(f"dropped {_entries(gone)} from {path}; {left.counts.total():,} left.")
    elif gone:
        match, them = ("matches", "it") if gone == 1 else ("match", "them")
        warn(f"{_entries(gone)} no longer {match}; run --write-baseline to drop {them}.")
    return files


def _entries(number: int) -> str:
    return count(number, "baseline entry", "baseline entries")


def _write_file(results: Results, output_format: str, path: str) -> bool:
    """Write a report to a file atomically; False if that failed."""
    from dslint.fixes.atomic_write import write_whole

    text, whole = _rendered(results, output_format, color=False, width=100)
    try:
        write_whole(path, text)
    except OSError as error:
        warn(f"cannot write {path}: {error.strerror or error}")
        return False
    return whole


def _nothing_to_check(paths: tuple[str, ...], found: Discovered, settings: Finder, *, files_listed: bool) -> int:
    """Report that there is nothing to check, unless a missing path was reported. Excluded files and empty file lists are not errors."""
    if not found.nothing and (found.excluded or files_listed):
        return CLEAN
    if not found.nothing:
        where = ", ".join(paths) or "the current directory"
        skipped = _skipped_tests(paths or (os.curdir,), settings)
        warn(f"nothing to check: no file in {where} looks like a DeepSpeed config.{skipped} To check a file anyway, name it.")
    return FAILED


_MOST_TESTS = 3
"""How many skipped tests a sentence names."""


def _skipped_tests(paths: tuple[str, ...], settings: Finder) -> str:
    """What to say of programs that mention DeepSpeed and were skipped as tests; "" if there are none."""
    tests = [shown(one) for one in tests_below(paths, settings)]
    if not tests:
        return ""
    more = f" and {len(tests) - _MOST_TESTS} more" if len(tests) > _MOST_TESTS else ""
    skipped = "1 test that mentions DeepSpeed was" if len(tests) == 1 else f"{len(tests)} tests that mention DeepSpeed were"
    return f" {skipped} skipped: {', '.join(tests[:_MOST_TESTS])}{more}."
