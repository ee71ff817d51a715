"""`dslint estimate`: the memory that a config needs."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import click

from dslint.cli.open_config import LeadsToNoConfig
from dslint.cli.options import color_option, show_page, terminal_width, wants_color, warn
from dslint.cli.rates import rate_options
from dslint.cli.undivided import UndividedAnswer, undivided_answer
from dslint.cli.workload import question, workload_options
from dslint.facts.gpus import size
from dslint.memory.estimate import Estimate, estimate
from dslint.memory.sweep import Sweep, read_sweep, sweep
from dslint.report import estimate_page
from dslint.report.style import Style
from dslint.settings import Finder
from dslint.speed.planned import Rates, step_of

NOT_DRAWN = 3
DOES_NOT_FIT = 4


class LimitType(click.ParamType):  # type: ignore[type-arg] # older releases of click have no parameter here
    """A size, or "gpu" for the memory of the GPU."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if not isinstance(value, str) or value == "gpu":
            return value  # type: ignore[no-any-return]
        try:
            return size(value)
        except ValueError:
            self.fail(f'"{value}" is not a size such as 80GiB', param, ctx)


@click.command(name="estimate", short_help="Estimate the memory that a config needs on GPU and host.")
@click.argument("path", metavar="CONFIG")
@workload_options
@rate_options
@click.option(
    "--limit",
    is_flag=False,
    flag_value="gpu",
    type=LimitType(),
    metavar="[SIZE]",
    help="Exit with 4 unless the config fits in SIZE (default: the memory of the GPU), even at the high end of its range.",
)
@click.option("--sweep", "swept", metavar="NAME=VALUES", help="Compare several values: world-size=1..512, stage=0..3, micro-batch=1,2,4.")
@click.option("--plot", metavar="FILE", help="Also write a chart to FILE.svg, FILE.png or FILE.html.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="The output format.")
@color_option
def command(
    path: str,
    finder: Finder,
    said: dict[str, Any],
    rates: Rates,
    limit: int | str | None,
    swept: str | None,
    plot: str | None,
    output_format: str,
    color: str,
) -> None:
    """Estimate how much memory a rank and a machine need to train with CONFIG: between steps and at the peak, by phase and by part. Nothing
    runs: dslint replays a training step with the sizes of the model's weights. With --gpu it also says how long a step takes.

    CONFIG is a file, or "-" for standard input.

    \b
    Exit codes:
      0  the estimate was printed
      2  usage error, or an unreadable config or model
      3  PNG output was requested, but its renderer is not installed
      4  with --limit: the high end of the range does not fit in the GPU, or in --host-memory
    """  # noqa: D301 - click needs the character itself
    try:
        config, model, plan = question(path, finder, said)
    except LeadsToNoConfig:
        undivided = undivided_answer(path, finder, said) if output_format == "text" and not swept and not plot else None
        if undivided is None:
            raise
        _say_undivided(undivided, limit, color)
    memory = config.facts.gpu_memory
    allowed = _allowed(limit, memory)
    found = estimate(model, plan)
    results: Estimate | Sweep = sweep(found, *read_sweep(swept)) if swept else found
    time = step_of(config, found, rates)
    if plot:
        _plot(results, plot, allowed or memory)
    if output_format == "json":
        click.echo(estimate_page.as_json(results, config.facts, allowed or memory, time))
    else:
        style = Style(color=wants_color(color, sys.stdout), width=terminal_width(60))
        show_page(estimate_page.page(results, config.facts, allowed or memory, style, time), color=style.color)
    points = results.points if isinstance(results, Sweep) else (found,)
    fits = all(point.fits(allowed, config.facts.host_memory) for point in points)
    sys.exit(0 if allowed is None or fits else DOES_NOT_FIT)


def _say_undivided(found: UndividedAnswer, limit: int | str | None, color: str) -> NoReturn:
    """Print what a training without DeepSpeed needs at least, and end."""
    from dslint.report.undivided_page import undivided_page

    memory = found.facts.gpu_memory
    allowed = _allowed(limit, memory)
    style = Style(color=wants_color(color, sys.stdout), width=terminal_width(60))
    show_page(undivided_page(found.model, found.least, found.facts, found.launch, allowed or memory, style), color=style.color)
    sys.exit(DOES_NOT_FIT if allowed is not None else 0)


def _allowed(limit: int | str | None, memory: int | None) -> int | None:
    """The limit in bytes, None without --limit."""
    if limit == "gpu" and memory is None:
        raise click.UsageError("--limit without a size requires --gpu or --gpu-memory.")
    return memory if limit == "gpu" else limit  # type: ignore[return-value]


def _plot(results: Estimate | Sweep, path: str, limit: int | None) -> None:
    """Write the picture, in the format that the file's name asks for."""
    from dslint.fixes.atomic_write import write_whole
    from dslint.report.estimate_plot import picture
    from dslint.report.png import NoRenderer, png

    suffix = path.rpartition(".")[2].lower()
    if suffix not in ("svg", "png", "html"):
        raise click.UsageError(f'--plot writes .svg, .png and .html, and not "{path}".')
    drawn = picture(results, limit, html=suffix == "html")
    try:
        write_whole(path, png(drawn) if suffix == "png" else drawn)
    except NoRenderer as error:
        warn(f"{path} is not drawn: {error}.")
        sys.exit(NOT_DRAWN)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror or error}") from None
