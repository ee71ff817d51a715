"""`dslint probe`: start the real engine with a config, and say whether it starts and what it takes."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from typing import Any, Self

import click

from dslint.cli.open_config import open_config, text_of
from dslint.cli.options import SettingType, color_option, settings_options, terminal_width, wants_color, warn
from dslint.config import resolve
from dslint.errors import UserError
from dslint.lint.discovery import shown
from dslint.probe.filling import assignment
from dslint.probe.launcher import launched
from dslint.probe.result import Comparison, Result, Search
from dslint.probe.trial import PreparedProbe, ProbeOptions, compare, prepare, probe, search
from dslint.settings import Finder
from dslint.settings.table import SETTINGS

FACTS = ("world-size", "integration", "deepspeed", "nodes", "gpu", "gpu-memory", "host-memory", "model")


class Assignment(click.ParamType):  # type: ignore[type-arg] # older releases of click have no parameter here
    """A value for a key of the config: `KEY=VALUE`."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return assignment(value) if isinstance(value, str) else value
        except ValueError:
            self.fail(f"{value!r} is not of the form KEY=VALUE, with a key in dots such as zero_optimization.stage", param, ctx)


class Depths(click.ParamType):  # type: ignore[type-arg] # the same
    """One number of layers, or several to extrapolate from: `8,12,16`."""

    name = "N[,N,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        numbers = [int(word) for word in value.split(",") if word.strip().isdecimal()]
        if len(numbers) != len(value.split(",")) or 0 in numbers or len(set(numbers)) != len(numbers):
            self.fail(f"{value!r} is no number of layers, nor several different ones with commas between them", param, ctx)
        return tuple(sorted(numbers))


@dataclass(frozen=True, slots=True)
class Output:
    """How the result is wanted."""

    output_format: str
    color: str
    plot: str | None


@click.command(name="probe", short_help="Run the real engine with a config, and say what it takes.")
@click.argument("path", metavar="CONFIG")
@settings_options(*FACTS)
@click.option(
    "--device",
    type=click.Choice(["auto", "cuda", "fake", "cpu"]),
    default="auto",
    show_default=True,
    help="Where to run. fake: no GPU needed, nothing is computed, every byte is counted; auto: cuda where there is one, else fake.",
)
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="Which rank to play of --world-size.")
@click.option("--model-fn", metavar="PACKAGE.MODULE:FUNCTION", help="The function that gives your own (module, make_batch).")
@click.option("--layers", type=Depths(), help="Build --model with so many layers; with several numbers, extrapolate from them to all.")
@click.option(
    "--sequence-length", type=click.IntRange(min=1), metavar="N", help="Tokens of a sample.  [default: 128; with --model 2048 at most]"
)
@click.option("--micro-batch", type=click.IntRange(min=1), metavar="N", help="Another train_micro_batch_size_per_gpu than the config's.")
@click.option("--activation-checkpointing", is_flag=True, help="Turn activation checkpointing on in the model.")
@click.option("--no-zero-init", is_flag=True, help="At stage 3, build the model whole before it is divided.")
@click.option("--set", "assignments", type=Assignment(), multiple=True, help="Another value for a key of the config. Repeatable.")
@click.option("--steps", type=click.IntRange(min=2), default=3, show_default=True, metavar="N", help="How many optimizer steps to take.")
@click.option(
    "--limit", type=SettingType(SETTINGS["gpu-memory"]), metavar="SIZE", help="Exit with 4 where the device takes more than this."
)
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=600, show_default=True, metavar="SECONDS", help="When to give up on a run."
)
@click.option(
    "--compare",
    "comparison",
    metavar="WHAT",
    help="Run variants in turn: activation-checkpointing, offload, stage=1,2,3, micro-batch=1,2,4, KEY=A,B.",
)
@click.option(
    "--search",
    "searched",
    type=click.Choice(["micro-batch"]),
    help="Find the largest that fits --limit (or --gpu, or the GPU that is there).",
)
@click.option("--plot", metavar="FILE", help="Draw the course of memory: FILE.svg or FILE.png.")
@click.option("--snapshot", metavar="FILE.pickle", help="On a GPU: write PyTorch's memory snapshot, for pytorch.org/memory_viz.")
@click.option("--output-format", type=click.Choice(["full", "json"]), default="full", show_default=True, help="How it is printed.")
@color_option
def command(path: str, finder: Finder, output_format: str, color: str, plot: str | None, **options: Any) -> None:
    """Start the real DeepSpeed engine with a config for a few optimizer steps, and say whether it starts, and what memory it takes.

    CONFIG is a file, or "-" for standard input. It runs in a process and a folder of its own; nothing that the config names is written to,
    and nothing is sent anywhere. It needs torch and DeepSpeed: pip install "dslint[probe]".

    \b
    Exit codes:
      0  the engine ran, and fits
      1  the engine raised
      2  bad usage or settings, a config that cannot be used
      3  the probe could not run: torch or DeepSpeed are missing, there is no such device, no time left
      4  it takes more than --limit (or the GPU) has
    """  # noqa: D301 - click wants the character itself
    place = launched(os.environ)
    if place is not None:
        os.environ.update(place.variables)  # torch asks for them by torchrun's names, whoever the launcher is
    wishes = ProbeOptions(
        limit=options.pop("limit"),
        place=place,
        timeline=plot is not None,
        zero_init=not options.pop("no_zero_init"),
        **options,
    )
    _check(wishes, plot)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a launcher that ends us leaves no process behind
    setup = _prepared(path, finder, wishes)
    with Progress() as progress:
        result: Result | Comparison | Search
        if wishes.comparison is not None:
            result = compare(setup, wishes, progress)
        elif wishes.searched is not None:
            result = search(setup, wishes, progress)
        else:
            result = probe(setup, wishes, progress)
    if wishes.place is None or wishes.place.rank == 0:
        _report(result, Output(output_format, color, plot))
    sys.exit(result.exit_code)


