"""A fast search for lines of interest: the lines of a log are compared by their shapes.

A log may have a gigabyte, and looking for some hundred literals costs Python about 25 nanoseconds for each character. But programs print
the same lines again and again, with other numbers. So a line is looked at without its digits, and only the first line of each such shape
is searched: in 200 MB of steps, losses, bars and tracebacks there are some hundred of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

DIGITS = b"0123456789"
_AS_LINES = bytes.maketrans(b"\r", b"\n")

COMMON = " .ea-tonsir0ld1pcm:_2u['/h,g3f6b9]y4v578w=("
"""Characters of logs, the most frequent first. All others are rare."""

FULL, EVERY = 5_000, 400
"""How often a frequent literal is found before only every how many-th block is searched for it."""

NEAR = 1 << 14
"""How many bytes before a line of interest are searched for all literals, for the last steps before an error."""

FIRST, SHARE = 1 << 22, 1 << 13
"""How many such bytes there may be in a log, and how many more for each block."""

MOST_SHAPES = 1 << 23
"""The bytes of all shapes that are kept. A program that prints no line twice would fill the memory otherwise."""


class Scanner:
    """Finds lines that contain one of some literals. A long log is not searched completely for those that are `frequent`."""

    def __init__(self, literals: Iterable[str], frequent: Iterable[str] = ()) -> None:
        self._literals, any_of_them = _searched(tuple(literals))
        self._frequent = frozenset(frequent)
        self._any = any_of_them.search
        self._sets: list[frozenset[str]] = [frozenset()]
        self._kinds: dict[bytes, int] = {}
        self._size = 0
        self._found: Counter[str] = Counter()
        self._passed: dict[str, None] = {}
        self._blocks = self._near = 0
        self.is_end = False

    @property
    def is_bounded(self) -> bool:
        """Whether some of a long log may be left out."""
        return bool(self._frequent)

    @property
    def repeated(self) -> str | None:
        """What to say of lines that were not all read; None if they were."""
        if not self._passed:
            return None
        quoted = ", ".join(f'"{literal.strip()}"' for literal in islice(self._passed, 3))
        more = f" and {len(self._passed) - 3} more texts" if len(self._passed) > 3 else ""
        return (
            f"Of the lines with {quoted}{more} only a part was read after the first {FULL:,}: their counts are lower bounds, and a highest "
            "value may be missing"
        )

    def lines(self, first: int, block: bytes, is_busy: Callable[[], bool]) -> Iterator[tuple[int, bytes]]:
        """The lines of a block that contain a literal, and each next line while `is_busy`, with their numbers.

        Args:
            first: the number of the first line. Texts that overwrite each other with carriage returns are lines with the same number.
            block: whole lines.
            is_busy: whether the next line is needed in any case.
        """
        self._blocks += 1
        kinds = self._kinds_of(block.translate(_AS_LINES, DIGITS).split(b"\n"))
        if not any(kinds) and not is_busy():
            return
        lines, numbers = _split(first, block)
        for_all = self.is_end or not self._passed or self._blocks % EVERY == 0
        passed = {kind for kind, literals in enumerate(self._sets) if self._passed.keys() >= literals}
        at = 0
        for hit in [*(i for i, kind in enumerate(kinds) if kind and (for_all or kind not in passed)), len(lines)]:
            while at < hit and is_busy():
                yield numbers[at], lines[at]
                at += 1
            if hit == len(lines):
                return
            for near in range(at if for_all else hit - self._closely(lines, at, hit), hit):
                if kinds[near] or is_busy():
                    self._count(kinds[near])
                    yield numbers[near], lines[near]
            self._count(kinds[hit])
            yield numbers[hit], lines[hit]
            at = hit + 1

    def _kinds_of(self, shapes: list[bytes]) -> list[int]:
        """For each shape the index of the set of literals that it contains."""
        kinds = self._kinds
        for shape in set(shapes).difference(kinds):
            found = frozenset(literal for literal, text in self._literals.items() if text in shape) if self._any(shape) else self._sets[0]
            if found not in self._sets:
                self._sets.append(found)
            kinds[shape] = self._sets.index(found)
            self._size += len(shape)
        of = list(map(kinds.__getitem__, shapes))
        if self._size > MOST_SHAPES:
            kinds.clear()
            self._size = 0
        return of

    def _count(self, kind: int) -> None:
        literals = self._sets[kind]
        if self._frequent.issuperset(literals):
            self._found.update(literals)
            self._passed |= {literal: None for literal in literals if self._found[literal] >= FULL}

    def _closely(self, lines: list[bytes], at: int, hit: int) -> int:
        """How many of the lines between two hits are searched for all literals after all: those near the second one, as long as this
        happens to a small part of the log.
        """
        room, first = min(NEAR, FIRST + SHARE * self._blocks - self._near), hit
        while first > at and len(lines[first - 1]) < room:
            first -= 1
            room -= len(lines[first]) + 1
            self._near += len(lines[first]) + 1
        return hit - first


@lru_cache(maxsize=8)
def _searched(literals: tuple[str, ...]) -> tuple[dict[str, bytes], re.Pattern[bytes]]:
    """Literals without their digits, and what finds any of them. Every log is searched for the same: made again, it takes half of the time
    of a short one.
    """
    texts = {literal: literal.encode().translate(None, DIGITS) for literal in literals}
    return texts, re.compile(joined((text, _anchor(text)) for text in texts.values()))


def _split(first: int, block: bytes) -> tuple[list[bytes], Sequence[int]]:
    """The lines of a block, and their numbers."""
    lines = block.split(b"\n")
    if b"\r" not in block:
        return lines, range(first, first + len(lines))
    numbers = [number for number, line in enumerate(lines, first) for _ in range(line.count(b"\r") + 1)]
    return block.translate(_AS_LINES).split(b"\n"), numbers


def _anchor(text: bytes) -> bytes:
    """The part of a literal from its rarest character on: Python skips characters with which no literal begins in some nanoseconds."""
    return text[max(range(len(text)), key=lambda i: COMMON.find(chr(text[i])) % len(COMMON)) :]


def joined(literals: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A pattern for the longest of the literals at a position, with one branch for each first byte. Each comes with its last part, which
    is searched for; what stands before is compared afterwards.
    """
    heads: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for literal, part in sorted(set(literals), key=lambda pair: (-len(pair[1]), pair)):
        heads.setdefault(part[:1], []).append((literal, part))
    branches = [re.escape(head) + b"(?:" + b"|".join(_rest(*pair) for pair in pairs) + b")" for head, pairs in heads.items()]
    return b"|".join(branches)


def _rest(literal: bytes, part: bytes) -> bytes:
    """The pattern for a part without its first byte, where it ends the whole literal."""
    return re.escape(part[1:]) + (b"(?<=" + re.escape(literal) + b")" if literal != part else b"")
