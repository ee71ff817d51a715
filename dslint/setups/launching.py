"""Files that launch programs: scripts, makefiles, notebooks, job files, those of an editor's debugger, and programs that run commands.

Each is read once a run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from dslint.config.context import Context
from dslint.evaluate.python import reach
from dslint.evaluate.python.cells import is_notebook
from dslint.not_judged import NotJudged, Why
from dslint.setups.calls import calls_of
from dslint.setups.debugger import read_debugger
from dslint.setups.gather import LoadedSetup, Read
from dslint.setups.job import read_job
from dslint.setups.names import DEBUGGER, is_makefile
from dslint.setups.notebook import read_notebook
from dslint.setups.program_commands import with_commands
from dslint.setups.script import programs_started, read_shell
from dslint.source.store import store

_MOST_LAUNCHES = 12
"""How many launches a file is judged with: each costs up to a second in a large project, and is judged with its own script, too."""


def first_launches(launched: Iterable[LoadedSetup], files: Iterable[str]) -> tuple[list[LoadedSetup], NotJudged | None]:
    """The launches of a file that it is judged with, and those without a config between them, with what is left out.

    Args:
        launched: all its launches.
        files: the files that they are in.
    """
    kept: list[LoadedSetup] = []
    left = _MOST_LAUNCHES
    for setup in launched:
        if setup.config is not None and not left:
            where = f" ({setup.setup.link.where})" if setup.setup.link is not None else ""
            return kept, NotJudged(Why.TOO_MANY_LAUNCHES, (str(_MOST_LAUNCHES), where), files=tuple(files))
        kept.append(setup)
        left -= setup.config is not None
    return kept, None


def read_launching(text: str, path: str, shown: str, given: Context, *, named: bool) -> Read | None:
    """Read a file for its launches. None for one that was only found and launches nothing with DeepSpeed."""
    # The context has no hash. It is kept with the result, so that no other one gets its id.
    key = ("launching", path, shown, text, id(given), named)
    return store().found(key, lambda: (given, _read(text, path, shown, given, named=named)))[1]


def _read(text: str, path: str, shown: str, given: Context, *, named: bool) -> Read | None:
    name = os.path.basename(path).lower()
    if name.endswith((".yaml", ".yml")):
        return read_job(text, path, shown, given)
    if name == DEBUGGER:
        return read_debugger(text, path, shown, given, named=named)
    if is_notebook(path, text):
        return read_notebook(text, path, shown, given, named=named)
    if name.endswith(".py"):
        program = calls_of(text, path, shown) if reach.may_launch(text, path) else None
        return with_commands(None, program, path, given) if program is not None and program.commands else None
    return read_shell(text, path, shown, given, named=named, make=is_makefile(path))


def may_launch(text: str, path: str, shown: str, given: Context, program: str) -> bool:
    """Whether a file may launch a program that is a file, or imports it (an absolute path). False is certain.

    In a large checkout many scripts hold the name of a program that stands in many folders: to follow what each of them launches took
    minutes.
    """
    name = os.path.basename(path).lower()
    if name.endswith((".yaml", ".yml", ".ipynb", ".py")) or name == DEBUGGER:
        return True
    return any(reach.may_contain(None, one, program) for one in programs_started(text, path, shown, given, make=is_makefile(path)))
