"""Modules of the project that a program imports."""

from __future__ import annotations

import os
import sys

from dslint.evaluate.files import Linked, find
from dslint.evaluate.python.evaluate import State, block
from dslint.evaluate.python.files import text_of
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import Constant, Library, Module, Scope, Unknown, Value

_MOST_MODULES = 40
_LARGEST_MODULE = 400_000

_LIBRARIES = frozenset("deepspeed torch transformers accelerate lightning pytorch_lightning peft trl datasets numpy ray wandb".split())


def module_named(state: State, name: str, level: int, scope: Scope) -> Value:
    """The module that an import names: one of the project, or a library."""
    first = name.partition(".")[0]
    if not level and (first in _LIBRARIES or first in sys.stdlib_module_names):
        return Library(name)
    beside = scope.source.path
    for _ in range(level - 1):
        beside = os.path.dirname(os.path.abspath(beside))
    below = name.replace(".", "/")
    for path in (f"{below}.py", f"{below}/__init__.py") if below else ("__init__.py",):
        linked = find(path, beside) or (_in_folders(state, path, scope) if not level else None)
        module = _module(state, linked.path, linked.shown) if linked is not None else None
        if module is not None:
            return module
    return Unknown(Reason(Cause.NO_MODULE, (f"{'.' * level}{name}",))) if level else Library(name)


def _in_folders(state: State, path: str, scope: Scope) -> Linked | None:
    """A file in the folders that the program adds to `sys.path`."""
    found = (find(os.path.join(folder, path), scope.source.path) for folder in state.folders)
    return next((one for one in found if one is not None), None)


def _module(state: State, path: str, shown: str) -> Module | None:
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
    scope.cells["__file__"] = Constant(os.path.abspath(path).replace(os.sep, "/"))
    module = state.modules[shown] = Module(source, scope)
    block(state, tree.body, scope)
    return module
