"""`dslint show`: the effective config."""

from __future__ import annotations

import sys

import click

from dslint.cli.open_config import open_config
from dslint.cli.options import color_option, settings_options, show_page, terminal_width, wants_color, warn
from dslint.config import resolve
from dslint.config.effective import as_deepspeed_sees_it, effective
from dslint.report import show_page as page
from dslint.report.words import inferred_fact
from dslint.settings import Finder
from dslint.settings.table import FACTS


@click.command(name="show", short_help="Print the effective config with the origin of every value.")
@click.argument("path", metavar="CONFIG")
@settings_options(*FACTS)
@click.option("--all", "everything", is_flag=True, help="Print every key, including unused defaults.")
@click.option(
    "--output-format", type=click.Choice(["text", "json", "config"]), default="text", show_default=True, help="The output format."
)
@color_option
def command(path: str, finder: Finder, everything: bool, output_format: str, color: str) -> None:  # noqa: FBT001 - click passes it by name
    """Print the config that DeepSpeed will use: every value with its origin (written, default, derived from other keys, filled by an
    integration, mapped from a deprecated key), and the written keys that have no effect.

    CONFIG is a file, or "-" for standard input. It may also be a training setup that uses a config (YAML, a script, a program); values that
    replace "auto" are then shown with their source. The format `config` is the config as DeepSpeed sees it, as JSON. A table that is longer
    than the terminal opens in the pager ($PAGER).
    """
    loaded = open_config(path, finder)
    config = resolve(loaded.document, loaded.context)
    if output_format == "config":
        import json

        seen, unknown = as_deepspeed_sees_it(config)
        click.echo(json.dumps(seen, indent=2, default=str))
        if unknown:
            warn(f"omitted because the value is unknown: {', '.join(unknown)}")
        return
    entries = effective(config, everything=everything)
    if output_format == "json":
        click.echo(page.as_json(entries))
        return
    width = terminal_width(60)
    colored = wants_color(color, sys.stdout)
    for name, evidence in config.context.evidence:
        sentence = inferred_fact(config.context, name, evidence)
        warn(sentence[:1].lower() + sentence[1:])
    show_page(page.table(entries, color=colored, width=width), color=colored, paged=True)
