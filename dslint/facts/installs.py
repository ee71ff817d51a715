"""What scripts, notebooks, job files and instructions install with pip."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence

from dslint.source.read import SCRIPTS, ReadError, read_bytes
from dslint.source.store import store

_NAMES = (*SCRIPTS, ".ipynb", ".yaml", ".yml")
_MOST_FILES = 100
"""How many files of a folder are read: that takes 5 ms, once a run for each folder above a config."""
_LARGEST = 1024 * 1024
"""Scripts and job files are smaller; notebooks with pictures in their outputs are not read."""

_INSTRUCTIONS = re.compile(r"(?:README|INSTALL)[\w.-]*\.(?:md|rst)", re.IGNORECASE).fullmatch
_BLOCK = re.compile(r"(?ms)^[ \t]*(?:```|~~~)[^\n]*\n(.*?)^[ \t]*(?:```|~~~)")
"""A fenced block of code in Markdown: sentences outside of one also name releases that do not work."""

_INSTALL = re.compile(r"""^(?!\s*(?:echo|printf)\b)[^#\n]*?\b(?:pip3?|uv)\s+(?:pip\s+)?install\b((?:\\\n|[^\n;&|])*)""", re.MULTILINE)
"""A command in a script, a cell of a notebook or a job file: `pip install "deepspeed==0.16.9"`. One that is only printed is none."""


def installs_of(folder: str) -> Sequence[tuple[str, str]]:
    """The commands that install packages in the files of a folder: the name of the file, and the arguments. None in a folder around the
    working directory, unless it belongs to a repository: a script there may install for anything.
    """
    return store().found(("installs", folder), lambda: [] if _is_outside(folder) else list(_read(folder)))


def instructed_installs(folder: str) -> Sequence[tuple[str, str]]:
    """The same for the blocks of code in the instructions of a folder, such as README.md. They may be older than the project."""
    return store().found(("instructed", folder), lambda: [] if _is_outside(folder) else list(_read(folder, _INSTRUCTIONS, _in_blocks)))


def _in_blocks(text: str) -> str:
    return "\n".join(_BLOCK.findall(text))


def _is_outside(folder: str) -> bool:
    """Whether a folder is around the working directory, and in no repository."""
    if not os.getcwd().startswith(os.path.join(folder, "")):
        return False
    while not os.path.lexists(os.path.join(folder, ".git")):
        folder, before = os.path.dirname(folder), folder
        if folder == before:
            return True
    return False


def _whole(text: str) -> str:
    return text


def _read(
    folder: str, are_read: Callable[[str], object] = lambda name: name.endswith(_NAMES), part: Callable[[str], str] = _whole
) -> Iterator[tuple[str, str]]:
    try:
        names = sorted(name for name in os.listdir(folder) if are_read(name))[:_MOST_FILES]
    except OSError:
        return
    for name in names:
        try:
            data = read_bytes(os.path.join(folder, name), _LARGEST)
        except ReadError:
            continue
        if b"install" in data:
            for arguments in _INSTALL.findall(part(data.decode("utf-8", "replace"))):
                yield name, arguments.replace("\\n", " ")
