"""ZeRO stage 3: persistent memory on the device, gradients, and temporary memory of backward and step.

After DeepSpeed 0.19.8: runtime/zero/stage3.py, partition_parameters.py. What it gathers and releases is in `gathers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.memory.gathers import GatherPlan, gathered
from dslint.memory.layout import Layout, on_device, sub_groups
from dslint.memory.ledger import BUCKETS, CASTS, GATHERED, GRADIENTS, MASTER, NORM, OPTIMIZER, PARAMETERS, STEP, Ledger
from dslint.memory.muon import cached_bytes, most_at_once
from dslint.memory.operations import Operations
from dslint.memory.plan import NVME, UNFUSED, Plan

NORM_CHUNK = 250_000_000
"""Elements per chunk of the gradient norm with an offloaded optimizer."""


class Zero3:
    """A rank's engine at stage 3."""

    def __init__(
        self, ledger: Ledger, plan: Plan, layout: Layout, optimizer_bytes: float, operations: Operations, *, traced: bool = True
    ) -> None:
        """Without a trace, as in the first micro batch, nothing is fetched ahead, and each module releases its weights at once."""
        self.ledger, self.plan, self.layout = ledger, plan, layout
        self.optimizer_bytes = optimizer_bytes
        self.parts = tuple(-(-size // plan.replicas) for size in layout.sizes)
        self.gathers = plan.replicas > 1 or plan.parameter_device is not None
        """A rank by itself gathers nothing, but copies offloaded weights to the device in the same way."""
        self.persistent = self._persistent() if self.gathers else frozenset()
        self.elements = 0
        self.bucket: list[int] = []
        self.gathered = self.collectives = 0
        """Bytes gathered, and collective operations, in one micro batch."""
        self.ranks = plan.replicas if plan.secondary <= 1 else min(plan.secondary, plan.replicas)
        if self.gathers:
            order = gathered(operations.without_bytes, self._gather_plan(traced=traced))
            self.gathered, self.collectives = order.bytes, order.collectives
            self._amounts = iter(order.amounts)

    def _gather_plan(self, *, traced: bool) -> GatherPlan:
        plan, layout = self.plan, self.layout
        return GatherPlan(
            layout.sizes,
            layout.viewed,
            layout.stacked,
            self.persistent,
            self.ranks,
            plan.model_bytes,
            plan.prefetch_bucket,
            plan.max_live,
            plan.max_reuse,
            plan.quantized_weights,
            plan.secondary > 1,
            traced,
        )

    def _persistent(self) -> frozenset[int]:
        found, total = set(), 0
        for index, size in enumerate(self.layout.sizes):
            if size + total > self.plan.persistence_limit:
                continue
            if size <= self.plan.persistence:
                found.add(index)
                total += size
        return frozenset(found)

    @property
    def part(self) -> int:
        """Elements of the rank's partition of all weights."""
        return sum(self.parts)

    @property
    def trained_part(self) -> int:
        """Elements of the rank's partition of trained weights."""
        return sum(part for part, trained in zip(self.parts, self.layout.trained, strict=True) if trained)

    def persist(self) -> None:
        """Allocate persistent memory: the rank's partitions, small parameters whole, the gradient bucket."""
        plan, hold = self.plan, self.ledger.hold
        b = plan.model_bytes
        if plan.parameter_device is None:
            hold(PARAMETERS, b * self.part)
        hold(PARAMETERS, b * sum(self.layout.sizes[index] for index in self.persistent))
        updated, _ = on_device(self.layout, plan)
        hold(MASTER, plan.master_bytes * updated)
        hold(OPTIMIZER, round(self.optimizer_bytes * updated))
        if plan.optimizer_device is None:
            hold(GRADIENTS, plan.gradient_bytes * self.trained_part)
        else:
            hold(GRADIENTS, plan.master_bytes * updated)
        if plan.contiguous:
            hold(BUCKETS, plan.wire_bytes * plan.reduce_bucket)
        if self.muon:
            hold(BUCKETS, cached_bytes(plan, self.layout, self.parts))

    @property
    def made_by_steps(self) -> int:
        """The persistent bytes that are not there after initialize, beside states: Muon's buffers, less its momentum, which is."""
        if not self.muon:
            return 0
        momentum = self.plan.wire_bytes * sum(self.parts[index] for index in self.layout.matrices)
        return cached_bytes(self.plan, self.layout, self.parts) - momentum

    @property
    def muon(self) -> bool:
        """Whether the step orthogonalizes matrices on the device."""
        return self.plan.optimizer == "muon" and self.plan.optimizer_device is None

    def retain(self) -> None:
        """Nothing: gradients of earlier micro batches are already in the rank's partition."""

    def fetch(self, weights: tuple[int, ...], *, forward: bool) -> None:  # noqa: ARG002 - the walk's signature
        """Gather missing weights, then prefetch the next ones."""
        if self.gathers:
            self._go_on()

    def release(self, weights: tuple[int, ...], *, forward: bool, saved: bool = True) -> None:  # noqa: ARG002 - the walk's signature
        """Release weights that are not needed again soon."""
        if weights and self.gathers:
            self._go_on()

    def _go_on(self) -> None:
        """Allocate and free what the next call of the walk gathers and releases."""
        for amount in next(self._amounts):
            if amount > 0:
                self.ledger.hold(GATHERED, amount)
            else:
                self.ledger.drop(GATHERED, -amount)

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
        """Put gradients into the bucket; a full bucket is reduce-scattered."""
        plan, ledger, layout = self.plan, self.ledger, self.layout
        for index in layout.updated(weights)[0]:
            size = layout.sizes[index]
            if self.elements + size > plan.reduce_bucket and self.elements:
                self._reduce()
            if plan.contiguous and self.elements + size <= plan.reduce_bucket:
                ledger.drop(GRADIENTS, plan.model_bytes * size)
            self.bucket.append(index)
            self.elements += size

    def end_backward(self) -> None:
        """Reduce the remaining gradients. Gathered weights are released when the step begins."""
        self._reduce()

    def _reduce(self) -> None:
        """Reduce-scatter the bucket, and move the rank's part of it to where its gradients stay."""
        plan, ledger = self.plan, self.ledger
        if not self.bucket:
            return
        self.collectives += 1
        loose = not plan.contiguous or self.elements > plan.reduce_bucket
        cast = plan.wire_bytes * self.elements if loose and plan.wire_bytes != plan.model_bytes else 0  # the buffer has that precision
        scattered = loose or plan.reduce_scatter  # else all ranks sum the buffer itself
        copy = self._copy() if scattered else self._scaled()
        own = sum(self.parts[index] for index in self.bucket)
        result = plan.gradient_bytes * (own if scattered else self.elements) if plan.wire_bytes != plan.gradient_bytes else 0
        ledger.hold(BUCKETS, cast + copy + result)
        ledger.drop(BUCKETS, cast + (copy if result else 0))
        if plan.optimizer_device:
            self._offload(loose=loose)
        elif loose:
            ledger.drop(GRADIENTS, plan.model_bytes * self.elements)
        ledger.drop(BUCKETS, result or copy)
        self.bucket, self.elements = [], 0

    def _scaled(self) -> int:
        """Bytes of the copy that divides an all-reduced buffer by the number of ranks.

        Source: DeepSpeed 0.19.8, runtime/zero/stage3.py, `__avg_scatter_contiguous_grads`.
        """
        return self.plan.wire_bytes * self.elements if self.plan.replicas > 1 else 0

    def _copy(self) -> int:
        """Bytes of the copy that puts the parts of each rank together. A single weight that divides evenly is not copied."""
        alone = len(self.bucket) == 1 and self.layout.sizes[self.bucket[0]] % self.plan.replicas == 0
        return 0 if alone else self.plan.wire_bytes * self.plan.replicas * sum(self.parts[index] for index in self.bucket)

    def _offload(self, *, loose: bool) -> None:
        """Fetch the gradients of the bucket that are on the host, one weight at a time, and write them to the optimizer's.

        With gradient accumulation, each is freed when the next one is there. With NVMe, what is written stays until the bucket is complete.
        Source: DeepSpeed 0.19.8, runtime/zero/stage3.py, `partition_grads`.
        """
        plan, ledger = self.plan, self.ledger
        last = kept = 0
        for index in sorted(self.bucket):
            part = self.parts[index]
            fetched = plan.gradient_bytes * part
            written = plan.master_bytes * part if plan.master_bytes != plan.gradient_bytes else 0
            ledger.hold(BUCKETS, fetched)
            ledger.drop(BUCKETS, last)
            ledger.pass_by(NORM, 8 * min(NORM_CHUNK, part))
            ledger.hold(BUCKETS, written)
            stays = (written or fetched) if plan.optimizer_device == NVME else 0
            last = fetched if plan.accumulation > 1 and stays != fetched else 0
            ledger.drop(BUCKETS, fetched + written - stays - last)
            ledger.drop(GRADIENTS, plan.model_bytes * self.layout.sizes[index] if loose else 0)
            kept += stays
        ledger.drop(BUCKETS, kept + last)

    def step(self) -> None:
        """The gradient norm, then the optimizer step, one sub group at a time."""
        plan, ledger = self.plan, self.ledger
        ledger.set(GATHERED, self._secondary() if plan.secondary > 1 else 0)
        whole = plan.model_bytes * sum(self.layout.sizes[index] for index in self.persistent)
        ledger.drop(PARAMETERS, whole)  # small parameters are partitioned for the step, too, and gathered again after it
        ledger.enter(STEP)
        self._update()
        parts = plan.model_bytes * sum(self.parts[index] for index in self.persistent)
        ledger.hold(PARAMETERS, whole)
        if plan.parameter_device is not None and plan.replicas > 1:  # their parts come from the host
            ledger.pass_by(GATHERED, parts)

    def _secondary(self) -> int:
        """The bytes of hpZ's partition within a machine, of all weights."""
        return sum(self.plan.model_bytes * -(-size // self.ranks) for size in self.layout.sizes)

    def _sub_groups(self) -> Iterator[list[int]]:
        """The weights that are updated together. Muon has matrices and others apart."""
        trained = [index for index, counts in enumerate(self.layout.trained) if counts]
        matrices = self.layout.matrices if self.plan.optimizer == "muon" else ()
        for group in (matrices, [index for index in trained if index not in matrices]):
            yield from sub_groups(group, self.parts, self.plan.sub_group)

    def _update(self) -> None:
        """The step of the optimizer."""
        plan, ledger = self.plan, self.ledger
        if plan.optimizer_device == NVME:  # DeepSpeed 0.19.8 makes the fp32 gradients of a sub group on the device
            ledger.pass_by(CASTS, plan.master_bytes * min(self.trained_part, plan.sub_group))
        if plan.optimizer_device is not None:
            ledger.pass_by(CASTS, UNFUSED * on_device(self.layout, plan)[1])  # torch's AdamW updates what stays on the device
            return
        if self.muon:
            ledger.pass_by(BUCKETS, most_at_once(plan, self.layout, self.parts))
        largest = max((part for part, trained in zip(self.parts, self.layout.trained, strict=True) if trained), default=0)
        if plan.norm:
            ledger.pass_by(NORM, 8 * largest)
        cast = plan.master_bytes if plan.master_bytes != plan.gradient_bytes else 0
        for group in self._sub_groups():
            elements = sum(self.parts[index] for index in group)
            flat = plan.gradient_bytes if len(group) > 1 else 0  # the gradient of one weight is not copied
            ledger.pass_by(CASTS, (flat + cast) * elements)
            ledger.pass_by(CASTS, ((cast or flat) + plan.step_bytes) * elements)
