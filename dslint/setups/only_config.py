"""The config of a program that does not name it, where only one can be meant: the only one in its folder, or in its project."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.config.load import load
from dslint.evaluate.python.notes import ConfigCall
from dslint.evaluate.python.read import PythonFile
from dslint.facts import Integration
from dslint.setups.gather import LoadedSetup, Read, settle
from dslint.setups.program import gather_call
from dslint.setups.project import project_of
from dslint.source.read import ReadError

_MOST_FILES = 20
"""In a folder with more JSON files the only config is not looked for: such folders hold data."""

_LARGEST = 100_000
"""Bytes. The largest of 166 configs in 29 public repositories has 4,200."""

_NAMED_LIKE_CONFIG = re.compile(r"(^|[^a-z])(ds|zero)([^a-z]|$)|deepspeed", re.IGNORECASE)
"""What the names of configs contain; other JSON files of a project are not looked at, but for those in the folder of the program."""


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


def assumed(program: PythonFile, path: str, shown: str, given: Context) -> LoadedSetup | None:
    """A program that gets its config from elsewhere, with the only config of the project, if no other file names that one.

    None of what is found in the program is certain then, and each finding says on what it rests.
    """
    calls = [one for one in program.unread if one.integration and not (one.is_part or one.is_in_use or one.is_built or one.through)]
    if not calls or len({one.integration for one in calls}) > 1:
        return None
    name = _only_config_of_project(path, given)
    if name is None:
        return None
    taken = calls[0]
    if taken.integration == Integration.DEEPSPEED and '"auto"' in project_of(path).text(os.path.join(os.path.dirname(path), name)):
        return None  # the program fills these in by itself, and nobody knows what else
    call: ConfigCall = replace(taken, given=replace(taken.given, value=name), reason=None, arguments=program.arguments)
    setup = gather_call(call, program, path, shown, given, single=True)
    if setup.config is None or setup.setup.program is None:
        return None
    sentence = f"{setup.setup.config}, the only config that dslint sees here, is taken for that of {taken.given.where}."
    return settle(setup.but(program=replace(setup.setup.program, assumed=sentence)))


def _only_config_of_project(path: str, given: Context) -> str | None:
    """The path of the only DeepSpeed config around a program, from its folder; None if there are several, or a file names it."""
    project = project_of(path)
    folder = os.path.dirname(os.path.abspath(path))
    around = [one for one in project.json_files if _NAMED_LIKE_CONFIG.search(os.path.basename(one)) or os.path.dirname(one) == folder]
    if len(around) > _MOST_FILES:
        return None
    configs = [one for one in around if _is_config(one, given)]
    if len(configs) != 1:
        return None
    name = os.path.basename(configs[0])
    if any(name in project.text(one) for one in (*project.scripts, *project.programs, *project.yaml_files)):
        return None
    return os.path.relpath(configs[0], folder).replace(os.sep, "/")


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
