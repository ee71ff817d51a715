"""`dslint tune`: the fastest configs that fit by estimate."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dslint.cli.estimate import DOES_NOT_FIT, LimitType
from dslint.cli.number import Number
from dslint.cli.options import color_option, show_page, terminal_width, wants_color, warn
from dslint.cli.rates import rate_options
from dslint.cli.workload import CountType, OpenedConfig, open_workload, workload_options
from dslint.config import resolve
from dslint.errors import UserError
from dslint.lint.error_codes import errors_of
from dslint.memory.plan import PlanError
from dslint.memory.ways import Goal
from dslint.report import tune_page
from dslint.report.style import Style
from dslint.settings import Finder
from dslint.source.config_text import config_text
from dslint.source.edit import CannotChange
from dslint.source.store import a_run, store
from dslint.speed.planned import Rates
from dslint.tune.calibrate import factor_of
from dslint.tune.checked import no_new_errors
from dslint.tune.search import Tuned, TuneResult, TuneSearch

SLOW_SEARCH = 1.0
"""Seconds after which a progress bar is shown."""


@click.command(
    name="tune",
    short_help="Name the fastest configs that fit in memory by estimate.",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": True},
)
@click.argument("path", metavar="FILE")
@click.argument("launch", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
@workload_options
@click.option("--limit", type=LimitType(), metavar="SIZE", help="The memory limit of a GPU.  [default: the memory of the GPU]")
@rate_options
@click.option("--free-batch", is_flag=True, help="The number of samples per optimizer step may change.")
@click.option("--tokens", type=Number(), metavar="N", help="Also print hours and GPU-hours of a training with N tokens, such as 15e12.")
@click.option("--apply", "number", type=click.IntRange(1), metavar="N", help="Write config N of the list to FILE; comments are kept.")
@click.option("--plot", metavar="FILE", help="Also draw speed against memory, as FILE.svg.")
@click.option("--measure", "measured_to", metavar="OUT", help="Run COMMAND with each config of the list for a few steps; OUT is a .jsonl.")
@click.option(
    "--time-limit", type=CountType(10**6), default=900, show_default=True, metavar="SECONDS", help="With --measure: for each config."
)
@click.option("--measured", metavar="FILE", help="Correct the predicted times by what --measure wrote to FILE.")
@click.option("--output-format", type=click.Choice(["full", "json"]), default="full", show_default=True, help="The output format.")
@color_option
def command(
    path: str,
    launch: tuple[str, ...],
    finder: Finder,
    said: dict[str, Any],
    limit: int | str | None,
    rates: Rates,
    free_batch: bool,  # noqa: FBT001 - click passes it by name
    tokens: float | None,
    number: int | None,
    plot: str | None,
    measured_to: str | None,
    time_limit: int,
    measured: str | None,
    output_format: str,
    color: str,
) -> None:
    """Name the fastest configs for the setup of FILE that fit in memory by estimate and pass `dslint check`: ZeRO stage, micro batch size,
    activation checkpointing, offload, bucket sizes, overlap, secondary partitions and quantised weights. Nothing runs: times are predicted.

    FILE is a config, a training file, a launch script or a program, or "-" for standard input.

    With --measure, COMMAND is started with each config of the list, one after the other, until a few steps were seen: deepspeed, torchrun,
    accelerate launch, srun or sbatch with your program. It must name FILE, which is replaced by the config to measure. A run that was
    interrupted goes on where it was.

    \b
    Examples:
      dslint tune ds_config.json --model llama-3-8b --gpu h100 --world-size 8
      dslint tune ds_config.json --model llama-3-8b --gpu h100 --world-size 8 --apply 1
      dslint tune ds_config.json --model llama-3-8b --gpu h100 --world-size 8 \\
          --measure tuned.jsonl -- deepspeed train.py --deepspeed ds_config.json

    \b
    Exit codes:
      0  configs were named
      2  usage error, or an unreadable config or model
      4  no config that was tried fits by estimate
    """  # noqa: D301 - click needs the character itself
    if bool(launch) != bool(measured_to):
        raise click.UsageError("--measure OUT requires a command after --, and a command requires --measure OUT.")
    if plot and not plot.lower().endswith(".svg"):
        raise click.UsageError(f'--plot writes .svg, and not "{plot}".')
    opened = open_workload(path, finder, said)
    facts = opened.context.facts
    memory = facts.gpu_memory if limit in (None, "gpu") else limit
    if not isinstance(memory, int):
        raise click.UsageError("No memory limit given: pass --gpu, --gpu-memory or --limit.")
    text = config_text(opened.loaded.document)
    if measured_to and _is_part(opened):
        raise UserError("--measure requires a config in a file of its own: this one is part of another file.")
    planner = opened.planner()
    factor = factor_of(measured) if measured else None
    search = TuneSearch(
        text, opened.found.model, planner, no_new_errors(planner(text, {})[0]), Goal(memory, facts.host_memory), rates, factor
    )
    result = _run(search, free_batch=free_batch)
    if output_format == "json":
        click.echo(tune_page.as_json(result, facts, opened.loaded.document, path, tokens))
    else:
        style = Style(color=wants_color(color, sys.stdout), width=terminal_width(60))
        source = _config_path(opened, path) if _is_part(opened) else None
        show_page(tune_page.page(result, facts, opened.loaded.document, path, style, tokens, source), color=style.color)
    if plot:
        _plot(result, plot)
    if measured_to:
        _measure(result, launch, text, _config_path(opened, path), measured_to, time_limit)
    if number is not None:
        _apply(search, result.best, number, opened, path, finder, said)
    sys.exit(0 if result.best else DOES_NOT_FIT)


def _run(search: TuneSearch, *, free_batch: bool) -> TuneResult:
    """Search, with a progress bar on a terminal if it takes longer than a second."""
    start, drawn = time.monotonic(), False

    def progress(done: int, most: int) -> None:
        nonlocal drawn
        if sys.stderr.isatty() and time.monotonic() - start > SLOW_SEARCH:
            drawn = True
            full = round(30 * done / most)
            click.echo(f"\restimating [{'#' * full}{'.' * (30 - full)}] {done}", nl=False, err=True)

    result = search.run(free_batch=free_batch, progress=progress)
    if drawn:
        click.echo("\r" + " " * 50 + "\r", nl=False, err=True)
    return result


def _plot(result: TuneResult, path: str) -> None:
    """Write the chart."""
    from dslint.fixes.atomic_write import write_whole
    from dslint.report.tune_plot import picture

    try:
        write_whole(path, picture(result))
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None


def _config_path(opened: OpenedConfig, path: str) -> str:
    """The path of the config itself."""
    setup = opened.context.setup
    return setup.config if setup is not None and setup.config else path


def _measure(result: TuneResult, launch: tuple[str, ...], text: str, config: str, out: str, limit: int) -> None:
    """Measure the list with a launch command, and say which config is best."""
    from dslint.tune.measure import ResultsFile, entries_of, measure, remove_configs, summary

    results = ResultsFile(out)
    entries = entries_of([(one.candidate, one.written) for one in result.best], result.now, text)
    try:
        found = measure(entries, launch, config, results, float(limit), warn)
        warn(summary(found, results))
    finally:
        remove_configs(results)  # also after Ctrl-C; the results stay
    if any(one.outcome.seconds is not None for one in found):
        warn(f"Predictions are corrected by these measurements with --measured {out}.")


def _is_part(opened: OpenedConfig) -> bool:
    """Whether a config has no file of its own: Accelerate makes it, or it is part of a YAML file, of a program or of an encoded value."""
    document = opened.loaded.document
    return document.places is not None or document.language not in ("json", "hjson", "yaml") or bool(opened.loaded.encoded)


def _outside(target: str, named: str) -> str | None:
    """Where a config is that a link, or the file that was named, leads out of the project; None if it is in it, or was named itself."""
    from dslint.setups.project import leads_out, top_of

    if target == named:
        return leads_out(target)
    real = Path(target).resolve()
    return None if real.is_relative_to(Path(top_of(named)).resolve()) else str(real)


def _apply(
    search: TuneSearch, best: Sequence[Tuned], number: int, opened: OpenedConfig, path: str, finder: Finder, said: dict[str, Any]
) -> None:
    """Write a config of the list in place of the file that it was read from, if that then means this config."""
    from dslint.fixes.atomic_write import write_whole

    if number > len(best):
        raise UserError(f"--apply {number}: the list has {len(best)} configs")
    target, chosen = _config_path(opened, path), best[number - 1]
    if target == "-" or opened.loaded.encoded:
        raise UserError("--apply requires a config in a file. Write the diff by hand.")
    if outside := _outside(target, path):
        raise UserError(f"{target} is not written: it leads out of this project. To write {outside}, name it.")
    document = opened.loaded.document
    try:
        after = chosen.written.into(document)
        with a_run(store().with_text(target, after)):
            edited = open_workload(path, finder, said)
        _, again = edited.planned(edited.loaded.document, chosen.written.said)
    except (CannotChange, PlanError) as error:
        raise UserError(f"{target} cannot be edited in this way: {error}. Write the diff by hand.") from None
    if not search.makes(chosen.candidate.choice, again):
        raise UserError(f"{target} would not mean config {number} after the edit. Write the diff by hand.")
    if errors := errors_of(resolve(edited.loaded.document, edited.loaded.context)):
        names = ", ".join(errors)
        raise UserError(f"{target} is not written: it has errors that the edit keeps ({names}). Fix them first: dslint check.")
    try:
        write_whole(target, after, before=document.text)
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror or error}") from None
    warn(f"Config {number} is written to {target}." + "".join(f" Also {sentence}." for sentence in chosen.written.program))
