"""Reads files as text; every failure has an error message for the user."""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat

from dslint.source.parse import parse
from dslint.source.store import store
from dslint.source.tree import Document, Mapping

MAX_BYTES = 16 * 1024 * 1024
"""The largest file that is read into memory."""


def names_file(path: str) -> bool:
    """Whether a path is that of a file: "-" and names such as "<stdin>" or "<dict>" stand for texts without one."""
    return path != "-" and not path.startswith("<")


# UTF-32 first: its little-endian BOM begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_WIDE = rb"(?:\x00[\t-~]){2}|(?:[\t-~]\x00){2}"
_KINDS = (
    (stat.S_ISDIR, "this is a directory, not a file"),
    (stat.S_ISFIFO, "this is a pipe; dslint reads regular files only"),
    (stat.S_ISSOCK, "this is a socket; dslint reads regular files only"),
    (stat.S_ISCHR, "this is a device; dslint reads regular files only"),
    (stat.S_ISBLK, "this is a device; dslint reads regular files only"),
)
_REASONS = {
    errno.ENOENT: ("missing", "no such file"),
    errno.ENOTDIR: ("missing", "no such file: a part of the path is a file, not a directory"),
    errno.EACCES: ("permission", "cannot open this file: permission denied"),
    errno.EPERM: ("permission", "cannot open this file: permission denied"),
    errno.EISDIR: ("not-a-file", "this is a directory, not a file"),
    errno.ELOOP: ("unreadable", "cannot open this file: its symbolic links form a loop"),
    errno.ENAMETOOLONG: ("missing", "no such file: the name is too long"),
}
SCRIPTS = (".sh", ".bash", ".zsh", ".ksh", ".slurm", ".sbatch", ".pbs", ".lsf", ".qsub", ".sge", ".job")
"""The endings of shell scripts, those of batch systems among them."""

_READ_AS_BYTES = (*SCRIPTS, ".mk", "makefile")
"""How the names of files end that a shell or make reads, for which a comment can be in any encoding."""

_DECLARED = rb"(?:[^\n]*\n)?[ \t\f]*#[^\n]*?coding[:=][ \t]*([-\w.]+)"
"""The encoding that a Python file declares in one of its first two lines (PEP 263)."""

_BASE64 = r"\s*([A-Za-z0-9+/_-]+(?:\r?\n[A-Za-z0-9+/_-]+)*={0,2})\s*"


DATA = (".json", ".yaml", ".yml")
"""How the names of files end that programs read and never run."""


