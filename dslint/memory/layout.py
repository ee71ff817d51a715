"""How the weights of a model lie in memory under a plan: sizes on one rank, and which of them touch the rank's part of the flat buffer."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from dslint.memory.plan import Plan
from dslint.memory.shapes import Model

ALIGNMENT = 2
"""Elements that the flat buffer of each rank is a multiple of, so that NCCL starts at 4 bytes."""


@dataclass(frozen=True)
class Layout:
    """Elements on one rank: `sizes` of all weights (after tensor parallelism), which are `trained`, where each begins in the flat buffer.

    `part` is the size of a rank's part of it, `start` and `end` are its bounds for this rank.
    """

    sizes: tuple[int, ...]
    trained: tuple[bool, ...]
    offsets: tuple[int, ...]
    part: int
    start: int
    end: int

    @property
    def whole(self) -> int:
        """Elements of all weights."""
        return sum(self.sizes)

    @property
    def flat(self) -> int:
        """Elements of the trained weights."""
        return sum(size for size, trained in zip(self.sizes, self.trained, strict=True) if trained)

    def owns(self, index: int) -> bool:
        """Whether a trained weight touches the rank's part."""
        return self.offsets[index] < self.end and self.offsets[index] + self.sizes[index] > self.start

    def fragment(self, index: int) -> int:
        """How many of a weight's elements lie in the rank's part."""
        begin = self.offsets[index]
        return max(0, min(begin + self.sizes[index], self.end) - max(begin, self.start))

    def owned(self) -> list[int]:
        """The trained weights that touch the rank's part."""
        return [index for index, trained in enumerate(self.trained) if trained and self.owns(index)]

    def parts(self, index: int) -> tuple[int, int]:
        """The first and the last rank whose part a weight touches."""
        begin = self.offsets[index]
        return begin // self.part, (begin + self.sizes[index] - 1) // self.part


def lay_out(model: Model, plan: Plan, rank: int = 0) -> Layout:
    """The layout of a model for a rank (among those that ZeRO divides by)."""
    sizes = tuple(weight.size // plan.tensor if weight.divided else weight.size for weight in model.weights)
    trained = tuple(weight.trained for weight in model.weights)
    ends = list(accumulate(size if counts else 0 for size, counts in zip(sizes, trained, strict=True)))
    offsets = tuple(end - (size if counts else 0) for end, size, counts in zip(ends, sizes, trained, strict=True))
    unit = ALIGNMENT * plan.replicas
    part = max(1, -(-ends[-1] // unit)) * ALIGNMENT
    return Layout(sizes, trained, offsets, part, rank * part, (rank + 1) * part)
