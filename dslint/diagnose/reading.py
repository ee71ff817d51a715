"""Reads logs as lines: bounded in memory, linear in time, without the prefixes that launchers put before each line.

A line keeps its number as editors count it. Progress bars rewrite a line with carriage returns: each version is a line with the
same number.
"""

from __future__ import annotations

import io
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import BinaryIO

from dslint.diagnose import notebooks
from dslint.diagnose.prefixes import LONGEST, LogLine, LogPlace, Prefixes
from dslint.diagnose.restarts import Restarts
from dslint.diagnose.rewrap import FILLER, rejoined
from dslint.diagnose.scan import Scanner
from dslint.diagnose.unpack import BLOCK, chunks
from dslint.record import Record

LONGEST_RECORD = 1 << 22
"""The most characters of a line that is a JSON record: it may hold a whole traceback."""

AROUND = 20_000
"""The bytes before and after a line from which its prefix is learned."""

END = 4
"""The last blocks of a log, which are read completely."""

AHEAD = 100_000
"""The first bytes of a log from which its prefixes are learned before its first line is read."""

JOINED = FILLER.encode()

ENDS, MOST_KEPT = 3, 16
"""The blocks of a log that are kept, one from the begin and the others from the end, and the logs of which they are."""

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")
_RANK_FILE = re.compile(r"(?:rank|local_rank|worker|default|proc|task)[-_.]?(\d+)|(?:^|/)(\d+)/std(?:out|err)\.log$")


class LogSource(Record):
    """An open log, and the name under which it is reported; `ended` if it is known that nothing more will be printed."""

    name: str
    stream: BinaryIO
    ended: bool = False


def read_lines(
    source: LogSource,
    scanner: Scanner,
    is_busy: Callable[[], bool],
    prefixes: Prefixes,
    restarts: Restarts | None,
    kept: Kept,
) -> Iterator[LogLine]:
    """The lines of a log that contain something of interest, and all lines while the consumer is in the middle of something.

    Args:
        source: the log.
        scanner: finds lines that are of interest.
        is_busy: whether the consumer needs the next line in any case.
        prefixes: removes prefixes.
        restarts: leaves out most jobs of a log.
        kept: keeps the begin and the end of the log as they are.
    """
    rank = rank_of(source.name)
    blocks = _blocks(source.stream, source.name, kept.damaged.append)
    blocks = kept.watch(source.name, _unwrapped(blocks) if restarts else blocks)  # not of a log that is followed, and still grows
    blocks = _with_end(blocks, scanner)
    for first, block in restarts.reduced(blocks) if restarts else blocks:
        if first == 1:
            prefixes.learn_ahead(_decoded(line) for line in block[:AHEAD].split(b"\n"))
        for number, part in scanner.lines(first, block, is_busy):
            if part == JOINED:
                continue
            around = partial(_around, block, part)
            yield from prefixes.strip(_decoded(part), LogPlace(source.name, number), rank, around)