class ReadError(Exception):
    """A file could not be read. The text goes after the file's name ("ds.json: no such file").

    `kind` is a stable name: "missing", "permission", "not-a-file", "too-large", "binary", "encoding" or "unreadable". `offset` (in bytes)
    and `line` are the place of an encoding error.
    """

    def __init__(self, kind: str, message: str, *, offset: int | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.offset = offset
        self.line = line


def read(path: str | os.PathLike[str]) -> str:
    """The text of a file, a byte order mark included; raises `ReadError` and nothing else."""
    return decode(read_bytes(path), os.fspath(path))


def read_bytes(path: str | os.PathLike[str], most: int = MAX_BYTES, *, pipes: bool = False) -> bytes:
    """The bytes of a file. Every file that dslint reads is read here.

    Only regular files are opened, so that no pipe or device blocks.

    Args:
        path: the file.
        most: the largest size in bytes that is read.
        pipes: whether the path may be a pipe, because a person named it (`<(command)` of a shell).

    Raises:
        ReadError: the file cannot be read, is not a regular file, or is too large.
    """
    unsaved = store().unsaved
    if unsaved and (text := unsaved.get(os.path.abspath(path))) is not None:  # noqa: PTH100 - pathlib is slow to import
        return text.encode("utf-8", "surrogatepass")
    try:
        _refuse_special(os.stat(path), pipes=pipes)  # noqa: PTH116 - pathlib is slow to import
        # The file may have been replaced: do not block on a pipe, and check the opened file again.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - a descriptor
            status = os.fstat(file.fileno())
            _refuse_special(status, pipes=pipes)
            if stat.S_ISFIFO(status.st_mode):
                os.set_blocking(file.fileno(), True)
            data = file.read(most + 1) if status.st_size <= most else b""
            if data is None:  # a file of the kernel in which nothing is ready
                raise ReadError("unreadable", "cannot read this file: it has no content yet")
    except OSError as error:
        kind, message = _REASONS.get(error.errno or 0, ("unreadable", f"cannot read this file: {error.strerror or error}"))
        raise ReadError(kind, message) from error
    except ValueError as error:
        raise ReadError("missing", "no such file: invalid file name") from error
    if max(status.st_size, len(data)) > most:
        raise _too_large(max(status.st_size, len(data)), most)
    return data


def decode(data: bytes, path: str = "") -> str:
    """The text of a file's bytes, a byte order mark included.

    Python, the shell and make also run files that are not UTF-8: those are decoded as they read them. A byte that no encoding explains is
    U+FFFD then; such a text is not to be written back.

    Args:
        data: the bytes.
        path: the name of the file, which says what reads it; by default something that expects UTF-8, as DeepSpeed does.

    Raises:
        ReadError: the bytes are not text.
    """
    if len(data) > MAX_BYTES:
        raise _too_large(len(data))
    for mark, name in _MARKS:
        if data.startswith(mark):
            raise ReadError("encoding", f"this file is encoded in {name}: save it as UTF-8", offset=0, line=1)
    if b"\0" in data[:2] and re.match(_WIDE, data):
        raise ReadError("encoding", "this file looks like UTF-16: save it as UTF-8", offset=0, line=1)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if b"\0" in data:
            raise _binary() from error
        other = _in_another_encoding(data, path.lower())
        if other is None:
            raise _not_utf8(data, error.start) from error
        text = other
    if "\0" in text:
        raise _binary()
    return text


def _in_another_encoding(data: bytes, name: str) -> str | None:
    """The text of a script or a program that is not UTF-8; None where what reads the file does not accept it either."""
    if name.endswith(_READ_AS_BYTES):
        return data.decode("utf-8", "replace")
    declared = re.match(_DECLARED, data) if name.endswith(".py") else None
    if declared is None:
        return None
    try:
        return data.decode(declared[1].decode("ascii"))
    except (LookupError, UnicodeError):
        return None


def _not_utf8(data: bytes, offset: int) -> ReadError:
    line = Document(data[:offset].decode("utf-8"), None).line_count
    message = f"this file is not UTF-8 text: byte 0x{data[offset]:02x} at offset {offset}, line {line}"
    return ReadError("encoding", message, offset=offset, line=line)


def decode_base64(text: str) -> str | None:
    """The config in a text that is one base64 word; None for any other text.

    DeepSpeed accepts such a string instead of a path, in either base64 alphabet. It must contain an object.
    """
    if text.lstrip()[:1] == "{":
        return None  # nearly every file
    word = re.fullmatch(_BASE64, text)
    if not word:
        return None
    import base64

    try:
        decoded = base64.urlsafe_b64decode(word[1]).decode("utf-8")
    except ValueError:
        return None
    if decoded.lstrip("\ufeff \t\r\n").startswith("{"):
        return decoded
    # An object without braces, if all characters are plain text.
    root = parse(decoded)
    if isinstance(root.root, Mapping) and root.root.members and not root.problems and decoded.replace("\n", "").isprintable():
        return decoded
    return None


def _refuse_special(status: os.stat_result, *, pipes: bool) -> None:
    if stat.S_ISREG(status.st_mode) or (pipes and stat.S_ISFIFO(status.st_mode)):
        return
    for is_kind, message in _KINDS:
        if is_kind(status.st_mode):
            raise ReadError("not-a-file", message)
    raise ReadError("not-a-file", "this is not a regular file")


def _too_large(size: int, most: int = MAX_BYTES) -> ReadError:
    mib = 1024 * 1024
    return ReadError("too-large", f"this file is too large: {size / mib:.0f} MiB, at most {most / mib:.3g} MiB")


def _binary() -> ReadError:
    return ReadError("binary", "this is a binary file, not text (it contains NUL bytes)")
