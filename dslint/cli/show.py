"""`dslint show`: the effective config."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from dslint.cli.open_config import open_training
from dslint.cli.options import color_option, settings_options, show_page, terminal_width, wants_color, warn
from dslint.config import Config, resolve
from dslint.config.effective import as_deepspeed_sees_it, effective
from dslint.errors import UserError
from dslint.job.arguments import Arguments
from dslint.report import show_page as page
from dslint.report.words import inferred_fact
from dslint.settings import Finder
from dslint.settings.table import FACTS

if TYPE_CHECKING:
    from dslint.speed.step import StepTime


@click.command(name="show", short_help="Print the effective config with the origin of every value.")
@click.argument("path", metavar="CONFIG")
@settings_options(*FACTS)
@click.option("--all", "everything", is_flag=True, help="Print every key, including unused defaults.")
@click.option("--time", "timed", is_flag=True, help="Also print the predicted time of a step; it needs --model, --gpu and --world-size.")
@click.option(
    "--output-format", type=click.Choice(["text", "json", "config"]), default="text", show_default=True, help="The output format."
)
@color_option
def command(
    path: str,
    finder: Finder,
    everything: bool,  # noqa: FBT001 - click passes it by name
    timed: bool,  # noqa: FBT001 - the same
    output_format: str,
    color: str,
) -> None:
    """Print the config that DeepSpeed will use: every value with its origin (written, default, derived from other keys, filled by an
    integration, mapped from a deprecated key), and the written keys that have no effect.

    CONFIG is a file, or "-" for standard input. It may also be a training setup that uses a config (YAML, a script, a program); values that
    replace "auto" are then shown with their source. The format `config` is the config as DeepSpeed sees it, as JSON. A table that is longer
    than the terminal opens in the pager ($PAGER).
    """
    loaded, arguments = open_training(path, finder)
    config = resolve(loaded.document, loaded.context)
    time = _step(config, arguments) if timed else None
    if output_format == "config":
        import json

        seen, unknown = as_deepspeed_sees_it(config)
        click.echo(json.dumps(seen, indent=2, default=str))
        if unknown:
            warn(f"omitted because the value is unknown: {', '.join(unknown)}")
        return
    entries = effective(config, everything=everything)
    if output_format == "json":
        click.echo(page.as_json(entries, time))
        return
    width = terminal_width(60)
    colored = wants_color(color, sys.stdout)
    for name, evidence in config.context.evidence:
        sentence = inferred_fact(config.context, name, evidence)
        warn(sentence[:1].lower() + sentence[1:])
    text = page.table(entries, color=colored, width=width)
    if time is not None:
        text += "\n\n" + "\n".join(page.time_of_step(time, color=colored, width=width))
    show_page(text, color=colored, paged=True)


def _step(config: Config, arguments: Arguments | None) -> StepTime:
    """The predicted step of a config.

    Raises:
        UserError: the model, the GPU or the number of ranks is not known.
    """
    from dslint.memory.completed import completed
    from dslint.memory.estimate import estimate
    from dslint.memory.requests import DEFAULTS, described_model, planned
    from dslint.speed.planned import step_of

    if config.facts.gpu is None:
        raise UserError("--time needs the GPU: pass --gpu.")
    whole = completed({**DEFAULTS}, arguments, config.context)
    found = described_model(whole.said, whole.context.facts)
    config = resolve(config.document, whole.context.but(model=found.config or whole.context.facts.model))
    time = step_of(config, estimate(found.model, planned(config, found.model, whole.said, found.assumed, whole.unmodelled)))
    if time is None:
        raise UserError("--time needs the layers of the model: pass --model with a name or a config.json.")
    return time
