"""Programs as files of a project: their calls, the commands that they run, and the scripts that launch them."""

from __future__ import annotations

from dslint.config.context import Context
from dslint.evaluate.python.reach import is_broken, may_take_config
from dslint.frameworks.programs import read_python
from dslint.setups.calls import calls_of
from dslint.setups.gather import Read
from dslint.setups.launched_by import with_launches
from dslint.setups.only_config import with_only_config
from dslint.setups.program import read_followed
from dslint.setups.program_commands import with_commands


def read_program_file(text: str, path: str, shown: str, given: Context, *, named: bool) -> Read | None:
    """Read a program. None for a discovered one that has nothing to do with DeepSpeed."""
    if not named and not may_take_config(text, path) and not is_broken(text, path, shown):
        return None
    program = read_python(text, shown, path) if named else calls_of(text, path, shown)
    found = read_followed(program, text, path, shown, given, named=named)
    if program is not None and program.commands:
        found = with_commands(found, program, path, given)
    if found is None or program is None:
        return found
    return with_only_config(with_launches(found, path, shown, given), program, path, shown, given)
