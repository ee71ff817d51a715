"""Reads the bytes of logs: compressed, in UTF-16, or cut. What cannot be unpacked is said."""

from __future__ import annotations

import bz2
import codecs
import lzma
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, BinaryIO

from dslint.errors import UserError
from dslint.record import Record

BLOCK = 1 << 18
"""Bytes that are read at a time. A block in which nothing is of interest is not divided into lines."""

GZIP = 31
"""The window and header bits by which zlib reads the gzip format."""

ZIP = b"PK\x03\x04"
ZSTD = b"\x28\xb5\x2f\xfd"
MANY = 0.3
"""The share of zero bytes at every second place from which on a text is in UTF-16."""


class Format(Record):
    """A compressed format: its first bytes, its name, what makes an unpacker, and the error of damaged data."""

    begin: bytes
    name: str
    unpacker: Callable[[], Any]
    errors: tuple[type[Exception], ...]


FORMATS = (
    Format(b"\x1f\x8b\x08", "gzip", lambda: zlib.decompressobj(wbits=GZIP), (zlib.error,)),
    Format(b"\xfd7zXZ\x00", "xz", lzma.LZMADecompressor, (lzma.LZMAError, EOFError)),
    Format(b"BZh", "bzip2", bz2.BZ2Decompressor, (OSError, ValueError, EOFError)),
)


def chunks(stream: BinaryIO, name: str, damaged: Callable[[str], None]) -> Iterator[bytes]:
    """The bytes of a log, some at a time, unpacked and in UTF-8. `damaged` is called if a part of it cannot be unpacked.

    Raises:
        UserError: the log is in a format that cannot be unpacked here.
    """
    decoder = None
    for order, chunk in enumerate(_unpacked(stream, name, damaged)):
        if order == 0 and (codec := wide(chunk)) is not None:
            decoder = codecs.getincrementaldecoder(codec)("replace")
        yield decoder.decode(chunk).encode() if decoder else chunk


def _unpacked(stream: BinaryIO, name: str, damaged: Callable[[str], None]) -> Iterator[bytes]:
    chunk = stream.read(BLOCK)
    found = next((one for one in FORMATS if chunk.startswith(one.begin)), None)
    if found is not None:
        yield from _inflated(found, chunk, stream, name, damaged)
        return
    if chunk.startswith(ZSTD):
        yield from _zstd(chunk, stream, name, damaged)
        return
    if chunk.startswith(ZIP):
        raise UserError(f"{name} is a zip archive: unpack it, and pass the log inside")
    while chunk:
        yield chunk
        chunk = stream.read(BLOCK)


def _inflated(kind: Format, chunk: bytes, stream: BinaryIO, name: str, damaged: Callable[[str], None]) -> Iterator[bytes]:
    """The unpacked bytes as far as they are whole; one compressed part may follow another."""
    unpacker, size = kind.unpacker(), 0
    while chunk:
        try:
            unpacked = unpacker.decompress(chunk, BLOCK)
            while unpacked:
                size += len(unpacked)
                yield unpacked
                if unpacker.eof:
                    break
                rest = getattr(unpacker, "unconsumed_tail", b"")
                unpacked = unpacker.decompress(rest, BLOCK) if rest or not getattr(unpacker, "needs_input", True) else b""
        except kind.errors:
            damaged(f"{name} is damaged: only the first {size:,} bytes of the {kind.name} data could be unpacked")
            return
        rest = unpacker.unused_data if unpacker.eof else getattr(unpacker, "unconsumed_tail", b"")
        if unpacker.eof:
            rest = (rest or stream.read(BLOCK)).lstrip(b"\0")
            if not rest.startswith(kind.begin[:2]):
                return
            unpacker = kind.unpacker()
        chunk = rest or stream.read(BLOCK)
    if not unpacker.eof:
        damaged(f"{name} is cut: the {kind.name} data ends too early, after {size:,} bytes of the log")


def _zstd(chunk: bytes, stream: BinaryIO, name: str, damaged: Callable[[str], None]) -> Iterator[bytes]:
    """The unpacked bytes of a zstd log, with the module of Python 3.14 or one of the packages for it."""
    module = next((one for one in ("compression.zstd", "backports.zstd", "zstandard") if _exists(one)), None)
    if module is None:
        raise UserError(f"{name} is compressed with zstd, which this Python cannot unpack: run `zstd -d`, or pip install zstandard")
    library = import_module(module)
    make = (lambda: library.ZstdDecompressor().decompressobj()) if module == "zstandard" else library.ZstdDecompressor
    unpacker, size = make(), 0
    while chunk:
        try:
            unpacked = unpacker.decompress(chunk)
        except Exception:  # noqa: BLE001 - each of the libraries has its own error
            damaged(f"{name} is damaged: only the first {size:,} bytes of the zstd data could be unpacked")
            return
        size += len(unpacked)
        if unpacked:
            yield unpacked
        rest = unpacker.unused_data if unpacker.eof else b""
        if unpacker.eof:
            unpacker = make()
        chunk = rest or stream.read(BLOCK)


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def wide(chunk: bytes) -> str | None:
    """The codec of a log in UTF-16, which PowerShell writes, also without a byte order mark; None for other logs."""
    if chunk.startswith(b"\xff\xfe"):
        return "utf-16-le"
    if chunk.startswith(b"\xfe\xff"):
        return "utf-16-be"
    begin = chunk[:4096]
    half = len(begin) // 2
    if half < 4:
        return None
    if begin[1::2].count(0) > MANY * half and begin[0::2].count(0) < MANY * half / 4:
        return "utf-16-le"
    if begin[0::2].count(0) > MANY * half and begin[1::2].count(0) < MANY * half / 4:
        return "utf-16-be"
    return None
