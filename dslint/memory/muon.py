"""Muon at stage 3: the matrices that a step orthogonalizes together, and the buffers for them.

After DeepSpeed 0.19.8, runtime/zero/stage3.py: `_apply_muon_to_accumulated_grads`, `_muon_update_sub_group`,
`_partitioned_buffers_all_gather`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from dslint.memory.layout import Layout, sub_groups
from dslint.memory.plan import Plan

MOST_CACHED = 256 * 2**20
"""Bytes of buffers that are kept for the next step; the oldest go first."""


def chunks(plan: Plan, layout: Layout, parts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The matrices that are gathered together: of one sub group, as many as fit into the reduce bucket."""
    for group in sub_groups(layout.matrices, parts, plan.sub_group):
        taken: list[int] = []
        elements = 0
        for index in group:
            if taken and elements + layout.sizes[index] > plan.reduce_bucket:
                yield tuple(taken)
                taken, elements = [], 0
            taken.append(index)
            elements += layout.sizes[index]
        yield tuple(taken)


def cached_bytes(plan: Plan, layout: Layout, parts: tuple[int, ...]) -> int:
    """The bytes of the buffers that a step leaves for the next one: a rank's parts of a chunk, and those of all ranks."""
    if plan.replicas == 1:
        return 0
    kept: OrderedDict[int, int] = OrderedDict()
    for chunk in chunks(plan, layout, parts):
        local = sum(parts[index] for index in chunk)
        size = plan.wire_bytes * (plan.replicas + 1) * local
        if size > MOST_CACHED:
            continue
        kept.pop(local, None)
        while kept and sum(kept.values()) + size > MOST_CACHED:
            kept.popitem(last=False)
        kept[local] = size
    return sum(kept.values())


def most_at_once(plan: Plan, layout: Layout, parts: tuple[int, ...]) -> int:
    """The most bytes that a chunk needs beside the kept buffers: gradients and momentum of all its matrices, what a round needs, and the
    gradients of the chunk before: the last variable of the loop over them is still a view of their buffer.
    """
    ranks, b = plan.replicas, plan.wire_bytes
    most = before = 0
    for chunk in chunks(plan, layout, parts):
        local = sum(parts[index] for index in chunk)
        gathered = 2 * ranks * local if ranks > 1 else 0
        is_cached = ranks == 1 or b * (ranks + 1) * local <= MOST_CACHED
        rounds = _most_of_a_round(plan, layout, chunk)
        most = max(most, before + b * (gathered + local) + max(rounds, 0 if is_cached else b * ranks * local))
        before = b * gathered // 2
    return most


def _most_of_a_round(plan: Plan, layout: Layout, chunk: tuple[int, ...]) -> int:
    """Each rank orthogonalizes a matrix of a round; unless all have one size, they exchange copies as large as the largest one.

    The update and the copies of the round before are freed only when those of the next one have been made.
    """
    b, ranks = plan.wire_bytes, plan.replicas
    most = before = updated = 0
    for start in range(0, len(chunk), ranks):
        own = chunk[start : start + ranks]
        sizes = [layout.sizes[index] for index in own]
        largest = 0 if len(sizes) == ranks and len(set(sizes)) == 1 else max(sizes)
        working = layout.orthogonalized(own[0], plan) + b * (updated + 2 * (ranks + 1) * before)
        most = max(most, working, b * (sizes[0] + 2 * (ranks + 1) * largest + ranks * before))
        before, updated = largest or before, sizes[0]
    return most
