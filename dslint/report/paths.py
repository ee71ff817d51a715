"""Paths relative to the root of the repository."""

from __future__ import annotations

import os


def from_root(path: str, root: str) -> str | None:
    """The path relative to a folder, with forward slashes; None if it is not inside."""
    absolute, inside = os.path.abspath(path), os.path.join(os.path.abspath(root), "")  # noqa: PTH100, PTH118 - pathlib is slow to import
    return absolute.removeprefix(inside).replace(os.sep, "/") if absolute.startswith(inside) else None
