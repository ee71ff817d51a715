"""What the name of an imported module means: a library, or files of the project."""

from __future__ import annotations

import os
import sys

_LIBRARIES = frozenset("deepspeed torch transformers accelerate lightning pytorch_lightning peft trl datasets numpy ray wandb".split())


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
