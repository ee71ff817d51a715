"""Where the files are that other files name. Nothing outside of the folders that a person speaks of is opened."""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple


class Linked(NamedTuple):
    """A file that another one names: where it is (from the working directory on, if the other one is), and its name for people."""

    path: str
    shown: str


def find(link: str, beside: str) -> Linked | None:
    """The file that a link in the file `beside` means: from the file's folder on, the working directory, or a folder above the file in
    its repository.

    None where there is no such file in any of them, or it is in none of these folders.
    """
    folder = os.path.dirname(os.path.abspath(beside))
    here = os.getcwd()
    bases = dict.fromkeys([folder, here, *_above(folder)])
    for base in bases:
        path = os.path.normpath(os.path.join(base, os.path.expanduser(link) if link.startswith("~") else link))
        if os.path.isfile(path) and any(_is_below(path, allowed) for allowed in bases):
            path = path if os.path.isabs(beside) else os.path.relpath(path, here)
            return Linked(path, path.replace(os.sep, "/"))
    return None


def is_elsewhere(link: str) -> bool:
    """Whether a link cannot be followed here: an absolute path of another machine, an address, or one with a variable in it."""
    return link.startswith(("/", "~", "\\\\")) or "$" in link or "://" in link or "{{" in link or (len(link) > 1 and link[1] == ":")


def _is_below(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), ""))


@cache
def _above(folder: str) -> tuple[str, ...]:
    """The folders above a folder, up to the root of its repository; none where it is in no repository."""
    above: list[str] = []
    while not os.path.exists(os.path.join(folder, ".git")):
        folder, before = os.path.dirname(folder), folder
        if folder == before:
            return ()
        above.append(folder)
    return tuple(above)
