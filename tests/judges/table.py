"""The table of the judges: what was asked, how much of it is read, and what is wrong."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """What one judge says.

    Args:
        judge: its name.
        asked: how many cases.
        of: what is counted in them, such as "launches".
        found: how many of those there are.
        read: how many of those are read in full.
        wrong: the claims that are wrong, each with the number of its case.
        more: other figures.
        seconds: how long it took.
    """

    judge: str
    asked: int
    of: str
    found: int
    read: int
    wrong: list[tuple[int, str]]
    more: str = ""
    seconds: float = 0


def table(rows: list[Row], seed: int) -> str:
    """The rows as a table for people."""
    lines = [["judge", "cases", "what", "read", "wrong", "seconds", "also"]]
    for row in rows:
        share = f"{100 * row.read / max(row.found, 1):.1f} %"
        cases = len({number for number, _ in row.wrong})
        wrong = f"{len(row.wrong)} in {cases}" if row.wrong else "0"
        lines.append([row.judge, f"{row.asked:,}", f"{row.found:,} {row.of}", share, wrong, f"{row.seconds:.0f}", row.more])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    texts = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([f"seed {seed}", *texts]) + "\n"