def _check(wishes: ProbeOptions, plot: str | None) -> None:
    """Refuse what does not go together."""
    if wishes.comparison is not None and wishes.searched is not None:
        raise click.UsageError("--compare and --search exclude each other.")
    if plot is not None and not plot.lower().endswith((".svg", ".png")):
        raise click.UsageError(f'--plot writes .svg and .png, and not "{plot}".')
    if plot is not None and (wishes.comparison is not None or wishes.searched is not None or len(wishes.layers or ()) > 1):
        raise click.UsageError("--plot draws one run: leave out --compare, --search and several --layers.")
    if wishes.place is not None and (wishes.comparison is not None or wishes.searched is not None or len(wishes.layers or ()) > 1):
        raise click.UsageError(
            "--compare, --search and several --layers make one run after another, which real ranks cannot: leave the launcher out."
        )
    if wishes.model_fn is not None and (not all(wishes.model_fn.partition(":")) or wishes.layers is not None):
        raise click.UsageError("--model-fn wants package.module:function, and no --layers.")


def _prepared(path: str, finder: Finder, wishes: ProbeOptions) -> PreparedProbe:
    """The config and what is known beside it, made ready to run."""
    document, _, context, *_ = open_config(path, finder)
    try:
        return prepare(shown(path), text_of(document), resolve(document, context), wishes)
    except ValueError as error:
        raise UserError(str(error)) from None


def _report(result: Result | Comparison | Search, output: Output) -> None:
    from dslint.report import probe_json, probe_page

    if output.output_format == "json":
        click.echo(probe_json.as_json(result))
    else:
        colored = wants_color(output.color, sys.stdout)
        click.echo(probe_page.page(result, color=colored, width=terminal_width(60)), color=colored)
    if output.plot is not None and isinstance(result, Result):
        _draw(result, output.plot)


def _draw(result: Result, path: str) -> None:
    from dslint.fix.atomic_write import write_whole
    from dslint.report import timeline
    from dslint.report.png import NoRenderer, png

    if not result.answer.timeline:
        warn(
            f"{path} is not drawn: "
            + ("--snapshot has the course of memory of a GPU." if result.answer.device == "cuda" else "nothing was run.")
        )
        return
    drawn = timeline.svg(result)
    try:
        write_whole(path, png(drawn) if path.lower().endswith(".png") else drawn)
    except NoRenderer as error:
        raise UserError(f"{path} is not drawn: {error}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None


class Progress:
    """A line on standard error that says what is being done, where a person is watching."""

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
