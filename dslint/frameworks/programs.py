"""Read Python programs with all that the frameworks know of them."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from dslint.evaluate.python.read import PythonFile, read_text
from dslint.evaluate.values import Flag
from dslint.frameworks.registry import in_programs


def read_python(
    text: str,
    shown: str,
    path: str | None = None,
    flags: dict[str, Flag] | None = None,
    sections: frozenset[str] | None = None,
    folders: Sequence[str] = (),
) -> PythonFile | None:
    """Read a Python text, or a notebook; see `read_text`."""
    return read_text(text, shown, path, flags, in_programs(), sections=sections, folders=folders)


def read_calls(text: str, shown: str, path: str, left: AbstractSet[tuple[str, str]]) -> PythonFile | None:
    """Read a program as far as its calls need it: without the functions in `left`, which cannot reach any."""
    return read_text(text, shown, path, None, in_programs(), left)
