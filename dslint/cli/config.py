"""`dslint config`: the active settings."""

from __future__ import annotations

import os
import sys

import click

from dslint.cli.options import color_option, run_settings, settings_options, show_page, wants_color
from dslint.facts import Release, Upgrade
from dslint.facts.gpus import Gpu
from dslint.report.style import Style, visible
from dslint.settings import Finder, Settings
from dslint.settings.kinds import IgnoreEntry, show
from dslint.settings.table import FACTS, SETTINGS

RUN_WIDE = ("output-format", "baseline")


@click.command(name="config", short_help="Print the active settings and their sources.")
@click.argument("path", required=False, metavar="[FILE]", type=click.Path())
@settings_options(*FACTS)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="The output format.")
@color_option
def command(finder: Finder, path: str | None, output_format: str, color: str) -> None:
    """Print the active settings for FILE (default: for the working directory) and the source of each: a settings file, an environment
    variable, an option, or the default.

    Settings come from the nearest `dslint.toml`, or `pyproject.toml` with a table `[tool.dslint]`, then from `DSLINT_*` variables, then
    from the command line; later sources override earlier ones.
    """
    here = os.getcwd()
    settings = finder.for_file(path) if path and not os.path.isdir(path) else finder.for_directory(os.path.abspath(path or here))
    if output_format == "json":
        import json

        click.echo(json.dumps(_payload(settings, run_settings(finder)), indent=2))
        return
    style = Style(color=wants_color(color, sys.stdout), width=80)
    rows = [(name, *map(visible, _row(name, settings, run_settings(finder)))) for name in SETTINGS]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, origin in rows:
        line = f"{name:<{widths[0]}}  {value:<{min(widths[1], 40)}}  "
        row = line + style.paint(origin, "dim") if origin == "default" else style.paint(line, "bold") + origin
        show_page(row, color=style.color)


def _row(name: str, settings: Settings, of_run: Settings) -> tuple[str, str]:
    found = (of_run if name in RUN_WIDE else settings).in_force(name)
    return "-" if found.value in (None, (), {}) else show(found.value), ", ".join(found.origins) or "default"


def _payload(settings: Settings, of_run: Settings) -> dict[str, object]:
    in_force = {name: (of_run if name in RUN_WIDE else settings).in_force(name) for name in SETTINGS}
    return {name: {"value": _as_data(found.value), "origins": list(found.origins)} for name, found in in_force.items()}


def _as_data(value: object) -> object:
    if isinstance(value, Release | Upgrade | Gpu):
        return str(value)
    if isinstance(value, IgnoreEntry):
        return {name: _as_data(entry) for name, entry in value._asdict().items()}
    if isinstance(value, tuple):
        return [_as_data(entry) for entry in value]
    return {key: _as_data(entry) for key, entry in value.items()} if isinstance(value, dict) else value
