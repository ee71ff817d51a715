"""`dslint rule`: explain a rule, list them, or find the ones behind an error."""

from __future__ import annotations

import os
import sys

import click

from dslint.cli.options import color_option, complete_rules, run_settings, terminal_width, wants_color
from dslint.errors import UserError
from dslint.registry.rules import all_rules
from dslint.registry.selection import is_name_of, no_such_rule
from dslint.report import rule_page
from dslint.settings import Finder, from_environment

FOUND, NOTHING = 0, 1

ENOUGH = 4 * 2**20
"""Bytes of a log, from its end, in which its error is looked for."""


@click.command(name="rule", short_help="Explain a rule, list them all, or find those behind an error.")
@click.argument("word", required=False, metavar="[CODE|NAME]", shell_complete=lambda _ctx, _param, word: complete_rules(word))
@click.option(
    "--error",
    metavar="TEXT|FILE|-",
    help="Find the rules behind an error that DeepSpeed, transformers, Accelerate or Lightning prints: its message or traceback, "
    'a file that holds it, or "-" for standard input.',
)
@color_option
def command(word: str | None, error: str | None, color: str) -> None:
    """Explain a rule: what it finds, why it matters, what to write instead. Without a code or name, list all rules.

    With --error, exit with 1 where no rule is known to be behind the error.
    """
    run_settings(Finder([from_environment(os.environ)]))["plugins"]  # to read it is to load them, so that their rules are listed
    colored = wants_color(color, sys.stdout)
    width = terminal_width(most=100)
    if error is not None:
        if word is not None:
            raise click.UsageError("--error finds rules: it goes without CODE or NAME.")
        sys.exit(_behind(error, color=colored, width=width))
    if word is None:
        click.echo(rule_page.index(all_rules(), color=colored, width=width), color=True)
        return
    for rule in all_rules():
        if is_name_of(word, rule):
            click.echo(rule_page.render(rule.load(), color=colored, width=width), color=True)
            return
    raise click.UsageError(no_such_rule(word, all_rules()))


def _behind(text: str, *, color: bool, width: int) -> int:
    """Print the rules behind an error, and give the exit code."""
    from dslint.diagnose.parse_log import errors_in
    from dslint.diagnose.search import find
    from dslint.report import errors_page

    found = [(raised, find(raised)) for raised in errors_in(_text_of(text))]
    if not found:
        raise click.UsageError("there is no text in what --error was given.")
    click.echo(errors_page.render(found, {rule.code: rule for rule in all_rules()}, color=color, width=width), color=True)
    return FOUND if any(matches for _, matches in found) else NOTHING


def _text_of(given: str) -> str:
    """The text itself, or what the file of that name or standard input holds at its end."""
    if given == "-":
        data = sys.stdin.buffer.read()[-ENOUGH:]
    elif "\n" not in given and len(given) < 1000 and os.path.isfile(given):
        try:
            with open(given, "rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - ENOUGH, 0))
                data = file.read()
        except OSError as error:
            raise UserError(f"{given} cannot be read: {error.strerror or error}") from None
    else:
        return given
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))  # PowerShell's ">" writes UTF-16
    return data.decode("utf-16" if wide else "utf-8", errors="replace").replace("\0", "")
