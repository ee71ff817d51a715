"""Launches whose config is judged, and whose program is not read."""

from __future__ import annotations

import os

from dslint.evaluate.python.read import PythonFile
from dslint.frameworks.registry import of_script
from dslint.not_judged import NotJudged, Why, variable_to_pass
from dslint.setups.command import Command
from dslint.setups.launch_program import file_of_program
from dslint.setups.program import left_unread
from dslint.source.unknown import UNKNOWN


def unread_of(command: Command, program: PythonFile | None, path: str) -> list[NotJudged]:
    """What is not judged of the program of a command, and why: all of it, or a part. The programs of frameworks are known."""
    given, launch = command.program, command.launch
    if given is None or command.framework is not None or command.has_no_program:
        return []
    if (launch is not None and launch.not_a_program is not None) or of_script(str(given.value), command.flags) is not None:
        return []
    if program is not None:
        return [one._replace(path=one.path or program.path) for one in left_unread(program, program.path)]
    why, about = _why(command, path)
    return [NotJudged(why, about, command.place, path=given.path, launch=f"the launch of {given.raw}")]


def _why(command: Command, path: str) -> tuple[Why, tuple[str, ...]]:
    assert command.program is not None
    name, raw = command.program.value, command.program.raw
    if name is UNKNOWN:
        return Why.PROGRAM_SET_AT_RUN_TIME, (variable_to_pass(raw),)
    if file_of_program(command, path) is not None:
        return Why.PROGRAM_NOT_PYTHON, (raw,)
    if os.path.normpath(os.path.join(command.folder, str(name))) in command.files:
        return Why.PROGRAM_WRITTEN, ()
    if not command.is_module and not str(name).endswith(".py"):
        return Why.PROGRAM_WITHOUT_PY, (raw,)
    return Why.PROGRAM_UNSEEN, ()
