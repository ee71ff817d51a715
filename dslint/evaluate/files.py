"""Find files that other files name. Only the working directory and the folders of the file and its repository are searched."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from dslint.schemas.recognition import WORDS
from dslint.source.store import store

_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist", "venv"})
_FINISHED_RUN = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-\w+")
"""The folder of a run of Weights & Biases, with the arguments that it had."""


EDITOR = ".vscode"
"""The folder in which VS Code keeps how its debugger launches the programs of a project. Of 430 public repositories with DeepSpeed 12 have
such launches."""


def is_searched(name: str) -> bool:
    """Whether a directory of this name is searched: not if it is hidden, but for VS Code's, or holds what is installed, built or logged."""
    return (not name.startswith(".") or name == EDITOR) and name not in _SKIPPED and _FINISHED_RUN.fullmatch(name) is None


class Linked(NamedTuple):
    """A file that another file names: its path, relative to the working directory if the other path is, and its name for messages."""

    path: str
    shown: str


def find(link: str, named_in: str) -> Linked | None:
    """The file that a link in the file `named_in` refers to, relative to that file's folder, the working directory, or a parent folder of
    the file in its repository.

    None if there is no such file, or if it lies outside these folders.
    """
    here = os.getcwd()
    return store().listed(("link", link, named_in, here), lambda: _find(link, named_in, here))


def _find(link: str, named_in: str, here: str) -> Linked | None:
    folder = os.path.dirname(os.path.abspath(named_in))
    path = store().listed(("find", link, folder, here), lambda: next(_paths(link, folder, here), None))
    return None if path is None else _linked(path, named_in, here)


def find_all(link: str, named_in: str) -> Iterator[Linked]:
    """Every file that a link can refer to, the likeliest first; see `find`."""
    folder, here = os.path.dirname(os.path.abspath(named_in)), os.getcwd()
    return (_linked(path, named_in, here) for path in _paths(link, folder, here))


def _linked(path: str, named_in: str, here: str) -> Linked:
    path = path if os.path.isabs(named_in) else os.path.relpath(path, here)
    return Linked(path, path.replace(os.sep, "/"))


def _paths(link: str, folder: str, here: str) -> Iterator[str]:
    """The absolute paths of the files that a link in a folder can refer to."""
    bases = dict.fromkeys([folder, here, *_above(folder, here)])
    for base in bases:
        path = os.path.normpath(os.path.join(base, os.path.expanduser(link) if link.startswith("~") else link))
        if os.path.isfile(path) and any(_is_below(path, allowed) for allowed in bases):
            yield path


def folders_of(link: str, named_in: str) -> list[str]:
    """The absolute paths of the folders that a relative link in a file can refer to, whether or not they exist; see `find`."""
    folder, here = os.path.dirname(os.path.abspath(named_in)), os.getcwd()
    return [os.path.normpath(os.path.join(base, link)) for base in dict.fromkeys([folder, here, *_above(folder, here)])]


def folders_above(folder: str) -> tuple[str, ...]:
    """The folders above a folder (absolute) in which links are searched: those of its repository, or up to the working directory."""
    return _above(folder, os.getcwd())


def find_checkout(link: str, named_in: str) -> Linked | None:
    """The file of this project that an absolute path names in a checkout elsewhere: the longest end of the path, of at least two names."""
    names = [name for name in link.split("/") if name]
    ends = ("/".join(names[start:]) for start in range(1, len(names) - 1))
    return next((found for end in ends if (found := find(end, named_in)) is not None), None)


def is_in_repository(path: str) -> bool:
    """Whether a file lies in a repository, where a path that is written in a file can be followed from every folder."""
    folder = os.path.dirname(os.path.abspath(path))
    while not os.path.exists(os.path.join(folder, ".git")):
        folder, before = os.path.dirname(folder), folder
        if folder == before:
            return False
    return True


def is_elsewhere(link: str) -> bool:
    """Whether a link cannot be followed here: an absolute path, an address, a placeholder, or a path with a variable in it."""
    return link.startswith(("/", "~", "\\\\", "<")) or "$" in link or "://" in link or "{{" in link or (len(link) > 1 and link[1] == ":")


def is_outside(link: str, named_in: str) -> bool:
    """Whether a link that `find` does not follow leads out of the project: nothing there is opened."""
    folders = (os.path.dirname(os.path.abspath(named_in)), os.getcwd())
    return is_elsewhere(link) or any(os.path.isfile(os.path.join(folder, link)) for folder in folders if "\0" not in link)


def _is_below(path: str, folder: str) -> bool:
    real = store().listed(("real", folder), lambda: os.path.join(os.path.realpath(folder), ""))
    return os.path.realpath(path).startswith(real)


def _above(folder: str, here: str) -> tuple[str, ...]:
    """The folders above a folder, up to the root of its repository; outside a repository, up to the working directory."""
    return store().listed(("above", folder, here), lambda: _folders_above(folder, here))


def _folders_above(folder: str, here: str) -> tuple[str, ...]:
    above: list[str] = []
    while not os.path.exists(os.path.join(folder, ".git")):
        folder, before = os.path.dirname(folder), folder
        if folder == before:
            return tuple(above[: above.index(here)]) if here in above else ()
        above.append(folder)
    return tuple(above)


def concerns_deepspeed(text: str) -> bool:
    """Whether a training, a program or a script can have to do with DeepSpeed, by the words in it."""
    return store().parsed(("concerns DeepSpeed", text), lambda: _has_a_word(text))


def _has_a_word(text: str) -> bool:
    lower = text.lower()
    return any(word in lower for word in WORDS)


def may_concern_deepspeed(data: bytes) -> bool:
    """The same of a file that is not decoded yet. Data in another encoding than UTF-8 may concern DeepSpeed."""
    lower = data.lower()
    return any(word in lower for word in _ENCODED) or b"\0" in data[:100]


_ENCODED = tuple(word.encode() for word in WORDS)


def makes_loader(text: str) -> bool:
    """Whether a program makes an Accelerator or any Trainer, which may be launched with DeepSpeed although nothing in it says so."""
    return any(name in text for name in _LOADERS)


def uses_loader(text: str) -> bool:
    """Whether a program makes one of these, or prepares objects with an Accelerator that something else makes."""
    return makes_loader(text) or _PREPARES in text


def may_use_loader(data: bytes) -> bool:
    """The same of a file that is not decoded yet."""
    return any(name.encode() in data for name in (*_LOADERS, _PREPARES))


_LOADERS = ("Accelerator(", "Trainer(")
_PREPARES = "accelerator.prepare("
