"""Files are written whole or not at all: a full disk or an interrupt leaves the old file as it was."""

from __future__ import annotations

import os


def write_whole(path: str, text: str | bytes) -> None:
    """Put a text (or bytes, as they are) in place of a file, following symbolic links and keeping its mode; a
    device or pipe is written to as it is.

    Raises:
        OSError: the text could not be written; the old file is untouched.
    """
    data = text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        with open(target, "wb") as stream:
            stream.write(data)
        return
    beside = f"{target}.{os.getpid()}.tmp"
    try:
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(target):
            os.chmod(beside, os.stat(target).st_mode & 0o7777)
        os.replace(beside, target)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise
