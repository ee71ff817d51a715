"""What the name of an imported module means: a library, or files of the project."""

from __future__ import annotations

import os
import sys

from dslint.evaluate.files import Linked, find, folders_of
from dslint.source.store import store

_LIBRARIES = frozenset("deepspeed torch transformers accelerate lightning pytorch_lightning peft trl datasets numpy ray wandb".split())


_INSTALLS = ("pyproject.toml", "setup.py", "setup.cfg")
"""The files that say how a project is installed. Each build tool finds the packages of its folder `src`."""


def is_library(name: str, level: int) -> bool:
    """Whether an import names a library, whatever files the project has."""
    first = name.partition(".")[0]
    return not level and (first in _LIBRARIES or first in sys.stdlib_module_names)


def named_in(path: str, level: int) -> str:
    """The path beside which the import of a file finds modules; `level` is the number of dots before the module's name."""
    if level < 2:
        return path
    above = os.path.abspath(path)
    for _ in range(level - 1):
        above = os.path.dirname(above)
    return above if os.path.isabs(path) else os.path.relpath(above)


def files_of_module(name: str) -> tuple[str, ...]:
    """The files that a dotted name can mean; "" is the package of the file that imports it."""
    below = name.replace(".", "/")
    return (f"{below}.py", f"{below}/__init__.py") if below else ("__init__.py",)


def installed(path: str, named_in: str) -> Linked | None:
    """A file of a package in the folder `src` of the project, which a file beside that folder installs from there.

    Args:
        path: the file, from the folder `src` on.
        named_in: the file that imports it.
    """
    package, _, inner = path.partition("/")
    return find(f"src/{path}", named_in) if inner and package in _installed_around(named_in) else None


def _installed_around(path: str) -> frozenset[str]:
    """The names of the packages in the folders `src` above a file that are installed."""
    folder, here = os.path.dirname(os.path.abspath(path)), os.getcwd()
    return store().listed(("packages", folder, here), lambda: frozenset().union(*map(_packages, folders_of("src", path))))


def _packages(folder: str) -> frozenset[str]:
    """The names of the packages that are installed from a folder. Without an `__init__.py` another one of that name may be installed."""
    above = os.path.dirname(folder)
    if not any(os.path.isfile(os.path.join(above, name)) for name in _INSTALLS) or not os.path.isdir(folder):
        return frozenset()
    return frozenset(name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name, "__init__.py")))
