"""`dslint probe`: run the real engine with a config, and report whether it starts and how much memory it uses."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, Self

import click
from click.core import ParameterSource

from dslint.cli.open_config import open_config
from dslint.cli.options import SettingType, color_option, settings_options, show_page, terminal_width, wants_color, warn
from dslint.config import resolve
from dslint.errors import UserError
from dslint.lint.discovery import shown
from dslint.probe.filling import assignment
from dslint.probe.launcher import LaunchedRank, launched
from dslint.probe.result import COULD_NOT_RUN, ComparedVariants, ProbeResult, SearchResult
from dslint.probe.trial import PreparedProbe, ProbeOptions, compare, prepare, probe, search
from dslint.record import Record
from dslint.settings import Finder
from dslint.settings.table import SETTINGS
from dslint.source.config_text import config_text

FACTS = ("world-size", "integration", "deepspeed", "nodes", "gpu", "gpu-memory", "host-memory", "model")


class Assignment(click.ParamType):  # type: ignore[type-arg] # older releases of click have no parameter here
    """A value for a key of the config: `KEY=VALUE`."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return assignment(value) if isinstance(value, str) else value
        except ValueError:
            self.fail(f"{value!r} is not of the form KEY=VALUE, with a dotted key such as zero_optimization.stage", param, ctx)


class Depths(click.ParamType):  # type: ignore[type-arg] # the same
    """One number of layers, or several to extrapolate from: `8,12,16`."""

    name = "N[,N,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        numbers = [int(word) for word in value.split(",") if word.strip().isdecimal()]
        if len(numbers) != len(value.split(",")) or 0 in numbers or len(set(numbers)) != len(numbers):
            self.fail(f"{value!r} is not a number of layers, or several different ones separated by commas", param, ctx)
        return tuple(sorted(numbers))


class ProbeOutput(Record):
    """How to print the result."""

    output_format: str
    color: str
    plot: str | None


