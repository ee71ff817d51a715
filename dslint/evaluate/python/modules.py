"""Modules of the project that a program imports."""

from __future__ import annotations

import os
import sys

from dslint.evaluate.files import Linked, find
from dslint.evaluate.python.evaluate import ProgramState, block
from dslint.evaluate.python.files import text_of
from dslint.evaluate.python.paths import located
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import Library, Module, Scope, Unknown, Value

_MOST_MODULES = 40
"""How many modules of the project are followed; further ones count as modules of a library. 29 of 82 programs of LLaMA-Factory, axolotl
0.19 and GPT-NeoX reach this limit. It bounds what a program costs beyond its steps."""

_LARGEST_MODULE = 400_000
"""Longer texts are data rather than programs: the longest module of transformers 5.23, DeepSpeed 0.19.8 and TRL has 308,000 characters."""

_LIBRARIES = frozenset("deepspeed torch transformers accelerate lightning pytorch_lightning peft trl datasets numpy ray wandb".split())


def module_named(state: ProgramState, name: str, level: int, scope: Scope) -> Value:
    """The module that an import names: one of the project, or a library."""
    if is_library(name, level):
        return Library(name)
    beside = named_in(scope.source.path, level)
    for path in files_of_module(name):
        linked = find(path, beside) or (_in_folders(state, path, scope) if not level else None)
        module = _module(state, linked.path, linked.shown) if linked is not None else None
        if module is not None:
            return module
    return Unknown(Reason(Cause.NO_MODULE, (f"{'.' * level}{name}",))) if level else Library(name)


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


def _in_folders(state: ProgramState, path: str, scope: Scope) -> Linked | None:
    """A file in the folders that the program adds to `sys.path`."""
    found = (find(os.path.join(folder, path), scope.source.path) for folder in state.folders)
    return next((one for one in found if one is not None), None)


def _module(state: ProgramState, path: str, shown: str) -> Module | None:
    if shown in state.modules:
        return state.modules[shown]
    if shown == state.sources.all[0].shown or len(state.modules) >= _MOST_MODULES:
        return None
    state.modules[shown] = None
    text = text_of(path)
    if text is None or len(text) > _LARGEST_MODULE:
        return None
    source = state.sources.add(text, path, shown)
    tree = source.parsed.tree
    if tree is None:
        return None
    scope = Scope(state.journal.cells(), source)
    scope.cells["__file__"] = located(os.path.abspath(path).replace(os.sep, "/"))
    module = state.modules[shown] = Module(source, scope)
    block(state, tree.body, scope)
    return module
