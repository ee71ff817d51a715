"""The temporary folder of a run. A run that was killed could not remove its own: the next one does."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

PREFIX = "dslint-probe-"

IN_USE = "in-use"
"""The file in the folder that its run holds locked. The system releases the lock however the run ends."""

SETTLED = 60.0
"""Seconds after which a folder without a locked file was left behind: a run locks its file at once."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """A new folder that is removed afterwards, and with it those of runs that were killed.

    Raises:
        OSError: it cannot be created.
    """
    with contextlib.suppress(OSError):
        _remove_abandoned(tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix=PREFIX)
    try:
        with Path(folder, IN_USE).open("w", encoding="ascii") as held:
            _lock(held)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: str) -> None:
    """Remove this user's folders whose run has ended. Without locks (Windows) none is removed."""
    for entry in os.scandir(parent):
        if not entry.name.startswith(PREFIX) or not entry.is_dir(follow_symlinks=False):
            continue
        with contextlib.suppress(OSError):
            found = entry.stat(follow_symlinks=False)
            if not hasattr(os, "getuid") or found.st_uid != os.getuid() or time.time() - found.st_mtime < SETTLED:
                continue
            with Path(entry.path, IN_USE).open("r+", encoding="ascii") as held:
                if _lock(held):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _lock(file: IO[str]) -> bool:
    """Whether the file could be locked: False if another process holds it, or the system has no such locks."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
