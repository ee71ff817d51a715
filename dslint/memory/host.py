"""Host memory and NVMe space that the ranks of a machine need."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.facts import Release
from dslint.facts.gpus import GIB
from dslint.memory.layout import Layout, on_device
from dslint.memory.operations import Operations
from dslint.memory.plan import HOST, NVME, Plan
from dslint.memory.surroundings import Bounds
from dslint.record import Record

PROCESS = (1.5 * GIB, 2.4 * GIB, 5.0 * GIB)
"""Host memory of a rank with Python, torch, CUDA libraries and data loading: low, expected, high. In job logs with 2 to 16 ranks on a
machine, each further rank adds 2.4 to 2.5 GiB; at the end of Megatron's jobs up to 4.7 GiB."""

OTHERS = (1 * GIB, 3 * GIB, 8 * GIB)
"""Host memory that the operating system and other programs use on a small machine: low, expected, high."""

OTHERS_SHARE = (0.0, 0.015, 0.04)
"""The same on a large machine, as shares of its memory. In logs, machines of 1 and 1.5 TB use 2 to 40 GiB before the model is built."""

USUAL_MACHINE = 512 * GIB
"""The memory of a machine, where it is unknown."""

HOST_ERROR = 0.15
"""How much the high figure of tensors exceeds the expected one, as a share. Of three published figures of offloaded trainings one is 1.2
times the expected sum, two are 1.0 and 1.1 times."""

SHARD = 5 * GIB
"""The usual size of a file of a checkpoint. transformers reads one after the other when a model is partitioned while it is built; older
releases do so in every rank."""

PINNED_WEIGHTS = Release(0, 14, 1)
"""The first release that page-locks the offloaded master weights of stages 1 and 2."""

UPDATED_ON_HOST = Release(0, 17, 0)
"""The first release that keeps the updated weights of stages 1 and 2 in a buffer on the host, in 16 bits."""


class HostBytes(Record):
    """Bytes of one rank: by part between steps, while loading the model, and on NVMe. `pinned` are the sizes of page-locked buffers."""

    parts: dict[str, int]
    loading: int
    disk: int
    pinned: tuple[int, ...] = ()

    @property
    def rounding(self) -> int:
        """Bytes that PyTorch adds to page-locked buffers: it rounds each up to a power of two, and locks all of it.

        Source: PyTorch 2.13, ATen/core/CachingHostAllocator.h, `allocate`; since 1.11. It locks even pages that are never written.
        """
        return sum((1 << max(0, size - 1).bit_length()) - size for size in self.pinned)

    @property
    def total(self) -> int:
        """Bytes between steps."""
        return sum(self.parts.values())


def host_memory(plan: Plan, layout: Layout, states: float, operations: Operations) -> HostBytes:
    """The memory of one rank on the host. `states` is the bytes of optimizer states per element.

    An offloaded optimizer keeps master weights, fp32 gradients and states there, and in most releases a 16-bit buffer for updated weights.
    """
    part = layout.part if plan.stage < 3 else sum(-(-size // plan.replicas) for size in layout.sizes)
    trained = (
        layout.part
        if plan.stage < 3
        else sum(-(-size // plan.replicas) for size, counts in zip(layout.sizes, layout.trained, strict=True) if counts)
    )
    b, m = plan.model_bytes, plan.master_bytes
    parts: dict[str, int] = {}
    disk = 0
    if plan.optimizer_device == HOST:
        updated = trained - (on_device(layout, plan)[0] if plan.stage == 3 else 0)
        parts["master weights"] = m * updated
        parts["gradients"] = m * updated
        parts["optimizer states"] = round(states * updated)
        parts["buffers"] = b * trained if plan.stage == 3 or plan.release >= UPDATED_ON_HOST else 0
        parts["buffers"] += b * max(layout.sizes) if plan.stage < 3 else 0
        if plan.super_offload:  # its process has a buffer for the gradients of a sub group
            parts["buffers"] += m * min(trained, plan.sub_group + max(layout.sizes) // plan.replicas)
        if plan.zenflow:
            parts["buffers"] += b * trained
        if plan.stage == 2 and plan.accumulation > 1 and m != 2:
            parts["buffers"] += b * sum(layout.sizes[index] for index in layout.owned())
    elif plan.optimizer_device == NVME:
        parts["gradients"] = b * trained
        parts["buffers"] = plan.swap_buffers * 4 * min(trained, plan.sub_group)
        disk += round((2 * m + states) * trained)
    if plan.parameter_device == HOST:
        parts["parameters"] = b * part
    elif plan.parameter_device == NVME:
        parts["parameters"] = b * min(part, plan.host_parameters)
        parts["buffers"] = parts.get("buffers", 0) + b * plan.parameter_buffers
        disk += b * part
    pinned = tuple(_pinned(plan, layout, trained, part)) if parts else ()
    checkpointed = sum(operations.checkpointed) * operations.host_stream
    if checkpointed:
        parts["activations"] = checkpointed
    whole = 0 if plan.stage == 3 and plan.workload.zero_init else 4 * layout.whole * plan.tensor
    return HostBytes(parts, whole, disk, pinned)


def _pinned(plan: Plan, layout: Layout, trained: int, part: int) -> Iterator[int]:
    """The sizes of page-locked buffers: `trained` elements of the rank's optimizer partition, `part` of that of all parameters.

    Source: DeepSpeed 0.9.0 to 0.19.8, runtime/zero/stage_1_and_2.py and stage3.py, the calls of `pin_memory`.
    """
    b = plan.model_bytes
    if plan.parameter_device == HOST:
        yield from _groups(b, part, plan.sub_group, len(layout.sizes))
    if plan.optimizer_device != HOST or not plan.pinned:
        return
    if plan.stage == 3:
        yield b * trained
        yield from _groups(plan.master_bytes, trained, plan.sub_group, len(layout.sizes))
    else:
        yield from (plan.master_bytes * trained, b * max(layout.sizes))
        if plan.release >= PINNED_WEIGHTS:
            yield plan.master_bytes * trained
        if plan.release >= UPDATED_ON_HOST:
            yield b * trained


def _groups(each: int, elements: int, group: int, weights: int) -> Iterator[int]:
    """The bytes of every sub group of a partition. A group holds whole weights: there are at most as many of them, however small one is."""
    group = max(1, group, -(-elements // max(1, weights)))
    whole, rest = divmod(elements, group)
    yield from [each * group] * whole
    if rest:
        yield each * rest


def others_on(plan: Plan) -> tuple[float, float, float]:
    """Bytes that other programs use on a machine: low, expected, high."""
    if plan.host_used is not None:
        return plan.host_used, plan.host_used, plan.host_used
    machine = plan.host_memory or USUAL_MACHINE
    low, expected, high = (max(least, share * machine) for least, share in zip(OTHERS, OTHERS_SHARE, strict=True))
    return low, expected, high


def host_range(plan: Plan, host: HostBytes, *, loading: bool = True) -> Bounds:
    """Host memory that a machine uses at its fullest, in bytes: between steps, or (with `loading`) while its ranks load the model."""
    low, expected, high = (plan.local * size + others for size, others in zip(PROCESS, others_on(plan), strict=True))
    steady, rounded = plan.local * host.total, plan.local * (host.total + host.rounding)
    whole = plan.local * host.loading if loading else 0  # in fp32, or in 16 bits if the program sets a dtype
    shard = SHARD * plan.local if loading and not whole else 0
    most = max(rounded + HOST_ERROR * steady + shard, (1 + HOST_ERROR) * whole)
    sums = low + max(rounded, whole / 2), expected + max(rounded, whole), high + most
    return Bounds(*map(round, sums))
