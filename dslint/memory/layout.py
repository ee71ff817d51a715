"""The memory layout of a model's weights under a plan: sizes on one rank, and which weights overlap its partition of the flat buffer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from math import prod

from dslint.memory.plan import Plan
from dslint.memory.shapes import Model
from dslint.record import Record

ALIGNMENT = 2
"""The flat buffer of each rank is a multiple of this many elements, so that NCCL buffers are 4-byte aligned."""


@dataclass(frozen=True)
class Layout:
    """Elements on one rank: `sizes` of all weights (after tensor parallelism), which are `trained`, and their `groups`.

    The weights of a group of parameters are in one flat buffer, at `offsets`, of which each rank has a partition; `shares` are the sizes of
    a rank's partitions by group, and `part` is their sum. `viewed` are the weights of which the forward keeps a view, `stacked` those of
    them that are stacks of experts, `matrices` the trained matrices that Muon updates, in its order, `squares` the elements of squares of
    their shorter side.
    """

    sizes: tuple[int, ...]
    trained: tuple[bool, ...]
    offsets: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    shares: tuple[int, ...]
    rank: int
    viewed: frozenset[int] = frozenset()
    stacked: frozenset[int] = frozenset()
    matrices: tuple[int, ...] = ()
    squares: dict[int, int] = field(default_factory=dict)
    _slices: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict, repr=False, compare=False)
    _updated: dict[tuple[int, ...], tuple[tuple[int, ...], int]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def part(self) -> int:
        """Elements of a rank's partitions."""
        return sum(self.shares)

    @cached_property
    def _share_of(self) -> dict[int, int]:
        return {index: share for group, share in zip(self.groups, self.shares, strict=True) for index in group}

    @cached_property
    def whole(self) -> int:
        """Elements of all weights."""
        return sum(self.sizes)

    @cached_property
    def flat(self) -> int:
        """Elements of the trained weights."""
        return sum(size for size, trained in zip(self.sizes, self.trained, strict=True) if trained)

    def owns(self, index: int) -> bool:
        """Whether a trained weight overlaps the rank's partition."""
        return self._fragments[index] > 0

    def fragment(self, index: int) -> int:
        """The number of a weight's elements in the rank's partition."""
        return self._fragments[index]

    @cached_property
    def _fragments(self) -> dict[int, int]:
        return {index: self.slice_of(index, self.rank) for group in self.groups for index in group}

    def slice_of(self, index: int, rank: int) -> int:
        """The number of a trained weight's elements in the partition of a rank."""
        begin, share = self.offsets[index], self._share_of[index]
        return max(0, min(begin + self.sizes[index], (rank + 1) * share) - max(begin, rank * share))

    def orthogonalized(self, index: int, plan: Plan | None = None) -> int:
        """The most bytes that Muon's update of a matrix, or a stack of them, allocates at a time. With a plan, its gradient has the
        precision of communication, else fp32.

        Source: DeepSpeed 0.19.8, runtime/zero/muon/original_muon.py, `muon_update` and `zeropower_via_gram_newtonschulz`: of the iteration
        on squares of the shorter side, in 16 bits, as many tensors are alive at a time; square matrices have no such squares.
        """
        size, square = self.sizes[index], self.squares[index]
        if square >= size:
            return 12 * size
        gradient = plan.wire_bytes if plan else 4
        normalized = 10 if plan and plan.fp16 and gradient == 2 else gradient + 2  # fp16 is normalized as fp32
        return max(normalized * size, 2 * size + 14 * square, 4 * size + 8 * square, 2 * gradient * size)

    def one_by_one(self) -> Iterator[tuple[int, int]]:
        """The matrices as torch's loop over parameters updates them, with the bytes of each turn: the update before it is still there."""
        before = 0
        for index in self.matrices:
            yield index, before + self.orthogonalized(index)
            before = 4 * self.sizes[index]

    def slices(self, index: int) -> tuple[tuple[int, int], ...]:
        """The ranks with a partition that a trained weight overlaps, each with the number of its elements there. The same for all ranks."""
        if index not in self._slices:
            first, last = self.parts(index)
            self._slices[index] = tuple((rank, self.slice_of(index, rank)) for rank in range(first, last + 1))
        return self._slices[index]

    def updated(self, weights: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
        """The trained ones of some weights, and their elements. The same for all ranks."""
        found = self._updated.get(weights)
        if found is None:
            trained = tuple(index for index in weights if self.trained[index])
            found = self._updated[weights] = trained, sum(self.sizes[index] for index in trained)
        return found

    def owned(self) -> list[int]:
        """The trained weights that overlap the rank's partition."""
        return [index for index, trained in enumerate(self.trained) if trained and self.owns(index)]

    def parts(self, index: int) -> tuple[int, int]:
        """The first and the last rank with a partition that a weight overlaps."""
        begin, share = self.offsets[index], self._share_of[index]
        return begin // share, (begin + self.sizes[index] - 1) // share


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


def share_on_host(layout: Layout, plan: Plan) -> float:
    """The share of an offloaded optimizer that runs on the host: with a `ratio` below 1, the first sub groups stay on the device, whole."""
    if plan.offload_ratio == 1:
        return 1.0
    trained = sum(-(-size // plan.replicas) for size, counts in zip(layout.sizes, layout.trained, strict=True) if counts)
    return 1 - on_device(layout, plan)[0] / max(1, trained)


class LayoutPlan(Record):
    """What of a plan decides the layout: plans that differ in offload, buckets or workload have the same. `stage` is that of Muon's groups
    and of its order; without Muon it does not matter.
    """

    replicas: int
    model_bytes: int
    tensor: int
    lists_experts: bool
    keeps_linear_weights: bool
    muon: bool
    stage: int
    zero_init: bool


def lay_out(model: Model, plan: Plan) -> Layout:
    """The layout of a model for the first data-parallel rank; that of the others differs by its `rank`."""
    muon = plan.optimizer == "muon"
    after = (muon, plan.stage, plan.workload.zero_init) if muon else (False, 0, False)
    return _lay_out(model, LayoutPlan(plan.replicas, plan.model_bytes, plan.tensor, plan.lists_experts, plan.keeps_linear_weights, *after))


@lru_cache(maxsize=32)
def _lay_out(model: Model, plan: LayoutPlan) -> Layout:
    stored = (weight.stored(plan.model_bytes) for weight in model.weights)
    sizes = tuple(size // plan.tensor if weight.divided else size for size, weight in zip(stored, model.weights, strict=True))
    trained = tuple(weight.trained for weight in model.weights)
    stacked = frozenset(index for index, weight in enumerate(model.weights) if weight.viewed and not plan.lists_experts)
    behind = len(model.first)  # the weights before it are embeddings
    kept = (index for index, weight in enumerate(model.weights) if index >= behind and weight.is_linear)
    linear = frozenset(kept if plan.keeps_linear_weights else ())
    shapes = {index: weight.shape for index, weight in enumerate(model.weights) if weight.trained and weight.is_matrix}
    matrices = tuple(shapes)
    if plan.muon and not (plan.stage == 3 and plan.zero_init):  # which makes weights empty before the optimizer is
        matrices = tuple(sorted(shapes, key=shapes.__getitem__, reverse=True))
    groups = tuple(_groups([index for index, counts in enumerate(trained) if counts], matrices, plan))
    offsets = [0] * len(sizes)
    for group in groups:
        for index, end in zip(group, accumulate(sizes[index] for index in group), strict=True):
            offsets[index] = end - sizes[index]
    unit = ALIGNMENT * plan.replicas
    shares = tuple(max(1, -(-sum(sizes[index] for index in group) // unit)) * ALIGNMENT for group in groups)
    squares = {index: prod(shape[:-2]) * min(shape[-2:]) ** 2 for index, shape in shapes.items()}
    return Layout(sizes, trained, tuple(offsets), groups, shares, 0, stacked | linear, stacked, matrices, squares)


def _groups(trained: list[int], matrices: tuple[int, ...], plan: LayoutPlan) -> Iterator[tuple[int, ...]]:
    """The groups of parameters: Muon has matrices and the others apart. Those of stage 3 do not matter here: it partitions each weight.

    Source: DeepSpeed 0.19.8, runtime/engine.py, `_muon_param_groups`; runtime/zero/muon/original_muon.py, `MuonWithAuxAdam`.
    """
    if not plan.muon or plan.stage not in (1, 2):
        yield tuple(trained)
        return
    others = tuple(index for index in trained if index not in matrices)
    yield from (group for group in (matrices, others) if group)
