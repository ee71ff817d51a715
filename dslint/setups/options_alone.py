"""Options that people post without their command: whose they are follows from their names."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

from dslint.evaluate.shell.pieces import known
from dslint.evaluate.shell.script import Script
from dslint.evaluate.shell.state import Launched
from dslint.frameworks.base import Framework
from dslint.frameworks.registry import built_from, frameworks
from dslint.job.arguments import SourcedValue
from dslint.setups.command import Command, read_options
from dslint.source.unknown import UNKNOWN


def command_of_options(script: Script) -> Command | None:
    """The command that takes the options of a text which has nothing else; None if no framework has options of these names.

    Without backslashes each line is a command of its own for the shell, and all of them are read as one.
    """
    lines = script.launched
    if not lines or not all((known(one.words[0]) or "").startswith("--") for one in lines if one.words):
        return None
    command = read_options(_joined(lines), script)
    framework = _owner(command.flags)
    if framework is None or command.place is None:
        return None
    if framework.commands and not framework.rank:
        return replace(command, launcher=framework.commands[0], framework=framework)
    program = SourcedValue(UNKNOWN, "", f"a program{_of(framework)}", script.source.shown, command.place)
    return replace(command, launcher="python", program=program)


def _joined(lines: Sequence[Launched]) -> Launched:
    """The first of some commands, with the words of all."""
    first = copy(lines[0])
    first.words = [word for one in lines for word in one.words]
    return first


def _owner(flags: dict[str, SourcedValue]) -> Framework | None:
    """The framework that these options are for, by those that no other one has."""
    built = built_from(flags)
    if built is not None and not built[1].own.isdisjoint(flags):
        return built[0]
    names = frozenset(flags)
    return next((one for one in frameworks() if one.recognises is not None and one.recognises(names, lambda _: False)), None)


def _of(framework: Framework) -> str:
    return f" of {framework.name}" if framework.flags is not None else " with the Trainer"
