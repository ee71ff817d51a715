"""The config of a program that takes it from a flag of its launch, where its folder has only one and no script launches it."""

from __future__ import annotations

import os
from dataclasses import replace

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.config.load import load
from dslint.evaluate.python.read import PythonFile
from dslint.setups.gather import Read
from dslint.setups.program import gather_call
from dslint.setups.project import project_of
from dslint.source.read import ReadError

_MOST_FILES = 20
"""In a folder with more JSON files the only config is not looked for: such folders hold data."""

_LARGEST = 100_000
"""Bytes. The largest of 166 configs in 29 public repositories has 4,200."""


def with_only_config(found: Read, program: PythonFile, path: str, shown: str, given: Context) -> Read:
    """A program with the only DeepSpeed config in its folder, if a flag of the command line names its config and it has no other one."""
    flags = [one for one in program.unread if one.flag and not one.is_part]
    places = {(one.given.path, one.given.range) for one in flags}
    name = _only_config(path, given) if len(places) == 1 and not found.setups else None
    if name is None:
        return found
    taken = flags[0]
    call = replace(taken, given=replace(taken.given, value=name), reason=None, arguments=program.arguments)
    setup = gather_call(call, program, path, shown, given, single=True)
    if setup.config is None:
        return found
    note = f"a program: its launch names the DeepSpeed config with {taken.flag}; checked with {name}, the only one in its folder."
    left = [one for one in found.not_judged if not one.at_launch]
    return found._replace(kind=FileKind.PYTHON, setups=[setup], note=note, not_judged=left)


def _only_config(path: str, given: Context) -> str | None:
    """The name of the DeepSpeed config in the folder of a program; None if it has none or several, or a script names it for another one."""
    folder = os.path.dirname(os.path.abspath(path))
    names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    configs = [name for name in names[:_MOST_FILES] if _is_config(os.path.join(folder, name), given)]
    if len(configs) != 1 or len(names) > _MOST_FILES:
        return None
    project = project_of(path)
    return None if any(configs[0] in project.text(script) for script in project.scripts) else configs[0]


def _is_config(path: str, given: Context) -> bool:
    try:
        return os.path.getsize(path) <= _LARGEST and load(path, given, named=False).kind is FileKind.DS_CONFIG
    except (ReadError, OSError):
        return False
