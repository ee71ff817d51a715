"""The memory layout of a model's weights under a plan: sizes on one rank, and which weights overlap its partition of the flat buffer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from dslint.memory.plan import Plan
from dslint.memory.shapes import Model

ALIGNMENT = 2
"""The flat buffer of each rank is a multiple of this many elements, so that NCCL buffers are 4-byte aligned."""


@dataclass(frozen=True)
class Layout:
    """Elements on one rank: `sizes` of all weights (after tensor parallelism), which are `trained`, and their offsets in the flat buffer.

    `viewed` are the weights of which the forward keeps a view, `matrices` the trained matrices of blocks, which Muon updates. `part` is the
    size of a rank's partition, `start` and `end` are its bounds for this rank.
    """

    sizes: tuple[int, ...]
    trained: tuple[bool, ...]
    offsets: tuple[int, ...]
    part: int
    start: int
    end: int
    viewed: frozenset[int] = frozenset()
    matrices: tuple[int, ...] = ()

    @property
    def whole(self) -> int:
        """Elements of all weights."""
        return sum(self.sizes)

    @property
    def flat(self) -> int:
        """Elements of the trained weights."""
        return sum(size for size, trained in zip(self.sizes, self.trained, strict=True) if trained)

    def owns(self, index: int) -> bool:
        """Whether a trained weight overlaps the rank's partition."""
        return self.offsets[index] < self.end and self.offsets[index] + self.sizes[index] > self.start

    def fragment(self, index: int) -> int:
        """The number of a weight's elements in the rank's partition."""
        begin = self.offsets[index]
        return max(0, min(begin + self.sizes[index], self.end) - max(begin, self.start))

    def owned(self) -> list[int]:
        """The trained weights that overlap the rank's partition."""
        return [index for index, trained in enumerate(self.trained) if trained and self.owns(index)]

    def parts(self, index: int) -> tuple[int, int]:
        """The first and the last rank with a partition that a weight overlaps."""
        begin = self.offsets[index]
        return begin // self.part, (begin + self.sizes[index] - 1) // self.part


def sub_groups(indices: Iterable[int], parts: Sequence[int], size: int) -> Iterator[list[int]]:
    """The weights that stage 3 updates together: a group ends with the one that fills it. `parts` are the sizes on one rank."""
    group: list[int] = []
    filled = 0
    for index in indices:
        group.append(index)
        filled += parts[index]
        if filled >= size:
            yield group
            group, filled = [], 0
    if group:
        yield group


def on_device(layout: Layout, plan: Plan) -> tuple[int, int]:
    """Elements of a rank's partition that stage 3 updates on the device, and those of the largest sub group of these.

    With a `ratio` below 1 (Twin-Flow), the first sub groups stay on the device, whole. Source: DeepSpeed 0.19.8, runtime/zero/stage3.py,
    `subgroup_to_device`.
    """
    parts = [-(-size // plan.replicas) for size in layout.sizes]
    trained = (index for index, counts in enumerate(layout.trained) if counts)
    groups = [sum(parts[index] for index in group) for group in sub_groups(trained, parts, plan.sub_group)]
    kept = groups if plan.optimizer_device is None else groups[: int((1 - plan.offload_ratio) * len(groups))]
    return sum(kept), max(kept, default=0)


def lay_out(model: Model, plan: Plan, rank: int = 0) -> Layout:
    """The layout of a model for a data-parallel rank."""
    stored = (weight.stored(plan.model_bytes) for weight in model.weights)
    sizes = tuple(size // plan.tensor if weight.divided else size for size, weight in zip(stored, model.weights, strict=True))
    trained = tuple(weight.trained for weight in model.weights)
    ends = list(accumulate(size if counts else 0 for size, counts in zip(sizes, trained, strict=True)))
    offsets = tuple(end - (size if counts else 0) for end, size, counts in zip(ends, sizes, trained, strict=True))
    unit = ALIGNMENT * plan.replicas
    part = max(1, -(-ends[-1] // unit)) * ALIGNMENT
    viewed = frozenset(index for index, weight in enumerate(model.weights) if weight.viewed)
    inside = range(len(model.first), len(model.weights) - len(model.last))
    matrices = tuple(index for index in inside if trained[index] and len(model.weights[index].shape) > 1)
    return Layout(sizes, trained, offsets, part, rank * part, (rank + 1) * part, viewed, matrices)
