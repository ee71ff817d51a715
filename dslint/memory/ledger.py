"""Tracks the memory of one device by part, and its peak in each phase."""

from __future__ import annotations

from dslint.record import Record

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
"""The parts of the total, in the order in which they are shown."""

INIT, GENERATION, FORWARD, BACKWARD, STEP, EVALUATION = "init", "generate", "forward", "backward", "step", "evaluate"
TRAINING = (INIT, GENERATION, FORWARD, BACKWARD, STEP)
"""The phases of a training, in order. Only reinforcement learning and distillation generate."""

PHASES = (*TRAINING, EVALUATION)
"""The phases, with the evaluation that not every training has."""


class Moment(Record):
    """Allocated bytes at one moment: in total, and by part."""

    total: int
    parts: dict[str, int]


class Ledger:
    """The current allocations and the peaks. Amounts are in bytes."""

    __slots__ = ("held", "peaks", "phase", "total")

    def __init__(self) -> None:
        self.held = dict.fromkeys(PARTS, 0)
        self.total = 0
        self.phase = INIT
        self.peaks: dict[str, Moment] = {}

    def hold(self, part: str, amount: int) -> None:
        """Allocate."""
        self.held[part] += amount
        self.total += amount
        peak = self.peaks.get(self.phase)
        if peak is None or self.total > peak.total:
            self.peaks[self.phase] = Moment(self.total, self.held.copy())

    def drop(self, part: str, amount: int) -> None:
        """Free."""
        self.held[part] -= amount
        self.total -= amount

    def pass_by(self, part: str, amount: int) -> None:
        """Allocate and free at once."""
        self.hold(part, amount)
        self.drop(part, amount)

    def set(self, part: str, amount: int) -> None:
        """Set a part to an amount."""
        self.hold(part, amount - self.held[part])

    def enter(self, phase: str) -> None:
        """Begin a phase with the current allocations."""
        self.phase = phase
        self.hold(PARAMETERS, 0)
