"""The reference of the command line: every command with its options, made from click."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import dedent

import click

from docs_pages_writing.markdown import blocks, code, escape, fence, table
from dslint.cli import COMMANDS, cli
from dslint.cli.help import GroupedCommand


def commands_page() -> str:
    """The page."""
    context = click.Context(cli, info_name="dslint")
    parts = [
        "# Commands",
        "Every command and option, as `dslint COMMAND --help` prints them. Many options can also be [settings](settings.md).",
        table(("command", "what it does"), ((f"[`dslint {name}`](#dslint-{name})", meaning) for name, meaning in COMMANDS.items())),
    ]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        parts += _command(command, click.Context(command, context, info_name=name))
    return blocks(*parts)


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## dslint {context.info_name}"
    yield fence(command.get_usage(context).removeprefix("Usage: "), "text")
    for paragraph in (command.help or "").split("\n\n"):
        kept, text = paragraph.lstrip().startswith("\b"), paragraph.strip().removeprefix("\b").strip("\n")
        yield fence(dedent(text), "text") if kept else escape(" ".join(text.split()))
    options = {
        max(param.opts, key=len): param for param in command.get_params(context) if isinstance(param, click.Option) and not param.hidden
    }
    options.pop("--help", None)
    for group in command.groups if isinstance(command, GroupedCommand) else ():
        rows = [_row(options.pop(name), context) for name in group.options if name in options]
        yield f"### {group.title}"
        yield fence(f"dslint {context.info_name} {group.example}", "bash")
        yield table(("option", "meaning"), rows)
    if options:
        yield table(("option", "meaning"), [_row(option, context) for option in options.values()])


def _row(option: click.Option, context: click.Context) -> tuple[str, str]:
    record = option.get_help_record(context)
    assert record is not None
    name, meaning = record
    return code(name), escape(meaning)
