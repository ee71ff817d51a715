"""The functions that a program registers with Accelerate for `save_state` and `load_state`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.job.events import Event
from dslint.record import Record

REGISTERED = r"accelerate\.(\w+\.)?Accelerator\.register_(save|load)_state_pre_hook"


class Hook(Record):
    """A hook: the call that registers it, the names of its parameters without `self`, the file, and its lines by their numbers."""

    event: Event
    parameters: tuple[str, ...]
    path: str
    lines: tuple[tuple[int, str], ...]

    @property
    def saves(self) -> bool:
        """Whether `save_state` calls it, as `hook(models, weights, output_dir)`."""
        return self.event.name.endswith("save_state_pre_hook")


def hooks(config: Config) -> Iterator[Hook]:
    """The hooks of a program whose functions are found by name: a function, a method, or one inside of the function or class that makes it."""
    setup = config.setup
    program = setup.program if setup is not None else None
    if setup is None or program is None:
        return
    for event in program.events.of(REGISTERED):
        given = event.argument("hook", 0)
        name = _NAME.match(given.raw) if given is not None else None
        if name is None:
            continue
        count = 3 if event.name.endswith("save_state_pre_hook") else 2
        for path, document in setup.documents.items():
            found = _function(document.text, name[1], count) if path.endswith(".py") else None
            if found is not None:
                yield Hook(event, found[0], path, found[1])
                break


_NAME = re.compile(r"(?:\w+\.)*(\w+)\s*(?:\(|$)")


def _function(text: str, name: str, count: int) -> tuple[tuple[str, ...], tuple[tuple[int, str], ...]] | None:
    """The parameters and the lines of the function of a name, or of the one in the function or class of the name, with so many parameters."""
    if name not in text:
        return None
    lines = text.splitlines()
    outer = re.compile(rf"(\s*)(?:async\s+)?(?:def|class)\s+{re.escape(name)}\b")
    for number, line in enumerate(lines):
        head = outer.match(line)
        if head is None:
            continue
        block = _block(lines, number, len(head[1].expandtabs()))
        for inner, (_, one) in enumerate(block):
            start = _DEF.match(one)
            parameters = _parameters(start[2]) if start is not None else ()
            if start is not None and len(parameters) == count:
                depth = len(start[1].expandtabs())
                return parameters, tuple(_block([text for _, text in block], inner, depth, first=block[0][0]))
    return None


_DEF = re.compile(r"(\s*)(?:async\s+)?def\s+\w+\s*\(([^()]*(?:\[[^\]]*\][^()]*)*)\)")


def _parameters(written: str) -> tuple[str, ...]:
    names = (re.match(r"\s*(\w+)", re.sub(r"\[[^\]]*\]", "", one)) for one in re.sub(r"\[[^\]]*\]", "", written).split(","))
    return tuple(name[1] for name in names if name is not None and name[1] not in ("self", "cls"))


def _block(lines: list[str], number: int, depth: int, *, first: int = 1) -> list[tuple[int, str]]:
    """The line of a number, and those after it that are indented deeper, each with its number in the file."""
    block = [(first + number, lines[number])]
    for offset in range(number + 1, len(lines)):
        line = lines[offset]
        if line.strip() and len(line.expandtabs()) - len(line.expandtabs().lstrip()) <= depth and not line.lstrip().startswith((")", "#")):
            break
        block.append((first + offset, line))
    return block
