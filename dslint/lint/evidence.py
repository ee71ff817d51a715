"""Trainings, programs and scripts near a config that use it. What they say is known when only the config is checked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from dslint.config.context import Context
from dslint.evaluate.files import folders_above, is_setup, may_concern_deepspeed
from dslint.setups.project import leads_out
from dslint.source.read import ReadError, read_bytes

LARGEST = 256 * 1024
"""Larger files in bytes are not searched: they are data rather than scripts."""

MOST_FILES = 200
"""How many files are searched."""

_SUBFOLDERS = ("scripts", "script", "launch", "jobs", "configs", "config")
"""Folders with scripts, in the folder of a config or in one above it."""

_HIGHEST = 3
"""How many folders are searched: that of the config, and those above it in its repository."""


def contexts_of(path: str, given: Context) -> list[Context]:
    """What is known in each training that uses a config, by the files near it; empty if there are none.

    Searched are the folder of the config, the folders above it in its repository, and folders for scripts in these.

    Args:
        path: the path of the config.
        given: what is given; it counts more than what a training says.
    """
    name = os.path.basename(path).encode()
    found: list[Context] = []
    for other in _files(path):
        try:
            data = read_bytes(other, LARGEST)
        except ReadError:
            continue
        if name not in data or not may_concern_deepspeed(data) or leads_out(other):
            continue
        from dslint.lint.setups import links_of  # most configs have no such file near them

        with contextlib.suppress(Exception):  # what fails here fails in checking that file, too, and is reported there
            for config, context in links_of(other, other.replace(os.sep, "/"), given):
                if os.path.realpath(config) == os.path.realpath(path):
                    found.append(context)
    return found


def _files(path: str) -> Iterator[str]:
    """The files near a path that can lead to a config, the nearest first."""
    left = MOST_FILES
    for folder in _folders(path):
        try:
            names = sorted(name for name in os.listdir(folder or ".") if is_setup(name))
        except OSError:
            continue
        for name in names[:left]:
            yield os.path.join(folder, name)
        left -= len(names)
        if left <= 0:
            return


def _folders(path: str) -> Iterator[str]:
    own = os.path.dirname(path)
    above = folders_above(os.path.abspath(own or "."))[: _HIGHEST - 1]
    shown = [own, *(folder if os.path.isabs(path) else os.path.relpath(folder) for folder in above)]
    for folder in shown:
        yield "" if folder == "." else folder
        for name in _SUBFOLDERS:
            below = os.path.join("" if folder == "." else folder, name)
            if os.path.isdir(below) and not os.path.samefile(below, own or "."):
                yield below
