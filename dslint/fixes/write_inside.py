"""Files that belong to a project are written where they lie: never through a link that leads out of the project."""

from __future__ import annotations

import os

from dslint.fixes.atomic_write import write_whole
from dslint.setups.project import leads_out


def write_inside(path: str, text: str, *, before: str | None = None) -> None:
    """Write a changed file of a project, whole or not at all. A link that stays in the project is followed.

    Args:
        path: the file.
        text: its new content.
        before: the text that was read from it; the file is left alone where it contains another one by now.

    Raises:
        OSError: a link leads the path out of the project, it is not a regular file (a pipe that nobody reads would block), or it
            cannot be written, as in `write_whole`.
    """
    if outside := leads_out(path):
        raise OSError(f"it leads out of this project; to change {outside}, name it")
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError("this is not a regular file")
    write_whole(path, text, before=before)
