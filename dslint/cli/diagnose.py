"""`dslint diagnose`: why a job failed, from its log."""

from __future__ import annotations

import sys

import click

from dslint.cli.options import color_option, terminal_width, wants_color
from dslint.diagnose.diagnose import diagnose
from dslint.diagnose.diagnosis import Diagnosis, End
from dslint.diagnose.reading import Source, sources_of
from dslint.errors import UserError
from dslint.report import diagnosis_page
from dslint.report.style import Style

CLEAN, FOUND, NOTHING = 0, 1, 2


@click.command(name="diagnose", short_help="Find out from its log why a job failed.")
@click.argument("paths", nargs=-1, required=True, metavar="LOG...")
@color_option
def command(paths: tuple[str, ...], color: str) -> None:
    """Find out from its log why a job failed: what ran, how it ended, the cause with its evidence, and what to change.

    LOG is a file, a directory with the logs of the ranks, or "-" for standard input.

    \b
    Exit codes:
      0  the job finished, and nothing was found
      1  a cause or a finding
      2  usage error, an unreadable log, or no DeepSpeed job in the log
    """  # noqa: D301 - click needs the character itself
    found = _diagnosed(paths)
    style = Style(color=wants_color(color, sys.stdout), width=terminal_width(60, most=120))
    click.echo(diagnosis_page.page(found, style), color=style.color)
    sys.exit(exit_code(found))


def exit_code(found: list[Diagnosis]) -> int:
    """The exit code: that of the worst job."""
    known = [diagnosis for diagnosis in found if diagnosis.outcome.end is not End.UNKNOWN or diagnosis.causes]
    if not known:
        return NOTHING
    return CLEAN if all(diagnosis.is_clean for diagnosis in known) else FOUND


def _diagnosed(paths: tuple[str, ...]) -> list[Diagnosis]:
    try:
        return diagnose([Source("<stdin>", sys.stdin.buffer)] if paths == ("-",) else sources_of(paths))
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror or error}") from None
