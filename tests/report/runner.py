"""How GitHub's runner reads the output of a step (actions/runner, ActionCommand.TryParseV2 and ActionCommandManager)."""

from __future__ import annotations

from typing import NamedTuple

REGISTERED = ("error", "warning", "notice", "set-env", "add-path", "set-output", "add-mask", "group", "debug")
DATA = (("%0D", "\r"), ("%0A", "\n"), ("%25", "%"))
PROPERTY = (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%"))


class Command(NamedTuple):
    """A command that the runner obeys."""

    name: str
    properties: dict[str, str]
    message: str


def read(output: str) -> tuple[list[Command], list[str]]:
    """The commands, and what is left for the log."""
    commands: list[Command] = []
    log: list[str] = []
    stop: str | None = None
    for line in output.split("\n"):
        if stop is not None:
            if line.strip() == f"::{stop}::":
                stop = None
            else:
                log.append(line)
        elif line.startswith("::stop-commands::"):
            stop = line.removeprefix("::stop-commands::")
        elif (command := _parse(line)) is not None:
            commands.append(command)
        else:
            log.append(line)
    assert stop is None
    return commands, log


def _parse(line: str) -> Command | None:
    line = line.lstrip()
    if not line.startswith("::") or (end := line.find("::", 2)) < 0:
        return None
    name, _, properties = line[2:end].partition(" ")
    if name not in REGISTERED:
        return None
    pairs = (pair.split("=", 1) for pair in properties.strip().split(",") if pair)
    return Command(name, {pair[0]: _unescape(pair[1], PROPERTY) for pair in pairs if len(pair) == 2}, _unescape(line[end + 2 :], DATA))


def _unescape(text: str, mapping: tuple[tuple[str, str], ...]) -> str:
    for escaped, token in mapping:
        text = text.replace(escaped, token)
    return text
