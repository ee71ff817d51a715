"""Paths as those who read a report know them: from the root of the repository."""

from __future__ import annotations

import os


def from_root(path: str, root: str) -> str | None:
    """The path from a folder that it lies in, with forward slashes; None if it lies elsewhere."""
    absolute, inside = os.path.abspath(path), os.path.join(os.path.abspath(root), "")  # noqa: PTH100, PTH118 - pathlib is slow to import
    return absolute.removeprefix(inside).replace(os.sep, "/") if absolute.startswith(inside) else None
