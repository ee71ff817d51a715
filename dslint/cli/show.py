"""`dslint show`: the effective config."""

from __future__ import annotations

import sys

import click

from dslint.cli.options import FACTS, color_option, read_stdin, settings_options, terminal_width, wants_color, warn
from dslint.config import Config, resolve
from dslint.config.detect import FileKind, detect_kind
from dslint.config.effective import as_deepspeed_sees_it, effective
from dslint.config.infer import infer
from dslint.lint.discovery import shown
from dslint.lint.files import is_setup
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

    CONFIG is a file, or "-" for standard input. It may also be a training that uses a config (YAML, a script, a program): the values that
    it puts in the place of "auto" then come with their places in it. The format `config` is the config as DeepSpeed sees it, as JSON.
    """
    try:
        text = read_stdin() if path == "-" else read(path)
    except ReadError as error:
        warn(f"{shown(path)}: {error}")
        sys.exit(2)
    config = _of_setup(text, path, finder) if is_setup(path) else _of_config(text, path, finder)
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
    for name, evidence in config.context.evidence:
        warn(f"assumed --{name.replace('_', '-')} {getattr(config.facts, name)}: {evidence}")
    click.echo(show_page.table(entries, color=colored, width=width), color=colored)


def _of_setup(text: str, path: str, finder: Finder) -> Config:
    """The config that a training leads to, with what stands beside it; exits where there is none."""
    from dslint.lint.setups import read_setups

    found = read_setups(text, path, shown(path), finder.for_file(path).context, named=True)
    assert found is not None, "what is named is always read"
    for gathered in found.setups:
        if gathered.config is not None and isinstance(gathered.config.root, Mapping):
            if found.note:
                warn(f"{shown(path)}: {found.note}")
            if len(found.setups) > 1:
                warn(f"{shown(path)}: {len(found.setups)} trainings are in it; this is the config of the first.")
            return resolve(gathered.config, gathered.context)
    warn(f"{shown(path)}: {found.note}")
    for gathered in found.setups:
        for linked, error in gathered.errors.items():
            warn(f"{linked}: {error}")
    sys.exit(1)


def _of_config(text: str, path: str, finder: Finder) -> Config:
    """The config that a text is; exits where it is none."""
    document = parse(decode_base64(text) or text)
    kind, note = detect_kind(document, named=True)
    if not document.problems and not isinstance(document.root, Mapping):
        note = "it holds no object, and so no config."
    if document.problems or note or kind is not FileKind.DS_CONFIG:
        for problem in document.problems:
            place = document.position(problem.span.start)
            click.echo(f"{shown(path)}:{place.line}:{place.column}: {problem.message}", err=True)
        if note:
            warn(f"{shown(path)}: {note}")
        sys.exit(1)
    return resolve(document, infer(document, finder.for_file(path).context))
