"""Files are written whole or not at all: a full disk, an interrupt or a signal leaves the old file as it was, and no other file."""

from __future__ import annotations

import errno
import os
import secrets
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dslint.source.read import ReadError, read_bytes

NEW_FILE = 0o666
"""The mode of a new file, before the user's mask is applied."""


class ChangedSinceRead(OSError):
    """The file is not the one that was read."""


def write_whole(path: str, text: str | bytes, *, before: str | None = None) -> None:
    """Put a text (or bytes, as they are) in place of a file, following symbolic links and keeping its mode, owner and extended attributes.
    A device or pipe is written to as it is.

    Args:
        path: the file.
        text: its new content.
        before: the text that was read from it; the file is left alone where it contains another one by now.

    Raises:
        ChangedSinceRead: the file contains another text than `before`.
        OSError: the text could not be written; the old file is untouched. A read-only file, one with several hard links, and one of an
            owner that cannot be kept are not replaced.
    """
    data = text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")
    target = os.path.realpath(path)
    status = _status(target)
    if status is not None and not stat.S_ISREG(status.st_mode):
        with open(target, "wb") as stream:
            stream.write(data)
        return
    if status is not None:
        _refuse(target, status)
    with _removed_on_failure(target) as (beside, file):
        with os.fdopen(file, "wb") as stream:
            if status is not None:
                _take_over(stream.fileno(), target, status)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if before is not None:
            _refuse_changed(target, before)
        os.replace(beside, target)


def check_writable(path: str) -> None:
    """Check that `write_whole` could write to a path now. Nothing is left there.

    Raises:
        OSError: it could not.
    """
    target = os.path.realpath(path)
    status = _status(target)
    if status is not None and not stat.S_ISREG(status.st_mode):
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        return
    if status is not None:
        _refuse(target, status)
    with _removed_on_failure(target) as (beside, file):
        os.close(file)
        os.unlink(beside)


def _status(target: str) -> os.stat_result | None:
    try:
        return os.stat(target)
    except FileNotFoundError:
        return None


def _refuse(target: str, status: os.stat_result) -> None:
    """Refuse a file that would not be the same file afterwards, or that its owner protects."""
    if not status.st_mode & 0o222 or not os.access(target, os.W_OK):
        raise PermissionError(f"the file is read-only: {target}")
    if status.st_nlink > 1:
        raise OSError(f"the file has {status.st_nlink} hard links, which would no longer be the same file: {target}")


def _take_over(file: int, target: str, status: os.stat_result) -> None:
    """Give an open file the owner, mode and extended attributes (and so the access control list) of the file that it replaces."""
    if hasattr(os, "fchown"):
        own = os.fstat(file)
        if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
            os.fchown(file, status.st_uid, status.st_gid)
        os.fchmod(file, stat.S_IMODE(status.st_mode))
    if hasattr(os, "listxattr"):
        for name in _attributes(target):
            value = os.getxattr(target, name)
            try:
                os.setxattr(file, name, value)
            except OSError as error:
                if name.startswith("security."):  # the system gives a new file its own, and lets few programs set them
                    continue
                raise OSError(error.errno, f"its attribute {name} cannot be kept: {os.strerror(error.errno or 0)}") from error


def _attributes(target: str) -> list[str]:
    try:
        return os.listxattr(target)
    except OSError:  # a file system without them
        return []


@contextmanager
def _removed_on_failure(target: str) -> Iterator[tuple[str, int]]:
    """A new file next to another one, open for writing; it is removed where anything fails, SIGTERM included."""
    beside = f"{target}.{secrets.token_hex(8)}.tmp"
    with _terminated_in_order():
        # O_EXCL: it is a new file, and no symbolic link at its path is followed.
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), NEW_FILE)
        try:
            yield beside, file
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise


class _Terminated(BaseException):
    """SIGTERM came."""


@contextmanager
def _terminated_in_order() -> Iterator[None]:
    """Raise an exception at SIGTERM, so that what has to be undone is, and end by the signal then."""

    def terminate(*_: object) -> None:
        raise _Terminated

    try:
        old = signal.signal(signal.SIGTERM, terminate)
    except ValueError:  # not in the main thread, which gets the signals
        yield
        return
    try:
        yield
    except _Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, old)


def _refuse_changed(target: str, before: str) -> None:
    expected = before.encode("utf-8", "surrogatepass")
    try:
        now = read_bytes(target, len(expected))
    except ReadError:  # it is longer, or no regular file any more
        now = None
    if now != expected:
        raise ChangedSinceRead("the file has changed since it was read")
