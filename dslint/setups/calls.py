"""Programs that were found, read as far as their calls need it."""

from __future__ import annotations

from dslint.evaluate.python.narrow import without_calls
from dslint.evaluate.python.reach import is_broken
from dslint.evaluate.python.read import PythonFile
from dslint.frameworks.programs import read_calls, read_python


def calls_of(text: str, path: str, shown: str) -> PythonFile | None:
    """A program with its calls. One that has a config or runs a command is followed as a whole.

    Of any other, functions are left out that cannot lead to a call: what they say of the training counts only beside a config.
    """
    left = without_calls(text, path)
    if left and not path.endswith(".ipynb") and not is_broken(text, path, shown):
        program = read_calls(text, shown, path, left)
        if program is not None and (program.is_whole or not (program.calls or program.commands)):
            return program
    return read_python(text, shown, path)
