"""Paths as code hosts read them: of a file, relative to the root of the repository."""

from __future__ import annotations

import os


def from_root(path: str, root: str) -> str | None:
    """The path relative to a folder, with forward slashes; None if it is not inside."""
    absolute, inside = os.path.abspath(path), os.path.join(os.path.abspath(root), "")  # noqa: PTH100, PTH118 - pathlib is slow to import
    return absolute.removeprefix(inside).replace(os.sep, "/") if absolute.startswith(inside) else None


def file_and_cell(path: str) -> tuple[str, str]:
    """The file and the cell of a place in a notebook: `x.ipynb:cell 3` is `cell 3` of `x.ipynb`. The cell of any other path is ""."""
    file, mark, number = path.rpartition(":cell ")
    return (file, f"cell {number}") if mark and number.isdecimal() else (path, "")
