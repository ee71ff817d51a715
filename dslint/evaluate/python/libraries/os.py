"""os, os.path, pathlib and sys.path."""

from __future__ import annotations

import posixpath

from dslint.evaluate.python.assigning import set_variable
from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.dicts import new_dict
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.files import exists
from dslint.evaluate.python.libraries.table import first_argument, follows, unknown_of
from dslint.evaluate.python.paths import absolute, expanded, folder_of, joined, last_part, located
from dslint.evaluate.python.tables import new_table
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import COMPUTED, NONE, Constant, DictValue, Entry, ListValue, Unknown, Value, is_soft, path_of, soften


@follows("os.path.join", "pathlib.Path", "pathlib.PurePath")
def _join(_: ProgramState, call: CallOf) -> Value:
    parts = [argument.value for argument in call.arguments]
    return joined(parts) if call.complete else unknown_of(*parts)


@follows("os.path.dirname")
def _dirname(_: ProgramState, call: CallOf) -> Value:
    return folder_of(call.get("p", 0) or Unknown())


@follows("os.path.basename")
def _basename(_: ProgramState, call: CallOf) -> Value:
    return last_part(call.get("p", 0) or Unknown())


@follows("os.path.abspath", "os.path.realpath")
def _absolute(_: ProgramState, call: CallOf) -> Value:
    return absolute(call.get("path", 0) or Unknown(), follows_links=call.name == "os.path.realpath")


@follows("os.path.expanduser")
def _expanduser(_: ProgramState, call: CallOf) -> Value:
    return expanded(call.get("path", 0) or Unknown())


@follows("os.path.normpath")
def _normpath(_: ProgramState, call: CallOf) -> Value:
    path = call.get("path", 0)
    name = path_of(path)
    if name is None or path is None:
        return unknown_of(path)
    return Constant(posixpath.normpath(name), is_soft(path)) if isinstance(path, Constant) else path


@follows("os.path.splitext")
def _splitext(_: ProgramState, call: CallOf) -> Value:
    path = call.plain("p", 0)
    if not isinstance(path, str):
        return unknown_of(call.get("p", 0))
    return ListValue([Entry(Constant(part), call.span, call.span) for part in posixpath.splitext(path)], call.span)


@follows("os.getcwd", "pathlib.Path.cwd")
def _working_directory(_: ProgramState, __: CallOf) -> Value:
    return located(".")


@follows("os.path.exists", "os.path.isfile")
def _exists(state: ProgramState, call: CallOf) -> Value:
    """A file that is there now is taken to be there in the run; one that is not may be."""
    path = path_of(call.get("path", 0))
    is_there = path is not None and exists(state, path)
    return Constant(value=True, soft=True) if is_there else COMPUTED


follows("os.fspath")(first_argument)


_SET_BY_LAUNCHERS = frozenset({"WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK"})
"""Variables that are always set where ranks run: the default that a program has for them does not count."""


@follows("os.environ.get", "os.getenv")
def _environ(state: ProgramState, call: CallOf) -> Value:
    name, default = call.plain("key", 0), call.get("default", 1)
    if name in state.environment:
        known: Value = state.environment[name]
        return known
    if name in _SET_BY_LAUNCHERS:
        return Unknown(Reason(Cause.VARIABLE, (str(name),)))
    return soften(default) if isinstance(default, Constant) and default.value is not None else Unknown(Reason(Cause.VARIABLE, (str(name),)))


@follows("os.environ.pop", "os.unsetenv")
def _unset_environ(state: ProgramState, call: CallOf) -> Value:
    found = _environ(state, call)
    if isinstance(name := call.plain("key", 0), str):
        state.journal.erase(state.environment, name)
    return found


@follows("os.environ.update", "os.environ.setdefault", "os.putenv")
def _set_environ(state: ProgramState, call: CallOf) -> Value:
    """`os.environ.update(...)`, `os.environ.setdefault(name, value)`."""
    name = call.plain("key", 0)
    if call.name.endswith("setdefault") and isinstance(name, str) and name in state.environment:
        kept: Value = state.environment[name]
        return kept
    if isinstance(name, str) and len(call.arguments) > 1:
        set_variable(state, name, call.arguments[1], call.scope)
    made = new_dict(state, call) if not isinstance(name, str) else new_table(state, call.span)
    for variable, entry in made.cells.items() if isinstance(made, DictValue) else ():
        set_variable(state, variable, Argument(entry.value, entry.span, entry.key_span, entry.literal), call.scope)
    return NONE


@follows("sys.path.append", "sys.path.insert")
def _add_folder(state: ProgramState, call: CallOf) -> Value:
    """`sys.path.append(folder)`, `sys.path.insert(0, folder)`."""
    folder = path_of(call.arguments[-1].value) if call.arguments else None
    if folder is not None:
        state.folders.append(folder)
    return NONE
