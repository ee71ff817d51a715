"""ZeRO stages 0, 1 and 2: persistent memory on the device, and temporary memory of backward and step.

After DeepSpeed 0.19.8: runtime/zero/stage_1_and_2.py, runtime/fp16/fused_optimizer.py, runtime/bf16_optimizer.py, runtime/engine.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dslint.memory.layout import Layout
from dslint.memory.ledger import BUCKETS, CASTS, GRADIENTS, MASTER, NORM, OPTIMIZER, PARAMETERS, STEP, Ledger, Moment
from dslint.memory.plan import Plan

ENGINE_BUCKET = 500_000_000
"""Elements that the engine reduces at a time without ZeRO."""


class _Slices(NamedTuple):
    """Slices of gradients that are reduced together: elements, how many slices, and the most bytes with which one is `added`."""

    elements: int
    slices: int
    added: int


class Zero12:
    """A rank's engine at stage 0, 1 or 2."""

    def __init__(self, ledger: Ledger, plan: Plan, layout: Layout, optimizer_bytes: float) -> None:
        self.ledger, self.plan, self.layout = ledger, plan, layout
        self.gathers = False
        self.compact = plan.compact
        self.optimizer_bytes = optimizer_bytes
        self.device = plan.optimizer_device is None
        self.in_hooks = plan.stage == 2 or (plan.stage == 1 and plan.overlap)
        self.bucket: list[int] = []
        self.elements = 0
        self.late: list[int] = []
        self.ready_for_gradients = False
        self.partition = self.flat_partition = 0
        """Bytes of gradients in the rank's partition, once they exist: of whole weights, and fp32 ones of their elements in it."""
        self.each = plan.gradient_bytes if plan.keeps_accumulators else plan.model_bytes
        """Bytes per element of a gradient that is reduced."""
        self.foreign = 0
        """Bytes of fp32 gradients in other ranks' partitions: they stay until the step is over."""
        self.current = 0
        self.viewed: set[int] = set()
        """The bucket that is being filled, and the buckets in which such gradients are."""
        self.gathered = self.collectives = 0
        """Bytes gathered, and collective operations, in one backward."""
        self.between = Moment(0, {})
        """The memory between micro batches, at the call of `engine.step` that only counts them."""
        self.made_by_steps = 0
        self.persistent: frozenset[int] = frozenset()
        """Weights that the first step gathers for good: none, all of them are on the device."""

    def persist(self) -> None:
        """Allocate persistent memory: parameters, master weights, optimizer states."""
        plan, layout, hold = self.plan, self.layout, self.ledger.hold
        hold(PARAMETERS, plan.model_bytes * layout.whole)
        if plan.stage == 0:
            hold(MASTER, plan.master_bytes * layout.flat if plan.half else 0)
            hold(OPTIMIZER, round(self.optimizer_bytes * layout.flat))
        elif self.device:
            hold(MASTER, plan.master_bytes * layout.part)
            hold(OPTIMIZER, round(self.optimizer_bytes * layout.part))
        else:
            hold(BUCKETS, plan.model_bytes * max(self._trained(), default=0))
        if not plan.zenflow_on_host:
            hold(OPTIMIZER, round(2 * plan.model_bytes * self._selected()))
        if plan.keeps_full_gradients:
            hold(GRADIENTS, plan.gradient_bytes * layout.flat)

    def retain(self) -> None:
        """Allocate the gradients of the micro batches before the last one."""
        plan = self.plan
        if plan.accumulation < 2:
            return
        if plan.keeps_accumulators:
            self.ledger.hold(GRADIENTS, self.each * self.layout.flat)
            self._set_up()
        elif plan.keeps_full_gradients or (plan.stage < 2 and not plan.compact):
            self.ledger.hold(GRADIENTS, plan.model_bytes * self.layout.flat)
            if plan.stage == 1 and not plan.keeps_full_gradients:
                self._set_up()
        elif plan.compact:
            self.flat_partition = self._flat_bytes()
            self.ledger.hold(GRADIENTS, self.flat_partition + (self._owned_bytes() if self.orthogonalizes else 0))
        elif self.device:
            self.ledger.hold(GRADIENTS, self._owned_bytes())
        self.between = Moment(self.ledger.total, self.ledger.held.copy())

    def fetch(self, weights: tuple[int, ...], *, forward: bool) -> None:
        """Nothing: all weights are on the device."""

    def release(self, weights: tuple[int, ...], *, forward: bool, saved: bool = True) -> None:
        """Nothing: the weights stay."""

    def allocate(self, weights: tuple[int, ...]) -> None:
        """New gradients."""
        _, elements = self.layout.updated(weights)
        self.ledger.hold(GRADIENTS, self.plan.model_bytes * elements)

    def combine(self, weights: tuple[int, ...]) -> None:
        """Add two gradients of the same weight; the sum is a third tensor at first."""
        _, elements = self.layout.updated(weights)
        size = self.plan.model_bytes * elements
        self.ledger.hold(GRADIENTS, size)
        self.ledger.drop(GRADIENTS, 2 * size)

    def reduce(self, weights: tuple[int, ...]) -> None:
        """Add gradients to those of earlier micro batches, or put them into the bucket."""
        plan, ledger = self.plan, self.ledger
        trained, elements = self.layout.updated(weights)
        if plan.accumulation > 1 and (plan.keeps_full_gradients or (plan.stage < 2 and not self.compact)):
            ledger.drop(GRADIENTS, plan.model_bytes * elements)
        if plan.keeps_full_gradients or plan.stage == 0:
            return
        if trained and not self.ready_for_gradients:
            self._set_up()
        if plan.keeps_accumulators:
            self._accumulate(trained)
        if self.in_hooks:
            for index in reversed(trained):
                self._into_bucket(index)

    def _accumulate(self, trained: tuple[int, ...]) -> None:
        """Cast new gradients to fp32; the cast ones are kept, or added to those of earlier micro batches."""
        for index in trained:
            size = self.layout.sizes[index]
            self.ledger.hold(GRADIENTS, self.each * size)
            self.ledger.drop(GRADIENTS, (self.plan.model_bytes + (self.each if self.plan.accumulation > 1 else 0)) * size)

    def end_backward(self) -> None:
        """Reduce the remaining gradients, then free the buckets."""
        plan, ledger, layout = self.plan, self.ledger, self.layout
        if plan.stage == 0 or plan.keeps_full_gradients:
            self.collectives += -(-layout.flat // ENGINE_BUCKET)
            ledger.pass_by(BUCKETS, plan.model_bytes * min(layout.flat, ENGINE_BUCKET))
            return
        if not self.in_hooks:
            for group in layout.groups:
                for index in group:
                    self._into_bucket(index)
        self._reduce()
        for index in self.late:
            ledger.drop(GRADIENTS, plan.model_bytes * layout.sizes[index])
        self.late = []
        self.foreign += len(self.viewed) * self.each * plan.reduce_bucket
        kept = self.partition or (self._owned_bytes() if self.device and (self.orthogonalizes or not plan.compact) else 0)
        ledger.set(GRADIENTS, self.foreign + self.flat_partition + kept)
        if self.orthogonalizes:
            for index in self._own_matrices():
                ledger.pass_by(CASTS, layout.orthogonalized(index, plan))
                ledger.hold(GRADIENTS, plan.model_bytes * layout.sizes[index])
            if plan.compact:
                ledger.drop(GRADIENTS, kept)
            elif not plan.contiguous:  # the gradients of matrices are freed: they share no buffer
                ledger.drop(GRADIENTS, self._updates())
        # The buckets are released when the gradients of the step, and with them Muon's updates, have been made.
        ledger.set(BUCKETS, 0 if self.device else plan.model_bytes * max(self._trained(), default=0))

    def step(self) -> None:
        """The gradient norm and the optimizer step."""
        plan, ledger, layout = self.plan, self.ledger, self.layout
        ledger.enter(STEP)
        if plan.stage == 0:
            self._step_without_zero()
            return
        ledger.count(self.between)
        if not self.device:
            ledger.set(GRADIENTS, 0)
            states = 2 * plan.model_bytes if plan.zenflow_on_host else 0
            ledger.pass_by(CASTS, round((states + 4 * plan.model_bytes) * self._selected()))
            return
        largest = max((layout.fragment(index) for index in layout.owned()), default=0)
        if plan.keeps_full_gradients:
            ledger.pass_by(CASTS, self._optimizer_work(layout.part))
            ledger.pass_by(CASTS, self._update_of_shards() if plan.optimizer == "muon" else 0)
            return
        if plan.norm:
            ledger.pass_by(NORM, 8 * largest)
        for number, share in enumerate(layout.shares):
            compact = plan.compact and number >= self._muon_groups
            kept = plan.gradient_bytes if compact else plan.model_bytes
            flat = 0 if compact else kept * share
            ledger.hold(CASTS, flat + (plan.master_bytes * share if plan.master_bytes != kept else 0))
            if number == len(layout.shares) - 1:
                ledger.set(GRADIENTS, self.foreign)  # the others are views of one buffer
            elif self.orthogonalizes:
                ledger.drop(GRADIENTS, self._updates())
            ledger.set(CASTS, plan.master_bytes * share)
            ledger.pass_by(CASTS, self._optimizer_work(share))
            ledger.set(CASTS, 0)

    def _step_without_zero(self) -> None:
        plan, ledger, layout = self.plan, self.ledger, self.layout
        if plan.half and not plan.is_fused:
            ledger.hold(CASTS, plan.master_bytes * layout.flat)  # a cast of every gradient; those of the model stay until the step is over
            ledger.pass_by(CASTS, self._optimizer_work(layout.flat))
        elif not plan.half:
            ledger.pass_by(CASTS, self._optimizer_work(layout.flat))
        else:
            ledger.hold(CASTS, 2 * plan.master_bytes * layout.flat)
            ledger.set(GRADIENTS, 0)
            ledger.set(CASTS, plan.master_bytes * layout.flat)
            ledger.pass_by(CASTS, self._optimizer_work(layout.flat))
        ledger.set(CASTS, 0)
        ledger.set(GRADIENTS, 0)

    def _selected(self) -> float:
        """Elements whose gradients ZenFlow selects: every rank has those of the whole model."""
        return self.plan.zenflow * self.layout.flat

    def _optimizer_work(self, elements: int) -> int:
        """Temporary memory of the optimizer. Without ZeRO, Muon orthogonalizes one matrix after the other."""
        if self.plan.optimizer == "muon" and self.plan.stage == 0:
            return max((size for _, size in self.layout.one_by_one()), default=0)
        return self.plan.step_bytes * elements

    def _update_of_shards(self) -> int:
        """What Muon's step allocates in BF16_Optimizer: pieces of momentum that ranks exchange for matrices with several owners, and for
        one matrix at a time its momentum, a copy of its gradient and what orthogonalizing takes, beside the update of the one before.

        Source: DeepSpeed 0.19.8, runtime/bf16_optimizer.py, `_prepare_muon_updates`.
        """
        layout = self.layout
        exchanged = most = before = 0
        for index in self._own_matrices():
            size, fragment = layout.sizes[index], layout.fragment(index)
            first, last = layout.parts(index)
            exchanged += 4 * (size - fragment + fragment * (last - first))
            most = max(most, before + 4 * size * (2 if last > first else 1) + layout.orthogonalized(index))
            before = 4 * size
        return exchanged + most

    @property
    def orthogonalizes(self) -> bool:
        """Whether the backward ends with Muon's updates on the device: of each matrix that overlaps the rank's partition, whole."""
        return self.plan.optimizer == "muon" and self.plan.stage > 0 and self.device and bool(self._own_matrices())

    def _own_matrices(self) -> list[int]:
        return [index for index in self.layout.matrices if self.layout.owns(index)]

    def _updates(self) -> int:
        return self.plan.model_bytes * sum(self.layout.sizes[index] for index in self._own_matrices())

    def _trained_indices(self) -> list[int]:
        return [index for index, trained in enumerate(self.layout.trained) if trained]

    def _trained(self) -> list[int]:
        return [self.layout.sizes[index] for index in self._trained_indices()]

    @property
    def _muon_groups(self) -> int:
        """The number of groups of matrices, which come first."""
        return int(self.plan.optimizer == "muon" and len(self.layout.shares) > 0 and bool(self.layout.matrices))

    def _is_flat(self, index: int) -> bool:
        """Whether the gradient of a weight is added to the rank's flat fp32 partition."""
        return self.compact and not (self._muon_groups and index in self.layout.matrices)

    def _flat_bytes(self) -> int:
        return 4 * sum(self.layout.shares[self._muon_groups :])

    def _owned_bytes(self) -> int:
        return self.plan.model_bytes * sum(self.layout.sizes[index] for index in self.layout.owned())

    def _set_up(self) -> None:
        """The buffers into which gradients are copied contiguously, and those of ZenFlow: the selected columns, once more joined."""
        self.ready_for_gradients = True
        self.ledger.hold(GRADIENTS, round(2 * self.plan.model_bytes * self._selected()))
        if self.plan.contiguous:
            self.ledger.hold(BUCKETS, (2 if self.plan.overlap else 1) * self.each * self.plan.reduce_bucket)

    def _into_bucket(self, index: int) -> None:
        size = self.layout.sizes[index]
        if self.elements + size > self.plan.reduce_bucket:
            self._reduce()
            self.current = 1 - self.current if self.plan.overlap else 0
        if self.plan.contiguous and size > self.plan.reduce_bucket and not self.device:
            self.ledger.pass_by(GRADIENTS, self.each * size)  # cloned before the copy to the host
        if self.plan.contiguous and size <= self.plan.reduce_bucket:
            self.ledger.drop(GRADIENTS, self.each * size)
        self.elements += size
        self.bucket.append(index)

    def _reduce(self) -> None:
        """All-reduce the bucket: its slices are flattened into a copy, then each gradient is copied to its destination."""
        plan, ledger, layout = self.plan, self.ledger, self.layout
        if not self.bucket:
            return
        self.collectives += 1
        mine = [index for index in self.bucket if self._is_flat(index) and layout.owns(index)]
        groups = (
            list(self._together())
            if plan.contiguous
            else [_Slices(self.elements, len(self.bucket), max(map(self._added, mine), default=0))]
        )
        if not plan.contiguous:  # the partition is made after the reduction
            ledger.pass_by(BUCKETS, self._copies(*groups[0][:2]))
        if mine and not self.flat_partition:
            self.flat_partition = self._flat_bytes()
            ledger.hold(GRADIENTS, self.flat_partition)
        cast = plan.wire_bytes if plan.wire_bytes != self.each else 0
        for elements, slices, added in groups:
            if plan.contiguous:
                ledger.pass_by(BUCKETS, self._copies(elements, slices))
            ledger.pass_by(BUCKETS, (cast * elements or self._copies(elements, slices)) + added)
        late, self.late = self.late, []
        for index in late:
            ledger.drop(GRADIENTS, plan.model_bytes * layout.sizes[index])
        for index in self.bucket:
            self._place_gradient(index)
        self.bucket, self.elements = [], 0

    def _place_gradient(self, index: int) -> None:
        plan, ledger, size = self.plan, self.ledger, self.layout.sizes[index]
        own = self.each * size if not plan.contiguous or size > plan.reduce_bucket else 0
        mine = self.layout.owns(index)
        if plan.keeps_accumulators and not (mine and plan.contiguous):
            self.foreign += own
            self.viewed.update(() if own else (self.current,))
        elif mine and self._is_flat(index):
            ledger.pass_by(NORM, 0 if self.device else 8 * self.layout.fragment(index))
            ledger.drop(GRADIENTS, own)
        elif mine and not self.device:
            fragment = self.layout.fragment(index)
            ledger.pass_by(NORM, 8 * fragment)
            ledger.pass_by(CASTS, plan.master_bytes * fragment if plan.master_bytes != plan.model_bytes else 0)
            ledger.drop(GRADIENTS, own)
        elif mine and plan.contiguous:
            if not self.partition:
                self.partition = self._owned_bytes()
                ledger.hold(GRADIENTS, self.partition)
            ledger.drop(GRADIENTS, own)
        elif plan.stage == 2 and not mine:
            if plan.overlap and not plan.contiguous:
                self.late.append(index)
            else:
                ledger.drop(GRADIENTS, own)

    def _copies(self, elements: int, slices: int) -> int:
        """Bytes of the copies of slices that are reduced together: a flat one, unless there is only one slice, and a cast one."""
        return elements * ((self.each if slices > 1 else 0) + (self.plan.wire_bytes if self.plan.wire_bytes != self.each else 0))

    def _added(self, index: int) -> int:
        """Bytes of the fp32 copy with which what was reduced is added to the rank's partition."""
        return 4 * self.layout.fragment(index) if self.plan.wire_bytes != 4 else 0

    def _together(self) -> Iterator[_Slices]:
        """The slices of a bucket that are reduced together."""
        plan, layout = self.plan, self.layout
        before = -1
        slices: list[_Slices] = []
        for index in self.bucket:
            for part, amount in layout.slices(index):
                if part == before and not self.compact:
                    slices[-1] = slices[-1]._replace(elements=slices[-1].elements + amount)
                else:
                    slices.append(_Slices(amount, 1, self._added(index) if part == layout.rank and self._is_flat(index) else 0))
                before = part
        together = _Slices(0, 0, 0)
        for one in slices:
            together = _Slices(together.elements + one.elements, together.slices + 1, max(together.added, one.added))
            if together.elements > plan.reduce_bucket:
                yield together
                together = _Slices(0, 0, 0)
        if together.elements:
            yield together
