"""`dslint rule`: explain a rule, or list them."""

from __future__ import annotations

import sys

import click

from dslint.cli.options import color_option, complete_rules, terminal_width, wants_color
from dslint.report import rule_page
from dslint.rules import all_rules
from dslint.selection import no_such_rule


@click.command(name="rule", short_help="Explain a rule, or list them all.")
@click.argument("word", required=False, metavar="[CODE|NAME]", shell_complete=lambda _ctx, _param, word: complete_rules(word))
@color_option
def command(word: str | None, color: str) -> None:
    """Explain a rule: what it finds, why it matters, what to write instead. Without a code or name, list all rules."""
    colored = wants_color(color, sys.stdout)
    width = terminal_width(most=100)
    if word is None:
        click.echo(rule_page.index(all_rules(), color=colored, width=width), color=True)
        return
    for rule in all_rules():
        if word.upper() == rule.code or word.lower() == rule.name:
            click.echo(rule_page.render(rule, color=colored, width=width), color=True)
            return
    raise click.UsageError(no_such_rule(word, all_rules()))
