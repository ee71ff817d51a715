"""`dslint rule`: explain a rule, or list them."""

from __future__ import annotations

import shutil
import sys

import click

from dslint.cli.options import no_such_rule, wants_color
from dslint.report import rule_page
from dslint.rules import all_rules


@click.command(name="rule", short_help="Explain a rule, or list them all.")
@click.argument("word", required=False, metavar="[CODE|NAME]")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="When to use colour. NO_COLOR and FORCE_COLOR are obeyed.",
)
def command(word: str | None, color: str) -> None:
    """Explain a rule: what it finds, why it matters, what to write instead. Without a code or name, list all rules."""
    colored = wants_color(color, sys.stdout)
    width = max(40, min(shutil.get_terminal_size((80, 24)).columns, 100))
    if word is None:
        click.echo(rule_page.index(all_rules(), color=colored, width=width), color=True)
        return
    for rule in all_rules():
        if word.upper() == rule.code or word.lower() == rule.name:
            click.echo(rule_page.render(rule, color=colored, width=width), color=True)
            return
    raise click.UsageError(no_such_rule(word))