@click.command(name="probe", short_help="Run the real engine with a config and measure its memory.")
@click.argument("path", metavar="[CONFIG]", required=False)
@settings_options(*FACTS)
@click.option(
    "--device",
    type=click.Choice(["auto", "cuda", "fake", "cpu"]),
    default="auto",
    show_default=True,
    help="Where to run. fake needs no GPU: nothing is computed, every byte is counted. auto: cuda if available, else fake.",
)
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="Rank to simulate.")
@click.option("--model-fn", metavar="PACKAGE.MODULE:FUNCTION", help="A function that returns your own (module, make_batch).")
@click.option("--layers", type=Depths(), help="Build --model with N layers; with several numbers, extrapolate to all layers.")
@click.option(
    "--sequence-length", type=click.IntRange(min=1), metavar="N", help="Tokens per sample.  [default: 128; with --model up to 2048]"
)
@click.option("--micro-batch", type=click.IntRange(min=1), metavar="N", help="Override train_micro_batch_size_per_gpu.")
@click.option("--activation-checkpointing", is_flag=True, help="Enable activation checkpointing in the model.")
@click.option("--lora-rank", type=click.IntRange(min=1), metavar="N", help="Train only LoRA adapters, of this rank.")
@click.option("--lora-targets", metavar="NAMES", help="The layers with adapters: q_proj,v_proj.  [default: all linear layers]")
@click.option("--no-zero-init", is_flag=True, help="At stage 3, build the whole model before partitioning it.")
@click.option("--set", "assignments", type=Assignment(), multiple=True, help="Override a key of the config. Repeatable.")
@click.option("--steps", type=click.IntRange(min=2), default=3, show_default=True, metavar="N", help="The number of optimizer steps.")
@click.option("--limit", type=SettingType(SETTINGS["gpu-memory"]), metavar="SIZE", help="Exit with 4 if the device uses more than this.")
@click.option("--timeout", type=click.FloatRange(min=1), default=600, show_default=True, metavar="SECONDS", help="The time limit of a run.")
@click.option(
    "--compare",
    "comparison",
    metavar="WHAT",
    help="Compare variants: activation-checkpointing, offload, stage=1,2,3, micro-batch=1,2,4, KEY=A,B.",
)
@click.option(
    "--search",
    "searched",
    type=click.Choice(["micro-batch"]),
    help="Find the largest value that fits --limit (default: --gpu, or the GPU of this machine).",
)
@click.option(
    "--calibrate",
    "calibration",
    metavar="OUT.json",
    help="Instead of a config, run small models of our own, measure what this GPU needs besides tensors, and write it to OUT.json.",
)
@click.option("--plot", metavar="FILE", help="Write a chart of memory over time to FILE.svg or FILE.png.")
@click.option("--snapshot", metavar="FILE.pickle", help="On a GPU: write PyTorch's memory snapshot for pytorch.org/memory_viz.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="The output format.")
@color_option
def command(
    path: str | None, finder: Finder, output_format: str, color: str, plot: str | None, calibration: str | None, **given: Any
) -> None:
    """Run the real DeepSpeed engine with a config for a few optimizer steps, and report whether it starts and how much memory it uses.

    CONFIG is a file, or "-" for standard input. With --calibrate there is none.

    The engine runs in its own process and a temporary folder: it writes to no path of the
    config and sends nothing. Requires torch and DeepSpeed: pip install "deepspeed-lint[probe]".

    \b
    Exit codes:
      0  the engine ran, and fits
      1  the engine raised
      2  usage or settings error, or an unusable config
      3  the probe could not run: torch or DeepSpeed missing, no such device, or timeout
      4  the engine needs more than --limit (default: the memory of the GPU)
    """  # noqa: D301 - click needs the character itself
    place = launched(os.environ)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no child process is left when a launcher ends this one
    if calibration is not None:
        _check_calibration(calibration, place)
        _calibrate(calibration, given["device"], given["timeout"], ProbeOutput(output_format, color, None))
        return
    if path is None:
        raise click.UsageError("Missing argument 'CONFIG'.")
    if place is not None:
        os.environ.update(place.variables)  # torch reads torchrun's names, whatever the launcher
    options = ProbeOptions(
        limit=given.pop("limit"),
        place=place,
        timeline=plot is not None,
        zero_init=not given.pop("no_zero_init"),
        **given,
    )
    _check(options, plot)
    setup = _prepared(path, finder, options)
    with Progress() as progress:
        result: ProbeResult | ComparedVariants | SearchResult
        if options.comparison is not None:
            result = compare(setup, options, progress)
        elif options.searched is not None:
            result = search(setup, options, progress)
        else:
            result = probe(setup, options, progress)
    if options.place is None or options.place.rank == 0:
        _report(result, ProbeOutput(output_format, color, plot))
    sys.exit(result.exit_code)


OF_CALIBRATION = ("calibration", "device", "timeout", "output_format", "color")
"""The parameters that --calibrate reads."""


def _check_calibration(path: str, place: LaunchedRank | None) -> None:
    """Refuse what --calibrate would ignore, and a file that cannot be written at the end."""
    from dslint.fixes.atomic_write import check_writable

    context = click.get_current_context()
    ignored = [
        "CONFIG" if isinstance(parameter, click.Argument) else parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in OF_CALIBRATION and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    ]
    if ignored:
        raise click.UsageError(f"--calibrate runs configs of its own: leave out {', '.join(ignored)}.")
    if place is not None:
        raise click.UsageError("--calibrate measures one GPU, which no other program uses: do not start it with a launcher.")
    try:
        check_writable(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None


def _calibrate(path: str, device: Any, timeout: float, output: ProbeOutput) -> None:
    """Calibrate, and write the file after each experiment."""
    from dslint.fixes.atomic_write import write_whole
    from dslint.probe.calibrating import EXPERIMENTS, calibrate
    from dslint.probe.session import ask
    from dslint.report.calibration_page import page
    from dslint.report.style import Style

    kept = 0

    def keep(data: dict[str, Any]) -> None:
        nonlocal kept
        try:
            write_whole(path, json.dumps(data, indent=2) + "\n")
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror or error}") from None
        kept = len(data["runs"])

    try:
        with Progress() as progress:
            data = calibrate(EXPERIMENTS, device, lambda question, say: ask(question, timeout=timeout, progress=say), progress, keep)
    except (KeyboardInterrupt, SystemExit):
        if kept:
            warn(f"stopped: {path} has {kept} of {len(EXPERIMENTS)} experiments.")
        raise
    if output.output_format == "json":
        click.echo(json.dumps(data, indent=2))
    else:
        style = Style(color=wants_color(output.color, sys.stdout), width=terminal_width(60))
        show_page(page(data, path, style), color=style.color)
    sys.exit(COULD_NOT_RUN if "unable" in data else 0)


def _check(options: ProbeOptions, plot: str | None) -> None:
    """Refuse options that cannot be combined."""
    if options.comparison is not None and options.searched is not None:
        raise click.UsageError("--compare and --search cannot be combined.")
    if plot is not None and not plot.lower().endswith((".svg", ".png")):
        raise click.UsageError(f'--plot writes .svg or .png, not "{plot}".')
    if plot is not None and (options.comparison is not None or options.searched is not None or len(options.layers or ()) > 1):
        raise click.UsageError("--plot cannot be combined with --compare, --search or several --layers.")
    if options.place is not None and (options.comparison is not None or options.searched is not None or len(options.layers or ()) > 1):
        raise click.UsageError("--compare, --search and several --layers need several runs: do not start them with a launcher.")
    if options.model_fn is not None and (not all(options.model_fn.partition(":")) or options.layers is not None):
        raise click.UsageError("--model-fn requires package.module:function, and cannot be combined with --layers.")
    if options.lora_targets is not None and options.lora_rank is None:
        raise click.UsageError("--lora-targets requires --lora-rank.")
    if options.model_fn is not None and options.lora_rank is not None:
        raise click.UsageError("--lora-rank cannot be combined with --model-fn, whose function decides what is trained.")


def _prepared(path: str, finder: Finder, options: ProbeOptions) -> PreparedProbe:
    """The config with its facts, ready to run."""
    loaded = open_config(path, finder)
    try:
        return prepare(shown(path), config_text(loaded.document), resolve(loaded.document, loaded.context), options)
    except ValueError as error:
        raise UserError(str(error)) from None


def _report(result: ProbeResult | ComparedVariants | SearchResult, output: ProbeOutput) -> None:
    from dslint.report import probe_json, probe_page

    if output.output_format == "json":
        click.echo(probe_json.as_json(result))
    else:
        colored = wants_color(output.color, sys.stdout)
        show_page(probe_page.page(result, color=colored, width=terminal_width(60)), color=colored)
    if output.plot is not None and isinstance(result, ProbeResult):
        _draw(result, output.plot)


def _draw(result: ProbeResult, path: str) -> None:
    from dslint.fixes.atomic_write import write_whole
    from dslint.report import timeline
    from dslint.report.png import NoRenderer, png

    if not result.answer.timeline:
        warn(
            f"{path} was not written: "
            + ("on a GPU, use --snapshot for memory over time." if result.answer.device == "cuda" else "the engine did not run.")
        )
        return
    drawn = timeline.svg(result)
    try:
        write_whole(path, png(drawn) if path.lower().endswith(".png") else drawn)
    except NoRenderer as error:
        raise UserError(f"{path} was not written: {error}") from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None


class Progress:
    """A progress line on standard error, if that is a terminal."""

    def __init__(self) -> None:
        self._watched = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._watched:
            click.echo("\r\x1b[K", nl=False, err=True)

    def __call__(self, doing: str, part: float | None) -> None:
        if self._watched:
            click.echo(f"\r\x1b[K{doing}" + (f" ({part:.0%})" if part is not None else "") + " ...", nl=False, err=True)
