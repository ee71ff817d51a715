"""`dslint diagnose`: why a job failed, from its log."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import click

from dslint.cli.open_config import LeadsToNoConfig, open_training
from dslint.cli.options import (
    UNKNOWN_VALUE,
    color_option,
    layer_of,
    model_option,
    setting_option,
    show_page,
    terminal_width,
    wants_color,
    warn,
)
from dslint.config import resolve
from dslint.config.load import Loaded
from dslint.diagnose.commands_to_run import name_files
from dslint.diagnose.context import LogContext
from dslint.diagnose.contradictions import contradictions
from dslint.diagnose.diagnose import diagnose
from dslint.diagnose.diagnosis import Diagnosis, End
from dslint.diagnose.reading import LogSource, cells, sources_of
from dslint.diagnose.situation import situation_in, switched_on
from dslint.errors import UserError
from dslint.facts import Release
from dslint.frameworks.workload import told_by
from dslint.job.arguments import Arguments
from dslint.job.events import CHECKPOINTS
from dslint.memory.planning import loads_partitioned
from dslint.report import diagnosis_page
from dslint.report.diagnosis_html import as_html
from dslint.report.diagnosis_json import as_data, as_json
from dslint.report.diagnosis_markdown import as_markdown
from dslint.report.redact import redacted
from dslint.report.style import Style, visible
from dslint.report.words import listed
from dslint.settings import Finder, from_environment
from dslint.source.config_text import config_text, unread_parts
from dslint.source.tree import dotted, plain

CLEAN, FOUND, NOTHING = 0, 1, 2

INTERVAL = 1.0
"""The seconds between two looks at a log that is followed."""


@click.command(name="diagnose", short_help="Find out from its log why a job failed.")
@click.argument("paths", nargs=-1, required=True, metavar="LOG...")
@click.option("--config", metavar="FILE", help="The DeepSpeed config of the job, if its log does not print it.")
@click.option("--program", metavar="FILE", help="The program, launch script or training YAML of the job, which leads to its config.")
@model_option
@setting_option("gpu", may_be_unknown=True)
@setting_option("world-size")
@setting_option("package")
@click.option(
    "--output-format", type=click.Choice(["text", "json", "markdown", "html"]), default="text", show_default=True, help="The output format."
)
@click.option(
    "--follow", "following", is_flag=True, help="Watch the log of a running job until it ends, and print what it tells as it comes."
)
@click.option("--redact", is_flag=True, help="Replace everything that is not known to be harmless by stand-ins, to publish the report.")
@color_option
def command(
    paths: tuple[str, ...],
    config: str | None,
    program: str | None,
    model: str | None,
    dslint_gpu: Any,
    dslint_world_size: int | None,
    dslint_package: tuple[dict[str, Release], ...],
    output_format: str,
    following: bool,  # noqa: FBT001 - click passes it by name
    redact: bool,  # noqa: FBT001 - click passes it by name
    color: str,
) -> None:
    """Find out from its log why a job failed: what ran, how it ended, the cause with its evidence, and what to change.

    LOG is a file, a directory with the logs of the ranks, or "-" for standard input.

    \b
    Exit codes:
      0  the job finished, and nothing was found
      1  the job did not finish, or something was found
      2  usage error, an unreadable log, or neither a DeepSpeed job nor an error in it
    """  # noqa: D301 - click needs the character itself
    told = {"gpu": dslint_gpu, "world-size": dslint_world_size, "package": dslint_package or None}
    given = _given(config, program, model, told)
    found = _followed(paths, given, redact=redact, as_lines=output_format == "json") if following else _diagnosed(paths, given)
    for one in found if config or program else ():
        name_files(one, config or program or "", given)
    options = [name for name in ("gpu", "world-size") if told[name] not in (None, UNKNOWN_VALUE)]
    clean = _cleaned if redact else str
    for sentence in contradictions(found, given, options, config or program):
        warn(clean(sentence))
    if following and output_format == "json":
        found = redacted(found) if redact else found
        click.echo(json.dumps({"event": "diagnosis", **as_data(found)}))
        sys.exit(exit_code(found))
    style = Style(color=wants_color(color, sys.stdout), width=terminal_width(60, most=120))
    report = _report(redacted(found) if redact else found, output_format, style)
    show_page(report, color=style.color and output_format == "text")
    sys.exit(exit_code(found))


def _cleaned(sentence: str) -> str:
    from dslint.report.redact import Cleaner

    return Cleaner().clean(sentence)


def _report(found: list[Diagnosis], output_format: str, style: Style) -> str:
    match output_format:
        case "json":
            return as_json(found)
        case "markdown":
            return as_markdown(found)
        case "html":
            return as_html(found)
    return diagnosis_page.page(found, style)


def exit_code(found: list[Diagnosis]) -> int:
    """The exit code: that of the worst job."""
    known = [diagnosis for diagnosis in found if diagnosis.outcome.end is not End.UNKNOWN or diagnosis.causes]
    if not known:
        return NOTHING
    return CLEAN if all(diagnosis.is_clean for diagnosis in known) else FOUND


def _followed(paths: tuple[str, ...], given: LogContext, *, redact: bool, as_lines: bool) -> list[Diagnosis]:
    """Follow a log, and print what is new: to standard error, so that the report can be redirected, or as lines of JSON."""
    from dslint.diagnose.follow import Item, follow
    from dslint.report.redact import Cleaner

    if len(paths) != 1 or paths == ("-",) or os.path.isdir(paths[0]):
        raise click.UsageError("--follow takes one file.")

    cleaner = Cleaner() if redact else None

    def tell(item: Item) -> None:
        record = json.dumps({"event": item.kind, **item.data}) if item.data else ""
        line = record if as_lines else visible(item.sentence)
        if line:
            click.echo(cleaner.clean(line) if cleaner else line, err=not as_lines)

    def wait() -> bool:
        try:
            time.sleep(INTERVAL)
        except KeyboardInterrupt:
            return False
        return True

    try:
        with open(paths[0], "rb") as stream:
            return follow(paths[0], stream, wait, tell, given)
    except OSError as error:
        raise UserError(f"cannot read {paths[0]}: {error.strerror or error}") from None


def _given(config: str | None, program: str | None, model: str | None, facts: dict[str, Any]) -> LogContext:
    """What the options add to the log. `facts` are those of the job, None where they are not given."""
    if config is not None and program is not None:
        raise click.UsageError("--config and --program cannot be combined: the program leads to its config.")
    path = config or program
    told = {name: value for name, value in facts.items() if value is not None}
    finder = Finder([from_environment(os.environ), layer_of(told)])

    def without_config(program: str | None = None) -> LogContext:
        if not told:
            return LogContext(model=model, program=program, project=os.path.dirname(os.path.abspath(program)) if program else None)
        context = finder.for_file(os.path.abspath("ds_config.json")).context
        return LogContext(
            None,
            model,
            context.facts,
            context.oldest,
            context.outside,
            program=program,
            release_source=context.release_source,
            pins=context.pins,
            project=os.path.dirname(os.path.abspath(program)) if program is not None else None,
        )

    if path is None:
        return without_config()
    try:
        loaded, arguments = open_training(path, finder)
    except (UserError, SystemExit) as error:  # the log still tells what happened
        if program is not None and isinstance(error, SystemExit):  # it was read, and its rules need no config
            warn(f"{path} leads to no config that can be used: the diagnosis is from the log and the rules about launches and programs.")
            bare = isinstance(error, LeadsToNoConfig) and error.launched_without
            return without_config(program)._replace(without_deepspeed=bare)
        why = f": {error}" if isinstance(error, UserError) else ""
        warn(f"{path} is not used{why}. The diagnosis is from the log only.")
        return without_config()
    document = loaded.document
    assert document.root is not None
    unread = [dotted(part) or "further keys" for part in unread_parts(document.root)]
    if unread:
        warn(f"{path}: the program computes {listed(unread)}, which the diagnosis takes as unknown.")
    text = document if unread else config_text(document)
    context = loaded.context
    on, divided = _checkpoints(loaded, arguments), loads_partitioned(context)
    situation = situation_in(resolve(document, context))
    given = LogContext(text, model, context.facts, context.oldest, context.outside, on, divided, program, situation=situation)
    return given._replace(
        release_source=context.release_source,
        pins=context.pins,
        arguments=arguments,
        config_path=None if path == "-" else config,
        project=context.project,
        config_found=str(context.setup.config or "") if program is not None and context.setup is not None else "",
    )


_CHECKPOINTING = frozenset({"gradient_checkpointing", "checkpoint_activations"})
"""The keys and arguments that turn on activation checkpointing: of the Trainer and axolotl, and of GPT-NeoX."""


def _checkpoints(loaded: Loaded, arguments: Arguments | None) -> bool:
    """Whether the training file, the command, the program or the default of a framework turns on activation checkpointing."""
    whole, program = loaded.document.whole, loaded.context.setup.program if loaded.context.setup is not None else None
    on = switched_on(plain(whole.root)) if whole is not None and whole.root is not None else frozenset[str]()
    named = {name.replace("-", "_") for name in on} & _CHECKPOINTING
    told = arguments is not None and (
        any(arguments.value(name) is True for name in _CHECKPOINTING) or "checkpoint_every" in told_by(arguments).options
    )
    return bool(named) or told or (program is not None and any(one.certain for one in program.events.of(CHECKPOINTS)))


def _diagnosed(paths: tuple[str, ...], given: LogContext) -> list[Diagnosis]:
    try:
        return diagnose(cells(LogSource("<stdin>", sys.stdin.buffer)) if paths == ("-",) else sources_of(paths), given)
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror or error}") from None
