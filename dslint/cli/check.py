"""`dslint check`: lint files and say what was found."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from dslint.cli.options import FactsOptions, choose_rules, facts_options, wants_color
from dslint.diagnostics import Severity
from dslint.discover import Target, discover, shown
from dslint.facts import Facts
from dslint.linter import INTERNAL_ERROR, lint_file, lint_text
from dslint.report import FORMATS, write
from dslint.results import FileResult, Results
from dslint.rule import Rule
from dslint.source.read import MAX_BYTES, ReadError, decode

CLEAN, FINDINGS, FAILED = 0, 1, 2


@click.command(name="check", short_help="Find the mistakes in DeepSpeed configs.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@facts_options
@click.option("--select", metavar="RULES", multiple=True, help="Ask only these rules: codes, names or chapters (DS5), separated by commas.")
@click.option("--ignore", metavar="RULES", multiple=True, help="Leave these rules out.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info", "never"]),
    default="warning",
    show_default=True,
    help="The least severity that makes the exit code 1.",
)
@click.option("--output-format", type=click.Choice(list(FORMATS)), default="full", show_default=True, help="How findings are printed.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="When to use colour. NO_COLOR and FORCE_COLOR are obeyed.",
)
@click.option("--stdin-filename", metavar="NAME", help='The name to report for a config that comes from standard input ("-").')
def command(
    paths: tuple[str, ...],
    facts: FactsOptions,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: str,
    output_format: str,
    color: str,
    stdin_filename: str | None,
) -> None:
    """Find the mistakes in DeepSpeed configs.

    PATH is a file, a directory (in which only files that look like DeepSpeed configs are judged), a pattern, or "-" for standard input.
    Without one, the current directory is searched.

    \b
    Exit codes:
      0  nothing at or above --fail-on
      1  findings
      2  bad usage, a file that cannot be opened, nothing to check, or a defect of dslint
    """  # noqa: D301 - click wants the character itself
    rules = choose_rules(select, ignore)
    known = facts.facts()
    if stdin_filename is not None and "-" not in paths:
        raise click.UsageError('--stdin-filename is for a config from standard input: give "-" as the path.')
    targets, nothing = discover(path for path in paths or (".",) if path != "-")
    files: list[FileResult] = []
    if "-" in paths:
        files.append(_lint_stdin(stdin_filename or "<stdin>", known, rules))
    files.extend(result for target in targets if (result := _lint(target, known, rules)) is not None)
    for missing in nothing:
        click.echo(f"dslint: {missing}", err=True)
    if not files:
        _nothing_to_check(paths, already_said=bool(nothing))
    results = Results(known, tuple(files))
    write(results, output_format, sys.stdout, color=wants_color(color, sys.stdout), width=_width())
    sys.exit(exit_code(results, fail_on, failed=bool(nothing)))


def exit_code(results: Results, fail_on: str, *, failed: bool = False) -> int:
    """The exit code for the results. `failed` says that something went wrong beside them."""
    if failed or any(file.error for file in results.files) or any(d.code == INTERNAL_ERROR for d in results.diagnostics):
        return FAILED
    if fail_on == "never":
        return CLEAN
    least = Severity(fail_on).rank
    return FINDINGS if any(diagnostic.severity.rank >= least for diagnostic in results.diagnostics) else CLEAN


def _lint(target: Target, facts: Facts, rules: list[Rule]) -> FileResult | None:
    return lint_file(target.path, shown(target.path), facts, rules, named=target.named)


def _lint_stdin(name: str, facts: Facts, rules: list[Rule]) -> FileResult:
    try:
        text = decode(sys.stdin.buffer.read(MAX_BYTES + 1))
    except ReadError as error:
        return FileResult(name, "unreadable", error=str(error), facts=facts)
    result = lint_text(text, shown(name), facts, rules)
    assert result is not None, "a named text always has a result"
    return result


def _nothing_to_check(paths: tuple[str, ...], *, already_said: bool) -> NoReturn:
    if not already_said:
        where = ", ".join(paths) or "the current directory"
        click.echo(
            f"dslint: nothing to check: no file in {where} looks like a DeepSpeed config. A file that is named is always looked at.",
            err=True,
        )
    sys.exit(FAILED)


def _width() -> int:
    import shutil

    return max(40, min(shutil.get_terminal_size((80, 24)).columns, 120))
