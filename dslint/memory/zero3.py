"""ZeRO stage 3: persistent memory on the device, gathering and releasing of parameters, and temporary memory of backward and step.

After DeepSpeed 0.19.8: runtime/zero/stage3.py, partitioned_param_coordinator.py, partition_parameters.py. Gathered parameters are released
only if their next use is further away than `stage3_max_reuse_distance`; `stage3_max_live_parameters` only stops prefetching.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from dslint.memory.layout import Layout, on_device, sub_groups
from dslint.memory.ledger import BUCKETS, CASTS, GATHERED, GRADIENTS, MASTER, NORM, OPTIMIZER, PARAMETERS, STEP, Ledger
from dslint.memory.muon import cached_bytes, most_at_once
from dslint.memory.operations import Operations
from dslint.memory.plan import NVME, UNFUSED, Plan

NORM_CHUNK = 250_000_000
"""Elements per chunk of the gradient norm with an offloaded optimizer."""


@dataclass
class _Gather:
    """Parameters that are gathered together when the first of them is needed: into one buffer, then into a tensor each."""

    buffer: int
    waiting: set[int] = field(default_factory=set)
    copied: bool = False


class Trace:
    """The uses of weights in the order of a whole step, as DeepSpeed records them."""

    def __init__(self, operations: Operations, sizes: tuple[int, ...]) -> None:
        self.uses: list[tuple[int, ...]] = []
        for operation in (*operations.before, *(o for block in operations.blocks for o in block), *operations.after):
            self._add(operation.weights)
        self.turn = len(self.uses)
        """The use with which the backward begins: with the whole model, so that each leaf module counts as used there."""
        for operation in reversed(operations.after):
            self._add(operation.weights)
        for block, checkpointed in zip(reversed(operations.blocks), reversed(operations.checkpointed), strict=True):
            again = block if checkpointed else ()
            ahead = block[-1:] if checkpointed else ()  # its backward begins before the block is recomputed
            for operation in (*ahead, *again, *reversed(block[:-1] if checkpointed else block)):
                self._add(operation.weights if operation.backward or operation in again else ())
        for operation in reversed(operations.before):
            self._add(operation.weights if operation.backward else ())
        inside = {index for block in operations.blocks for one in block for index in one.weights}
        self.leaves = frozenset(index for block in operations.blocks for one in block if one.leaf for index in one.weights)
        self.before, self.before_leaf = [0], [0]
        """The number of elements that DeepSpeed counts before each use. Without recursion into modules, for which it has none of a leaf
        module; for a leaf module with it, and a layer then counts all its weights before its modules do.

        Source: DeepSpeed 0.19.8, runtime/zero/partitioned_param_coordinator.py, `__params_to_release`.
        """
        for use in self.uses:
            size = sum(sizes[index] for index in use)
            self.before.append(self.before[-1] + (0 if self.leaves.issuperset(use) else size))
            self.before_leaf.append(self.before_leaf[-1] + (2 if inside.issuperset(use) else 1) * size)
        self.next: list[dict[int, int]] = [{} for _ in self.uses]
        """For each use, the next use of each of its weights."""
        later: dict[int, int] = {}
        for place in range(len(self.uses) - 1, -1, -1):
            self.next[place] = {index: later[index] for index in self.uses[place] if index in later}
            later.update(dict.fromkeys(self.uses[place], place))

    def _add(self, weights: tuple[int, ...]) -> None:
        if weights:
            self.uses.append(weights)


@lru_cache(maxsize=8)
def _trace(operations: Operations, sizes: tuple[int, ...]) -> Trace:
    """The same for plans that differ in buckets, offload or optimizer."""
    return Trace(operations, sizes)


class Zero3:
    """A rank's engine at stage 3."""

    def __init__(
        self, ledger: Ledger, plan: Plan, layout: Layout, optimizer_bytes: float, operations: Operations, *, traced: bool = True
    ) -> None:
        """Without a trace, as in the first micro batch, nothing is fetched ahead, and each module releases its weights at once."""
        self.traced = traced
        self.ledger, self.plan, self.layout = ledger, plan, layout
        self.optimizer_bytes = optimizer_bytes
        self.trace = _trace(operations, layout.sizes)
        self.ranks = plan.replicas if plan.secondary <= 1 else min(plan.secondary, plan.replicas)
        self.parts = tuple(-(-size // plan.replicas) for size in layout.sizes)
        self.gathers = plan.replicas > 1 or plan.parameter_device is not None
        """A rank by itself gathers nothing, but copies offloaded weights to the device in the same way."""
        self.persistent = self._persistent() if self.gathers else frozenset()
        self.place = 0
        self.available: dict[int, int] = {}
        """Gathered weights that may be released, with their bytes."""
        self.views: dict[int, int] = {}
        """Released weights that the forward keeps a view of, with their bytes."""
        self.flying: dict[int, _Gather] = {}
        self.live = 0
        """Elements of the weights that are available or on their way."""
        self.secondary: set[int] = set()
        self.queue = deque((index, place) for place, use in enumerate(self.trace.uses) for index in use)
        self.fetched_for = dict.fromkeys(range(len(layout.sizes)), -1)
        self.elements = 0
        self.bucket: list[int] = []
        self.gathered = self.collectives = 0
        """Bytes gathered, and collective operations, in one micro batch."""

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
        if not self.gathers:
            return
        if weights:
            missing = [index for index in weights if not self._there(index) and index not in self.flying]
            if missing:
                self._gather(missing)
            held = 0
            for index in sorted(weights):
                freed = self._wait(index) if index in self.flying else 0
                # DeepSpeed waits in the order of a set of parameters. Python has the first one of a small set first, the others by their
                # addresses: of stacked experts behind a router the second may come first, and the copies of both are there together.
                late = index in self.layout.stacked and index != min(weights)
                held += freed * late
                self.ledger.drop(GATHERED, 0 if late else freed)
            self.ledger.drop(GATHERED, held)
        if self.traced and (weights or self.queue):
            self._prefetch(weights)
        self.place += bool(weights)

    def release(self, weights: tuple[int, ...], *, forward: bool, saved: bool = True) -> None:
        """Release weights that are not needed again within the reuse distance.

        DeepSpeed empties the weight, but a view of it that the forward keeps has the memory until its backward has run: so it is with
        stacked experts, which transformers transposes, and with linear layers that DeepSpeed does not replace.
        """
        if not weights or not self.gathers:
            return
        for index in weights:
            if not forward:
                self.ledger.drop(GATHERED, self.views.pop(index, 0))
        trace, here = self.trace, self.place
        for index in weights:
            if index not in self.available or self.fetched_for[index] > here:
                continue
            later = trace.next[here - 1].get(index) if self.traced else None
            before = trace.before
            if index in trace.leaves and self.traced:
                before, later = trace.before_leaf, trace.turn if here <= trace.turn else later
            if later is None or before[later] - before[here] >= self.plan.max_reuse:
                size = self.available.pop(index)
                self.live -= self.layout.sizes[index]
                if forward and saved and index in self.layout.viewed:
                    self.views[index] = size
                else:
                    self.ledger.drop(GATHERED, size)
                self._keep_secondary(index)

    def _keep_secondary(self, index: int) -> None:
        """With hpZ, keep the secondary partition within a machine from the first release until the step."""
        if self.plan.secondary > 1 and index not in self.secondary:
            self.secondary.add(index)
            self.ledger.hold(GATHERED, self._bytes(index) // self.ranks)

    def _there(self, index: int) -> bool:
        return index in self.persistent or index in self.available

    def _bytes(self, index: int) -> int:
        return self.plan.model_bytes * -(-self.layout.sizes[index] // self.ranks) * self.ranks

    def _gather(self, indices: list[int]) -> None:
        total = sum(self._bytes(index) for index in indices)
        self.gathered += total
        self.collectives += 1
        if self.plan.quantized_weights:
            self.ledger.pass_by(GATHERED, total // 2)
        self.ledger.hold(GATHERED, total)
        gather = _Gather(total if len(indices) > 1 else 0, set(indices))
        if len(indices) == 1:
            gather.copied = True
        for index in indices:
            self.flying[index] = gather
            self.live += self.layout.sizes[index]

    def _wait(self, index: int) -> int:
        """Copy the weights of a gather out of its buffer; returns the bytes of the buffer if this was the last of them."""
        gather = self.flying.pop(index)
        if not gather.copied:
            gather.copied = True
            for other in gather.waiting:
                self.ledger.hold(GATHERED, self.plan.model_bytes * self.layout.sizes[other])
        gather.waiting.discard(index)
        self.available[index] = self.plan.model_bytes * self.layout.sizes[index] if gather.buffer else self._bytes(index)
        return 0 if gather.waiting else gather.buffer

    def _prefetch(self, weights: tuple[int, ...]) -> None:
        due = sum(1 for index in weights if self.fetched_for[index] < self.place) if weights else 0
        for _ in range(min(due, len(self.queue))):
            index, place = self.queue.popleft()
            self.fetched_for[index] = place
        room = min(self.plan.max_live - self.live, self.plan.prefetch_bucket)
        if room <= 0:
            return
        wanted: list[int] = []
        amount = 0
        while self.queue and amount < room:
            index, place = self.queue.popleft()
            self.fetched_for[index] = max(self.fetched_for[index], place)
            if not self._there(index) and index not in self.flying and index not in wanted:
                wanted.append(index)
                amount += self.layout.sizes[index]
        if wanted:
            self._gather(wanted)

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
        ledger.set(GATHERED, sum(map(self._bytes, range(len(self.parts)))) // self.ranks if plan.secondary > 1 else 0)
        whole = plan.model_bytes * sum(self.layout.sizes[index] for index in self.persistent)
        ledger.drop(PARAMETERS, whole)  # small parameters are partitioned for the step, too, and gathered again after it
        ledger.enter(STEP)
        self._update()
        parts = plan.model_bytes * sum(self.parts[index] for index in self.persistent)
        ledger.hold(PARAMETERS, whole)
        if plan.parameter_device is not None and plan.replicas > 1:  # their parts come from the host
            ledger.pass_by(GATHERED, parts)

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
