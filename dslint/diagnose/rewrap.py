"""Joins the lines of a log that was copied from a terminal, where long lines end at the last column and go on below."""

from __future__ import annotations

import re
from itertools import pairwise
from keyword import iskeyword

from dslint.diagnose.frames import read_frame
from dslint.diagnose.shapes import HEAD

NARROWEST, WIDEST = 60, 250
"""The columns of terminals from which logs are copied."""

FEWEST = 3
"""The fewest different lines of exactly the greatest length in a log that was wrapped."""

SAME = 6
"""The first characters that two lines of the same printer have in common, such as a time or a prefix."""

FILLER = "\x00"
"""What stands in the place of a line that was joined to the one above, so that lines keep their numbers."""

_PRINTER = re.compile(r"[\[(]?[\w.-]{1,40}[\])]?:(?: |(?=\[))")
"""What tells the printer of a line, as a rank or a machine in front of it."""

_FRAME = re.compile(r'File "[^"\n]{1,500}", line \d+, in [\w<>.]+$')
_CUT_FRAME = re.compile(r'(?:^|\s)File "[^"\n]{1,500}(?:"(?:,(?: (?:l|li|lin|line(?: \d*(?:, ?i?n?)?)?)?)?)?)?$')
_END_OF_NAME = re.compile(r"[A-Za-z_]\w{0,60}")

_DIGITS = re.compile(r"\d+")


def rejoined(block: bytes) -> bytes:
    """A block of lines. If they were wrapped at a column, each long line is whole, and `FILLER` lines stand in for its further parts."""
    if b"\r" in block:  # a terminal shows only the last text of a line
        return block
    lines = block.decode("utf-8", "replace").split("\n")
    width = max(map(len, lines))
    if not NARROWEST <= width <= WIDEST or not _is_wrapped(lines, width):
        width = 0
    whole: list[str] = []
    at = 0
    while at < len(lines):
        end, text = at, lines[at]
        while end + 1 < len(lines) and (
            _is_cut_frame(text, lines[end + 1]) or _goes_on(lines[end], lines[end + 1], width) or _is_cut_balance(text, lines[end + 1])
        ):
            end += 1
            text += lines[end]
        whole += [text, *[FILLER] * (end - at)]
        at = end + 1
    return "\n".join(whole).encode() if FILLER in whole else block


def _goes_on(line: str, below: str, width: int) -> bool:
    """Whether a line of a wrapped log goes on in the one below; `width` is 0 for other logs."""
    return width > 0 and len(line) == width and not _begins(line, below)


def _is_cut_frame(line: str, below: str) -> bool:
    """Whether a line is a frame that the one below completes, in a copy where edited names have moved the column at which lines end."""
    if _FRAME.search(line):
        return bool(_END_OF_NAME.fullmatch(below)) and not iskeyword(below)
    return bool(_CUT_FRAME.search(line) and _FRAME.search(line + below)) and not _begins(line, below)


def _is_cut_balance(line: str, below: str) -> bool:
    """Whether the line below goes on with who holds the memory of the GPU: people paste the long message with a line per sentence."""
    return below.startswith(_BALANCE) and "out of memory. Tried to allocate" in line and _SENTENCE.match(below) is not None


_BALANCE = ("GPU ", "Process ", "Including non-PyTorch memory, ", "Of the allocated memory ")
_SENTENCE = re.compile(
    r"GPU \d{1,4} has a total capaci?ty of|Process \d{1,10} has [\d.]{1,20} \w{1,5} memory in use|Including non-PyTorch|Of the allocated"
)


def _is_wrapped(lines: list[str], width: int) -> bool:
    """Whether long lines go on in the next one: several different lines are as long as the longest, and what follows begins nothing."""
    pairs = [(line, below) for line, below in pairwise(lines) if len(line) == width]
    parts = [(line, below) for line, below in pairs if below and (not _begins(line, below) or _is_cut_frame(line, below))]
    return len({_DIGITS.sub("", line) for line, _ in parts}) >= FEWEST and len(parts) >= 0.8 * len(pairs)


def _begins(line: str, below: str) -> bool:
    """Whether a line is not the rest of the one above: it begins as lines do, or as that one, or that one is a whole frame."""
    first = _PRINTER.match(line)
    same = below[:SAME] == line[:SAME] or bool(first and below.startswith(first[0]))
    return same or bool(HEAD.match(below)) or below.startswith(("  ", "\t")) or read_frame(line) is not None
