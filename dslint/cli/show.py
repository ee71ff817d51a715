"""`dslint show`: the effective config."""

from __future__ import annotations

import sys

import click

from dslint.cli.options import FACTS, color_option, read_stdin, settings_options, terminal_width, wants_color, warn
from dslint.config import resolve
from dslint.discover import shown
from dslint.effective import as_deepspeed_sees_it, effective
from dslint.infer import infer
from dslint.recognise import Kind, recognise
from dslint.report import show_page
from dslint.settings import Finder
from dslint.source.parse import parse
from dslint.source.read import ReadError, decode_base64, read
from dslint.source.tree import Mapping


@click.command(name="show", short_help="Print the effective config, with the origin of every value.")
@click.argument("path", metavar="CONFIG")
@settings_options(*FACTS)
@click.option("--all", "everything", is_flag=True, help="Every key there is, and not only those that matter here.")
@click.option(
    "--output-format", type=click.Choice(["table", "json", "config"]), default="table", show_default=True, help="How it is printed."
)
@color_option
def command(path: str, finder: Finder, everything: bool, output_format: str, color: str) -> None:  # noqa: FBT001 - click passes it by name
    """Print what DeepSpeed will use: every value with its origin (written, default, derived from other keys, filled by an integration,
    mapped from a deprecated key), and what is written and has no effect.

    CONFIG is a file, or "-" for standard input. The format `config` is the config as DeepSpeed sees it, as JSON.
    """
    try:
        text = read_stdin() if path == "-" else read(path)
    except ReadError as error:
        warn(f"{shown(path)}: {error}")
        sys.exit(2)
    document = parse(decode_base64(text) or text)
    kind, note = recognise(document, named=True)
    if not document.problems and not isinstance(document.root, Mapping):
        note = "it holds no object, and so no config."
    if document.problems or note or kind is not Kind.DS_CONFIG:
        for problem in document.problems:
            place = document.position(problem.span.start)
            click.echo(f"{shown(path)}:{place.line}:{place.column}: {problem.message}", err=True)
        if note:
            warn(f"{shown(path)}: {note}")
        sys.exit(1)
    config = resolve(document, infer(document, finder.for_file(path).facts))
    if output_format == "config":
        import json

        seen, unknown = as_deepspeed_sees_it(config)
        click.echo(json.dumps(seen, indent=2, default=str))
        if unknown:
            warn(f"left out, because the value is not known: {', '.join(unknown)}")
        return
    entries = effective(config, everything=everything)
    if output_format == "json":
        click.echo(show_page.as_json(entries))
        return
    width = terminal_width(60)
    colored = wants_color(color, sys.stdout)
    for name, evidence in config.facts.inferred:
        warn(f"assumed --{name} {getattr(config.facts, name)}: {evidence}")
    click.echo(show_page.table(entries, color=colored, width=width), color=colored)
