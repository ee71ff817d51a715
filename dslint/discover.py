"""Which files a command line means: files, directories and globs, in order, each once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

SUFFIXES = (".json", ".jsonc", ".json5", ".hjson")
"""Names that a DeepSpeed config has when it is found in a directory; a file that is named may have any."""

SKIPPED_DIRECTORIES = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist", "venv"})
"""Never descended into, nor is any directory whose name begins with a dot."""


class Target(NamedTuple):
    """A file to lint: its path, and whether a person named it (and did not only name a directory above it)."""

    path: str
    named: bool


class NothingFound(Exception):
    """A path or a pattern that leads to no file. The text is a sentence for people."""


def discover(arguments: Iterable[str]) -> tuple[list[Target], list[NothingFound]]:
    """The files that the arguments mean, and the arguments that mean none."""
    targets: dict[str, Target] = {}
    nothing: list[NothingFound] = []
    for argument in arguments:
        try:
            for target in _expand(argument):
                key = os.path.normpath(target.path)
                known = targets.get(key, target)
                targets[key] = Target(known.path, known.named or target.named)
        except NothingFound as error:
            nothing.append(error)
    return list(targets.values()), nothing


def _expand(argument: str) -> Iterator[Target]:
    if os.path.isdir(argument):
        yield from (Target(path, named=False) for path in _walk(argument))
    elif os.path.lexists(argument) or not any(mark in argument for mark in "*?["):
        yield Target(argument, named=True)
    else:
        import glob  # only a pattern that the shell has not expanded needs it

        found = [path for path in sorted(glob.glob(argument, recursive=True)) if not os.path.isdir(path)]
        if not found:
            raise NothingFound(f"{argument}: no file matches this pattern")
        yield from (Target(path, named=False) for path in found)


def _walk(top: str) -> Iterator[str]:
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED_DIRECTORIES)
        for name in sorted(files):
            if name.lower().endswith(SUFFIXES):
                yield os.path.join(folder, name).removeprefix("." + os.sep if top == "." else "")


def shown(path: str) -> str:
    """A path as diagnostics name it: as it was given or found, with forward slashes."""
    return path.replace(os.sep, "/")
