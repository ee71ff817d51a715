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


_NONE = float("-inf")


class Ledger:
    """The current allocations and the peaks. Amounts are in bytes.

    Of allocations in a row only the last can be the peak: the parts are copied when something is freed after it, or the peaks are read.
    """

    __slots__ = ("_grows", "_most", "_peaks", "held", "phase", "total")

    def __init__(self) -> None:
        self.held = dict.fromkeys(PARTS, 0)
        self.total = 0
        self.phase = INIT
        self._peaks: dict[str, Moment] = {}
        self._most = _NONE
        """The total of the phase's peak."""
        self._grows = False
        """Whether the peak is now, and its parts are not copied."""

    @property
    def peaks(self) -> dict[str, Moment]:
        """The peak of each phase so far."""
        if self._grows:
            self._copy()
        return self._peaks

    def _copy(self) -> None:
        self._peaks[self.phase] = Moment(self.total, self.held.copy())
        self._grows = False

    def hold(self, part: str, amount: int) -> None:
        """Allocate."""
        if self._grows and amount < 0:
            self._copy()
        self.held[part] += amount
        self.total += amount
        if self.total > self._most:
            self._most = self.total
            self._grows = True

    def drop(self, part: str, amount: int) -> None:
        """Free."""
        if not amount:
            return
        if self._grows:
            self._copy()
        self.held[part] -= amount
        self.total -= amount

    def pass_by(self, part: str, amount: int) -> None:
        """Allocate and free at once."""
        total = self.total + amount
        if total > self._most:
            self.held[part] += amount
            self._peaks[self.phase] = Moment(total, self.held.copy())
            self.held[part] -= amount
            self._most, self._grows = total, False

    def set(self, part: str, amount: int) -> None:
        """Set a part to an amount."""
        self.hold(part, amount - self.held[part])

    def enter(self, phase: str) -> None:
        """Begin a phase with the current allocations."""
        known = self.peaks.get(phase)
        self.phase, self._most = phase, _NONE if known is None else known.total
        self.hold(PARAMETERS, 0)

    def count(self, moment: Moment) -> None:
        """Take another moment for the peak of the phase if it is above it."""
        if moment.total > self._most:
            self._peaks[self.phase], self._most, self._grows = moment, moment.total, False
