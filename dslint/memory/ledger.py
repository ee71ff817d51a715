"""Keeps the books of one device: what is held, by part, and the moment of each phase at which the most is."""

from __future__ import annotations

from typing import NamedTuple

PARAMETERS = "parameters"
GRADIENTS = "gradients"
MASTER = "master weights"
OPTIMIZER = "optimizer states"
GATHERED = "gathered parameters"
BUCKETS = "buckets and buffers"
ACTIVATIONS = "activations"
LOGITS = "logits and loss"
NORM = "gradient norm (fp64)"
CASTS = "copies in the step"

PARTS = (PARAMETERS, GRADIENTS, MASTER, OPTIMIZER, GATHERED, BUCKETS, ACTIVATIONS, LOGITS, NORM, CASTS)
"""The parts that a sum is made of, in the order in which they are shown."""

INIT, FORWARD, BACKWARD, STEP = "init", "forward", "backward", "step"
PHASES = (INIT, FORWARD, BACKWARD, STEP)


class Moment(NamedTuple):
    """A moment: all bytes that are held, and how many of them for each part."""

    total: int
    parts: dict[str, int]


class Ledger:
    """The books. Amounts are bytes."""

    __slots__ = ("held", "peaks", "phase", "total")

    def __init__(self) -> None:
        self.held = dict.fromkeys(PARTS, 0)
        self.total = 0
        self.phase = INIT
        self.peaks: dict[str, Moment] = {}

    def hold(self, part: str, amount: int) -> None:
        """Something is allocated."""
        self.held[part] += amount
        self.total += amount
        peak = self.peaks.get(self.phase)
        if peak is None or self.total > peak.total:
            self.peaks[self.phase] = Moment(self.total, self.held.copy())

    def drop(self, part: str, amount: int) -> None:
        """Something is freed."""
        self.held[part] -= amount
        self.total -= amount

    def pass_by(self, part: str, amount: int) -> None:
        """Something is allocated, and freed before anything else happens."""
        self.hold(part, amount)
        self.drop(part, amount)

    def set(self, part: str, amount: int) -> None:
        """A part changes to an amount."""
        self.hold(part, amount - self.held[part])

    def enter(self, phase: str) -> None:
        """A phase begins, with what is held."""
        self.phase = phase
        self.hold(PARAMETERS, 0)
