"""Which of two configs of one job is faster, and how sure that is.

Two configs run on the same machines, so that what makes a part slower than expected makes it slower for both: a slow network, few threads.
Their difference is therefore far surer than either time. But where they do a part in different ways, with other kernels or collectives,
each may be slower on its own: equal expected times then do not mean equal times.
"""

from __future__ import annotations

import math
from enum import StrEnum

from dslint.record import Record
from dslint.speed.step import Kind, StepPart, StepTime

CLOSE, NEVER = 0.03, 0.08
"""Two configs are too close to call if their expected times per sample differ by less than the first share, and by less than the second
whatever their parts take."""

OWN = 0.35
"""Where two configs do a part in different ways, the share of half the width of its range by which one differs from the other. Without it
54 % of 114 pairs of configs in public tables had their measured ratio inside the range of the gain; with it 82 % (80 % with 0.25, 83 %
with 0.5)."""

SURE = 0.02
"""The least share by which the faster config must be faster if every part is as unfavourable as it can be."""


class SpeedVerdict(StrEnum):
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

    verdict: SpeedVerdict
    gain: float
    low: float
    high: float
    kind: Kind | None


def compare(first: StepTime, second: StepTime) -> Comparison:
    """Compare two configs by their time per sample."""
    mine, other = _by_name(first), _by_name(second)
    kinds = [part.kind for part in (mine | other).values()]
    own = first.seconds / first.job.samples
    differences = {kind.name: _time(other, kind, second) - _time(mine, kind, first) for kind in kinds}
    gain = sum(differences.values()) / own
    least = sum(differences[kind.name] * (kind.low if differences[kind.name] > 0 else kind.high) for kind in kinds) / own
    most = sum(differences[kind.name] * (kind.high if differences[kind.name] > 0 else kind.low) for kind in kinds) / own
    apart = {
        kind.name: OWN * (kind.high - kind.low) / 2 * min(_time(mine, kind, first), _time(other, kind, second))
        for kind in kinds
        if any(getattr(first.job, name) != getattr(second.job, name) for name in kind.ways)
    }
    unsure = math.hypot(*apart.values()) / own
    least, most = least - unsure, most + unsure
    widest = max(kinds, key=lambda kind: abs(differences[kind.name]) * (kind.high - kind.low) + apart.get(kind.name, 0.0))
    if abs(gain) < CLOSE and least > -NEVER and most < NEVER:
        return Comparison(SpeedVerdict.CLOSE, gain, least, most, None)
    if least > SURE or most < -SURE:
        return Comparison(SpeedVerdict.FASTER if gain > 0 else SpeedVerdict.SLOWER, gain, least, most, None)
    return Comparison(SpeedVerdict.LIKELY_FASTER if gain > 0 else SpeedVerdict.LIKELY_SLOWER, gain, least, most, widest)


def _by_name(step: StepTime) -> dict[str, StepPart]:
    return {part.kind.name: part for part in step.parts}


def _time(parts: dict[str, StepPart], kind: Kind, step: StepTime) -> float:
    """Seconds of a kind for each sample."""
    return parts[kind.name].seconds / step.job.samples if kind.name in parts else 0.0
