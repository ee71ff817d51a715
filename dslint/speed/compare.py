"""Which of two configs of one job is faster, and how sure that is.

Two configs run on the same machines, so that what makes a part slower than expected makes it slower for both: a slow network, few threads.
Their difference is therefore far surer than either time.
"""

from __future__ import annotations

from enum import StrEnum

from dslint.record import Record
from dslint.speed.step import Kind, Step

CLOSE, NEVER = 0.03, 0.08
"""Two configs are too close to call if their expected times per sample differ by less than the first share, and by less than the second
whatever their parts take."""

SURE = 0.02
"""The least share by which the faster config must be faster if every part is as unfavourable as it can be."""


class Verdict(StrEnum):
    """How a config compares to another."""

    FASTER = "faster"
    SLOWER = "slower"
    CLOSE = "too close to call"
    LIKELY_FASTER = "likely faster"
    LIKELY_SLOWER = "likely slower"


class Comparison(Record):
    """`gain` is the share by which the first config trains more samples per second than the second, expected, at least and at most;
    `kind` is the part that makes it unsure, if one does.
    """

    verdict: Verdict
    gain: float
    low: float
    high: float
    kind: Kind | None


def compare(first: Step, second: Step) -> Comparison:
    """Compare two configs by their time per sample."""
    mine = {part.kind: part.seconds / first.job.samples for part in first.parts}
    other = {part.kind: part.seconds / second.job.samples for part in second.parts}
    kinds = [*mine, *(kind for kind in other if kind not in mine)]
    differences = {kind: other.get(kind, 0.0) - mine.get(kind, 0.0) for kind in kinds}
    own = sum(mine.values())
    gain = sum(differences.values()) / own
    least = sum(difference * (kind.low if difference > 0 else kind.high) for kind, difference in differences.items()) / own
    most = sum(difference * (kind.high if difference > 0 else kind.low) for kind, difference in differences.items()) / own
    widest = max(kinds, key=lambda kind: abs(differences[kind]) * (kind.high - kind.low))
    if abs(gain) < CLOSE and least > -NEVER and most < NEVER:
        return Comparison(Verdict.CLOSE, gain, least, most, None)
    if least > SURE or most < -SURE:
        return Comparison(Verdict.FASTER if gain > 0 else Verdict.SLOWER, gain, least, most, None)
    return Comparison(Verdict.LIKELY_FASTER if gain > 0 else Verdict.LIKELY_SLOWER, gain, least, most, widest)
