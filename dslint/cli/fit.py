"""`dslint fit`: changes that make a config fit in memory."""

from __future__ import annotations

import sys
from typing import Any

import click

from dslint.cli.estimate import DOES_NOT_FIT, LimitType
from dslint.cli.options import color_option, show_page, terminal_width, wants_color
from dslint.cli.rates import rate_options
from dslint.cli.workload import open_workload, say_errors, workload_options
from dslint.config import Config, resolve
from dslint.memory.costs import Seconds
from dslint.memory.estimate import Estimate
from dslint.memory.fit import FitSearch
from dslint.memory.ways import Goal
from dslint.report import fit_page
from dslint.report.style import Style
from dslint.settings import Finder
from dslint.source.config_text import config_text
from dslint.speed.planned import Rates, seconds_of, speeds_of


@click.command(name="fit", short_help="List changes that make a config fit in memory, best first.")
@click.argument("path", metavar="CONFIG")
@workload_options
@click.option("--limit", type=LimitType(), metavar="SIZE", help="The memory limit of a GPU.  [default: the memory of the GPU]")
@rate_options
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="The output format.")
@color_option
def command(
    path: str,
    finder: Finder,
    said: dict[str, Any],
    limit: int | str | None,
    rates: Rates,
    output_format: str,
    color: str,
) -> None:
    """List changes that make CONFIG fit in GPU memory, best first: the diff, the memory saved and the cost in time. The number of samples
    per step stays the same. If CONFIG fits already, list what it does not need.

    CONFIG is a file, or "-" for standard input. No file is written.

    \b
    Exit codes:
      0  the config fits, or a change makes it fit
      2  usage error, or an unreadable config or model
      4  no change that was tried makes it fit
    """  # noqa: D301 - click needs the character itself
    opened = open_workload(path, finder, said)
    loaded, found, context = opened.loaded, opened.found, opened.context
    say_errors(path, resolve(loaded.document, context))
    facts = context.facts
    memory = facts.gpu_memory if limit in (None, "gpu") else limit
    if not isinstance(memory, int):
        raise click.UsageError("No memory limit given: pass --gpu, --gpu-memory or --limit.")

    def timed(config: Config, estimated: Estimate) -> Seconds:
        return seconds_of(config, estimated, rates)

    fit = FitSearch(config_text(loaded.document), found.model, opened.planner(), timed).run(Goal(memory, facts.host_memory))
    speeds = speeds_of(rates, context.calibration, facts.gpu)
    if output_format == "json":
        click.echo(fit_page.as_json(fit, facts, speeds))
    else:
        style = Style(color=wants_color(color, sys.stdout), width=terminal_width(60))
        show_page(fit_page.page(fit, facts, speeds, opened.text_name(path), style), color=style.color)
    sys.exit(0 if fit.fits or fit.ways else DOES_NOT_FIT)
