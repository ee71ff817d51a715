"""File patterns with the syntax of `.gitignore`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


def matches(path: str, base: str, patterns: Iterable[str], *, folder: bool = False) -> bool:
    """Whether a file (or directory) matches a pattern relative to the directory `base`. Paths outside of it do not match."""
    relative = os.path.relpath(os.path.abspath(path), base).replace(os.sep, "/")
    if relative.startswith("../") or relative == "..":
        return False
    return _compiled(tuple(patterns)).match_file(relative + "/" if folder else relative)


@lru_cache
def _compiled(patterns: tuple[str, ...]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # needed only for patterns

    return GitIgnoreSpec.from_lines(patterns)
