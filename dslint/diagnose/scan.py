"""A fast search for lines of interest: one regular expression for the rarest part of each literal.

A log may have a gigabyte, and Python looks at a character in some nanoseconds only while it skips characters with which no literal begins.
So each literal is searched from its rarest character on, as a part of the log itself shows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import islice

COMMON = " .ea-tonsir0ld1pcm:_2u['/h,g3f6b9]y4v578w=("
"""Characters of logs, the most frequent first. All others are rare."""

TYPICAL = "".join(char * (len(COMMON) - order) for order, char in enumerate(COMMON)).encode()
"""A text in which characters are as frequent as that."""

FULL, EVERY = 5_000, 100
"""How often a frequent literal is found before only every how many-th block is searched for it."""

TUNED = 256
"""After how many blocks the characters of the log are counted again."""

NEAR = 1 << 14
"""How many bytes before a line of interest are searched for all literals, for the last steps before an error."""

FIRST, SHARE = 1 << 22, 1 << 13
"""How many such bytes there may be in a log, and how many more for each block."""


class Scanner:
    """Finds lines that contain one of some literals. A long log is not searched completely for those that are `frequent`."""

    def __init__(self, literals: Iterable[str], frequent: Iterable[str] = ()) -> None:
        self._literals, self._frequent = tuple(literals), frozenset(frequent)
        self._found: Counter[str] = Counter()
        self._passed: dict[str, bytes] = {}
        self._blocks = self._near = 0
        self.is_end = False
        self._tune(b"")

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

    def begin(self, block: bytes) -> bool:
        """Whether to search the next block for all literals. The end of a log is always searched for all."""
        self._blocks += 1
        if self._blocks % TUNED == 0:
            self._tune(block)
        return self.is_end or not self._passed or self._blocks % EVERY == 0

    def search(self, block: bytes, start: int = 0, *, for_all: bool = True) -> re.Match[bytes] | None:
        """The next hit in a block."""
        return (self._all if for_all else self._rare)(block, start)

    def count(self, hit: re.Match[bytes], block: bytes) -> None:
        """Count a hit."""
        literals = self._literals_of(hit)
        if not self._frequent.issuperset(literals):
            return
        self._found.update(literals)
        passed = {literal: literal.encode() for literal in literals if self._found[literal] >= FULL and literal not in self._passed}
        if passed:
            self._passed |= passed
            self._tune(block)

    def closely(self, size: int) -> int:
        """How many of the bytes between two hits are searched for all literals after all: those near the second one, as long as this
        happens to a small part of the log.
        """
        near = min(size, NEAR)
        if self._near + near > FIRST + SHARE * self._blocks:
            return 0
        self._near += near
        return near

    def _literals_of(self, hit: re.Match[bytes]) -> list[str]:
        return [literal for literal in self._ends[hit[0]] if hit.string.endswith(literal.encode(), 0, hit.end())]

    def _tune(self, sample: bytes) -> None:
        """Search for each literal from its character on that is rarest in a part of the log."""
        text = TYPICAL + sample
        counts = {char: text.count(char) for char in {char.encode() for literal in self._literals for char in literal}}
        parts = {literal: _anchor(literal, counts) for literal in self._literals}
        self._ends: dict[bytes, list[str]] = {}
        for literal, part in parts.items():
            self._ends.setdefault(part, []).append(literal)
        found = [(literal.encode(), part) for literal, part in parts.items()]
        passed = set(self._passed.values())
        self._all = re.compile(joined(found)).search
        self._rare = re.compile(joined(pair for pair in found if pair[0] not in passed)).search


def _anchor(literal: str, counts: dict[bytes, int]) -> bytes:
    """The part of a literal from the character on that is rarest."""
    return literal[min(range(len(literal)), key=lambda i: counts[literal[i].encode()]) :].encode()


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