class Kept:
    """The begin and the end of each log, for texts without a line that the signs know, and which logs are damaged."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[tuple[int, bytes]]] = {}
        self.damaged: list[str] = []

    def watch(self, name: str, blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        """The blocks as they come."""
        mine = self._blocks.setdefault(name, []) if len(self._blocks) < MOST_KEPT else []
        for block in blocks:
            mine.append(block)
            if len(mine) > ENDS:
                del mine[1]
            yield block

    def lines(self, name: str) -> Iterator[LogLine]:
        """The lines of a log that were kept, without their prefixes."""
        prefixes, rank = Prefixes(), rank_of(name)
        for first, block in self._blocks.get(name, ()):
            if first == 1:
                prefixes.learn_ahead(_decoded(line) for line in block[:AHEAD].split(b"\n"))
            for number, raw in enumerate(block.split(b"\n"), first):
                if raw == JOINED:
                    continue
                for part in raw.split(b"\r"):
                    yield from prefixes.strip(_decoded(part), LogPlace(name, number), rank, partial(_around, block, part))


def _decoded(part: bytes) -> str:
    """A line as text, without colours. Records of collectors may be long."""
    limit = LONGEST_RECORD if part[:1] == b"{" else 2 * LONGEST
    text = part[:limit].decode("utf-8", "replace")
    return text if text.isprintable() else ANSI.sub("", text)


def _around(block: bytes, part: bytes) -> Iterator[str]:
    """The lines before and after a line of a block."""
    at = max(0, block.find(part))
    start = block.rfind(b"\n", 0, max(0, at - AROUND)) + 1
    for line in block[start : at + AROUND].split(b"\n"):
        yield _decoded(line)


def _with_end(blocks: Iterable[tuple[int, bytes]], scanner: Scanner) -> Iterator[tuple[int, bytes]]:
    """The blocks. The scanner learns when the last ones come."""
    held = deque[tuple[int, bytes]]()
    scanner.is_end = False
    for block in blocks:
        held.append(block)
        if len(held) > END or not scanner.is_bounded:
            yield held.popleft()
    scanner.is_end = True
    yield from held


def rank_of(name: str) -> int | None:
    """The rank that the name of a log file tells, as in `rank_3.log` or torchrun's `attempt_0/3/stderr.log`."""
    match = _RANK_FILE.search(name.replace(os.sep, "/"))
    return int(match[1] or match[2]) if match and int(match[1] or match[2]) < 100_000 else None


def _blocks(stream: BinaryIO, name: str, damaged: Callable[[str], None]) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each with the number of its first line. A line that is longer than a block comes in parts. Line ends of
    Windows are one line end, and no text that an empty one overwrites.
    """
    number, rest = 1, b""
    for read in chunks(stream, name, damaged):
        block = (rest + read).replace(b"\r\n", b"\n")
        end = block.rfind(b"\n") + 1
        if not end and len(block) < 2 * BLOCK:
            rest = block
            continue
        whole, rest = (block[:end], block[end:]) if end else (block, b"")
        yield number, whole.removesuffix(b"\n")
        number += whole.count(b"\n")
    if rest:
        yield number, rest


def _unwrapped(blocks: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """The blocks. The lines of a short log, which may be a copy from a terminal, are joined if they were wrapped there."""
    held = list(islice(blocks, 2))
    last = next(blocks, None)
    if last is None and sum(len(block) for _, block in held) <= BLOCK and held:
        yield 1, rejoined(b"\n".join(block for _, block in held))
        return
    yield from held
    if last is not None:
        yield last
    yield from blocks


def log_files(folder: str) -> list[str]:
    """The files of a folder of logs, by name, with those of its subfolders."""
    found = []
    for path, folders, names in os.walk(folder):
        folders.sort()
        found += [os.path.join(path, name) for name in sorted(names) if not name.startswith(".")]
    return sorted(found, key=_natural)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", name)]


def sources_of(paths: Iterable[str]) -> Iterator[LogSource]:
    """Open logs, and all files of folders, one after the other.

    Raises:
        OSError: a file cannot be read.
    """
    for path in paths:
        for name in log_files(path) if os.path.isdir(path) else (path,):
            with open(name, "rb") as stream:
                yield from cells(LogSource(name, stream))


def cells(source: LogSource) -> Iterator[LogSource]:
    """The log itself, or the output of each cell if it is a notebook."""
    begin = source.stream.read(BLOCK)
    if notebooks.BEGIN.match(begin):
        data = begin + source.stream.read(notebooks.LARGEST)
        found = list(notebooks.outputs(data))
        yield from (LogSource(f"{source.name} cell {number}", io.BytesIO(text.encode()), ended) for number, text, ended in found)
        if found:
            return
        begin = data
    yield LogSource(source.name, Rejoined(begin, source.stream))  # type: ignore[arg-type]


class Rejoined:
    """A stream of which the begin was read before."""

    def __init__(self, begin: bytes, stream: BinaryIO) -> None:
        self._begin, self._stream = begin, stream

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size`; none at the end."""
        if not self._begin:
            return self._stream.read(size)
        part, self._begin = self._begin[:size], self._begin[size:]
        return part
