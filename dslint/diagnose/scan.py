"""A fast search for lines of interest: one regular expression for the rarest part of each literal.

A log may have a gigabyte, and Python looks at a character in some nanoseconds only while it skips characters with which no literal begins.
So each literal is searched from its rarest character on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

COMMON = " .ea-tonsir0ld1pcm:_2u['/h,g3f6b9]y4v578w=("
"""Characters of logs, the most frequent first. All others are rare."""

FULL, EVERY = 40_000, 50
"""How many lines about progress are read completely; after these, every how many-th."""


class Scanner:
    """Finds lines that contain one of some literals. Of lines with one of the `thinned` literals, a long log is not read completely."""

    def __init__(self, literals: Iterable[str], thinned: Iterable[str] = ()) -> None:
        thin = set(thinned)
        parts = {literal: anchor(literal) for literal in literals}
        self._thinned = {parts[literal] for literal in thin} - {part for literal, part in parts.items() if literal not in thin}
        self.search = re.compile(joined((literal.encode(), part) for literal, part in parts.items())).search
        self._seen = 0

    def takes(self, hit: re.Match[bytes]) -> bool:
        """Whether to read the line of a hit."""
        if hit[0] not in self._thinned:
            return True
        self._seen += 1
        return self._seen <= FULL or self._seen % EVERY == 0


def anchor(literal: str) -> bytes:
    """The part of a literal to search for: from its rarest character on."""
    return literal[min(range(len(literal)), key=lambda i: -COMMON.find(literal[i]) if literal[i] in COMMON else -len(COMMON)) :].encode()


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
