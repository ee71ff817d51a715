"""Modules of the project that a program imports."""

from __future__ import annotations

import os

from dslint.evaluate.files import Linked, find, is_outside
from dslint.evaluate.python.evaluate import ProgramState, block
from dslint.evaluate.python.files import text_of
from dslint.evaluate.python.module_names import files_of_module, installed, is_library, named_in
from dslint.evaluate.python.paths import located
from dslint.evaluate.python.reach import may_take_config
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import Library, Module, Scope, Unknown, Value

_MOST_MODULES = 40
"""How many modules of the project are followed; of further ones those that can reach a call with a config or add options, and the others
count as modules of a library. 29 of 82 programs of LLaMA-Factory, axolotl 0.19 and GPT-NeoX reach this limit. It bounds what a program
costs beyond its steps. A value that comes from another module says so."""

_MOST_IN_ALL = 50
"""How many are followed with those that can reach a call. In a library nearly every module can: of 60 modules, the 20 of
SwissArmyTransformer behind the first 40 made a check of it take 14 s and not 6. Megatron-DeepSpeed's training.py is the 42nd."""

_LARGEST_MODULE = 400_000
"""Longer texts are data rather than programs: the longest module of transformers 5.23, DeepSpeed 0.19.8 and TRL has 308,000 characters."""


def module_named(state: ProgramState, name: str, level: int, scope: Scope) -> Value:
    """The module that an import names: one of the project, or a library."""
    if is_library(name, level):
        return Library(name)
    beside = named_in(scope.source.path, level)
    named = f"{scope.source.shown}: {'.' * level}{name}" if level else name
    for path in files_of_module(name):
        linked = find(path, beside) or ((_in_folders(state, path, scope) or installed(path, scope.source.path)) if not level else None)
        module = _module(state, named, linked.path, linked.shown) if linked is not None else None
        if module is not None:
            return module
    if level:
        beyond = state.beyond.get(named)
        left_out = Reason(Cause.MODULE_BEYOND, (beyond,)) if beyond is not None else None
        return Unknown(left_out or Reason(Cause.NO_MODULE, (f"{'.' * level}{name}",)))
    if name not in state.beyond and name not in state.outside and (file := _outside(state, name, scope)) is not None:
        state.outside[name] = file
    return Library(name)


def _counts(text: str, path: str) -> bool:
    """Whether a module beyond the limit is followed: it can reach a call with a config, or adds the options on which branches depend."""
    return ".add_argument(" in text or may_take_config(text, path)


def _outside(state: ProgramState, name: str, scope: Scope) -> str | None:
    """The file of a module in a folder that the program adds to `sys.path`, where that is outside of the project."""
    files = (os.path.normpath(os.path.join(folder, path)) for folder in state.folders for path in files_of_module(name))
    found = next((file for file in files if is_outside(file, scope.source.path)), None)
    return found.replace(os.sep, "/") if found is not None else None


def _in_folders(state: ProgramState, path: str, scope: Scope) -> Linked | None:
    """A file in the folders that the program or its launch adds to `sys.path`."""
    found = (find(os.path.join(folder, path), scope.source.path) for folder in state.folders)
    return next((one for one in found if one is not None), None)


def _module(state: ProgramState, named: str, path: str, shown: str) -> Module | None:
    if shown in state.modules:
        return state.modules[shown]
    if shown == state.sources.all[0].shown:
        return None
    text = text_of(path)
    if len(state.modules) >= _MOST_MODULES and (len(state.modules) >= _MOST_IN_ALL or text is None or not _counts(text, path)):
        state.beyond[named] = shown
        return None
    state.modules[shown] = None
    if text is None or len(text) > _LARGEST_MODULE:
        return None
    source = state.sources.add(text, path, shown)
    tree = source.parsed.tree
    if tree is None:
        return None
    scope = Scope(state.journal.cells(), source)
    scope.cells["__file__"] = located(os.path.abspath(path).replace(os.sep, "/"))
    module = state.modules[shown] = Module(source, scope)
    state.loading.append(shown)
    block(state, tree.body, scope)
    state.loading.remove(shown)
    for name in [name for of, name in state.awaited if of == shown]:
        for waiting in state.awaited.pop((shown, name)):
            if name in scope.cells and waiting.cells.get(waiting.name) is waiting.missing:
                state.journal.write(waiting.cells, waiting.name, scope.cells[name])
    return module
