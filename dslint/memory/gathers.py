"""What stage 3 gathers and releases in a micro batch: at each module the weights that it needs, and some of the next ones.

After DeepSpeed 0.19.8: runtime/zero/partitioned_param_coordinator.py, partition_parameters.py. Gathered parameters are released only if
their next use is further away than `stage3_max_reuse_distance`; `stage3_max_live_parameters` only stops prefetching. None of it depends on
activations, gradients or the optimizer: `fit` tries hundreds of configs, of which few gather in another way.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache

from dslint.memory.ledger import Ledger
from dslint.memory.operations import Operations
from dslint.memory.walk import walk
from dslint.record import Record


class GatherPlan(Record):
    """What decides the gathers, beside the order of modules: `sizes` of the weights in elements, which of them the forward keeps a view of
    (`viewed`), which are stacks of experts (`stacked`), which small ones are `persistent`; the `ranks` among which a weight is gathered.
    Without a trace, as in the first micro batch, nothing is fetched ahead, and each module releases its weights at once.
    """

    sizes: tuple[int, ...]
    viewed: frozenset[int]
    stacked: frozenset[int]
    persistent: frozenset[int]
    ranks: int
    model_bytes: int
    prefetch_bucket: int
    max_live: int
    max_reuse: int
    quantized_weights: bool
    keeps_secondary: bool
    traced: bool


class Gathered(Record):
    """The bytes gathered in a micro batch, the number of gathers, and for each call of the walk what it allocates, or frees (below 0)."""

    bytes: int
    collectives: int
    amounts: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=32)
def gathered(operations: Operations, plan: GatherPlan) -> Gathered:
    """The gathers of a walk through operations, which have no bytes."""
    engine = _Gathering(operations, plan)
    walk(operations, Ledger(), engine)
    return Gathered(engine.total, engine.collectives, tuple(map(tuple, engine.amounts)))


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


class _Gathering:
    """An engine that gathers and releases, and nothing else."""

    gathers = True

    def __init__(self, operations: Operations, plan: GatherPlan) -> None:
        self.plan = plan
        self.trace = Trace(operations, plan.sizes)
        self.amounts: list[list[int]] = []
        """What each call so far allocates and frees."""
        self.bytes = [plan.model_bytes * -(-size // plan.ranks) * plan.ranks for size in plan.sizes]
        """The bytes of each weight as it is gathered: a multiple of the ranks."""
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
        self.fetched_for = [-1] * len(plan.sizes)
        self.total = self.collectives = 0

    def _hold(self, amount: int) -> None:
        if amount:
            self.amounts[-1].append(amount)

    def _drop(self, amount: int) -> None:
        if amount:
            self.amounts[-1].append(-amount)

    def fetch(self, weights: tuple[int, ...], *, forward: bool) -> None:  # noqa: ARG002 - the walk's signature
        """Gather missing weights, then prefetch the next ones."""
        self.amounts.append([])
        if weights and not self.plan.persistent.issuperset(weights):
            missing = [index for index in weights if self._is_missing(index)]
            if missing:
                self._gather(missing)
            held = 0
            for index in sorted(weights) if len(weights) > 1 else weights:
                if index not in self.flying:
                    continue
                freed = self._wait(index)
                # DeepSpeed waits in the order of a set of parameters. Python has the first one of a small set first, the others by their
                # addresses: of stacked experts behind a router the second may come first, and the copies of both are there together.
                if index in self.plan.stacked and index != min(weights):
                    held += freed
                else:
                    self._drop(freed)
            self._drop(held)
        if self.plan.traced and self.queue:
            self._prefetch(weights)
        if weights:
            self.place += 1

    def release(self, weights: tuple[int, ...], *, forward: bool, saved: bool = True) -> None:
        """Release weights that are not needed again within the reuse distance.

        DeepSpeed empties the weight, but a view of it that the forward keeps has the memory until its backward has run: so it is with
        stacked experts, which transformers transposes, and with linear layers that DeepSpeed does not replace.
        """
        if not weights:
            return
        self.amounts.append([])
        if self.views and not forward:
            for index in weights:
                self._drop(self.views.pop(index, 0))
        trace, here = self.trace, self.place
        for index in weights:
            if index not in self.available or self.fetched_for[index] > here:
                continue
            later = trace.next[here - 1].get(index) if self.plan.traced else None
            before = trace.before
            if index in trace.leaves and self.plan.traced:
                before, later = trace.before_leaf, trace.turn if here <= trace.turn else later
            if later is None or before[later] - before[here] >= self.plan.max_reuse:
                size = self.available.pop(index)
                self.live -= self.plan.sizes[index]
                if forward and saved and index in self.plan.viewed:
                    self.views[index] = size
                else:
                    self._drop(size)
                self._keep_secondary(index)

    def _keep_secondary(self, index: int) -> None:
        """With hpZ, keep the secondary partition within a machine from the first release until the step."""
        if self.plan.keeps_secondary and index not in self.secondary:
            self.secondary.add(index)
            self._hold(self.bytes[index] // self.plan.ranks)

    def _is_missing(self, index: int) -> bool:
        """Whether a weight is neither on the device nor on its way."""
        return not (index in self.available or index in self.flying or index in self.plan.persistent)

    def _gather(self, indices: list[int]) -> None:
        total = sum(self.bytes[index] for index in indices)
        self.total += total
        self.collectives += 1
        if self.plan.quantized_weights:
            self._hold(total // 2)
            self._drop(total // 2)
        self._hold(total)
        gather = _Gather(total if len(indices) > 1 else 0, set(indices))
        if len(indices) == 1:
            gather.copied = True
        for index in indices:
            self.flying[index] = gather
            self.live += self.plan.sizes[index]

    def _wait(self, index: int) -> int:
        """Copy the weights of a gather out of its buffer; returns the bytes of the buffer if this was the last of them."""
        gather = self.flying.pop(index)
        if not gather.copied:
            gather.copied = True
            for other in gather.waiting:
                self._hold(self.plan.model_bytes * self.plan.sizes[other])
        gather.waiting.discard(index)
        self.available[index] = self.plan.model_bytes * self.plan.sizes[index] if gather.buffer else self.bytes[index]
        return 0 if gather.waiting else gather.buffer

    def _prefetch(self, weights: tuple[int, ...]) -> None:
        queue, fetched_for = self.queue, self.fetched_for
        if weights:
            due = sum([fetched_for[index] < self.place for index in weights])
            for _ in range(min(due, len(queue))):
                index, place = queue.popleft()
                fetched_for[index] = place
        room = min(self.plan.max_live - self.live, self.plan.prefetch_bucket)
        wanted: list[int] = []
        amount = 0
        while amount < room and queue:
            index, place = queue.popleft()
            fetched_for[index] = max(fetched_for[index], place)
            if self._is_missing(index) and index not in wanted:
                wanted.append(index)
                amount += self.plan.sizes[index]
        if wanted:
            self._gather(wanted)

    def allocate(self, weights: tuple[int, ...]) -> None:
        """Nothing: gradients are not gathered."""

    def combine(self, weights: tuple[int, ...]) -> None:
        """Nothing."""

    def reduce(self, weights: tuple[int, ...]) -> None:
        """Nothing."""

    def end_backward(self) -> None:
        """Nothing: what is gathered is released when the step begins."""
