"""`dslint fit`: changes that make a config fit in memory."""

from __future__ import annotations

import sys
from typing import Any

import click

from dslint.cli.estimate import DOES_NOT_FIT, LimitType
from dslint.cli.open_config import text_of
from dslint.cli.options import color_option, show_page, terminal_width, wants_color
from dslint.cli.workload import open_workload, workload_options
from dslint.facts.gpus import size
from dslint.memory.costs import Speeds, speeds_of
from dslint.memory.fit import Search
from dslint.memory.ways import Goal
from dslint.report import fit_page
from dslint.report.style import Style
from dslint.settings import Finder


class Rate(click.ParamType):  # type: ignore[type-arg] # older releases of click have no parameter here
    """Bytes per second: `25GB/s`."""

    name = "RATE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if not isinstance(value, str):
            return float(value)
        try:
            return float(size(value.strip().removesuffix("/s")))
        except ValueError:
            self.fail(f'"{value}" is not a rate such as 25GB/s', param, ctx)


@click.command(name="fit", short_help="List changes that make a config fit in memory, best first.")
@click.argument("path", metavar="CONFIG")
@workload_options
@click.option("--limit", type=LimitType(), metavar="SIZE", help="The memory limit of a GPU.  [default: the memory of the GPU]")
@click.option("--pcie", type=Rate(), metavar="RATE", help="The bandwidth between GPU and host.  [default: 25GB/s, or as calibrated]")
@click.option(
    "--interconnect",
    type=Rate(),
    metavar="RATE",
    help="The bandwidth between the GPUs of a machine.  [default: 200GB/s for GPUs with NVLink, else that of --pcie]",
)
@click.option("--nvme", type=Rate(), default="6GB/s", show_default=True, help="The bandwidth of a machine's NVMe disks.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="The output format.")
@color_option
def command(
    path: str,
    finder: Finder,
    said: dict[str, Any],
    limit: int | str | None,
    pcie: float | None,
    interconnect: float | None,
    nvme: float,
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
    facts = context.facts
    memory = facts.gpu_memory if limit in (None, "gpu") else limit
    if not isinstance(memory, int):
        raise click.UsageError("No memory limit given: pass --gpu, --gpu-memory or --limit.")

    measured = context.calibration
    pcie = pcie or (measured and measured.pcie) or Speeds().pcie
    speeds = speeds_of(facts.gpu, pcie, nvme, interconnect)._replace(memory=(measured and measured.adam) or Speeds().memory)
    fit = Search(text_of(loaded.document), found.model, opened.planner(), facts.gpu, speeds).run(Goal(memory, facts.host_memory))
    if output_format == "json":
        click.echo(fit_page.as_json(fit, facts, speeds))
    else:
        style = Style(color=wants_color(color, sys.stdout), width=terminal_width(60))
        show_page(fit_page.page(fit, facts, speeds, path, style), color=style.color)
    sys.exit(0 if fit.fits or fit.ways else DOES_NOT_FIT)
