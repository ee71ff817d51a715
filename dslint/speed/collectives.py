"""Communication: the collectives of each ZeRO stage, of tensor, sequence and pipeline parallelism, within and between machines."""

from __future__ import annotations

from dslint.record import Record
from dslint.speed.constants import Constants
from dslint.speed.hardware import BETWEEN, SHARED, WITHIN
from dslint.speed.job import Job


class Bandwidths(Record):
    """Bytes per second that collectives reach: between the GPUs of a machine (for each), and between machines (for each machine)."""

    within: float
    between: float


def bandwidths(job: Job) -> Bandwidths:
    """The bandwidths of a job. A rate that was measured counts as it is."""
    share = 1.0 if "link" in job.given else WITHIN if job.hardware.direct else SHARED
    return Bandwidths(job.link * share, job.network * (1.0 if "network" in job.given else BETWEEN))


class Groups(Record):
    """How a data-parallel group lies on the machines: its ranks in each, the machines it spans, and the groups that share the network of a
    machine.
    """

    inside: float
    machines: float
    sharing: float


def groups(job: Job) -> Groups:
    """Ranks of tensor parallelism are neighbours, then those of data parallelism, then those of the pipeline (Megatron's order)."""
    inside = max(1.0, min(job.data_parallel, job.local / job.tensor))
    return Groups(inside, max(1.0, job.data_parallel / inside), max(1.0, min(job.local, job.gpus) / inside))


def ring(job: Job, size: float, c: Constants, *, inside_only: bool = False) -> float:
    """Seconds of an all-gather or reduce-scatter of `size` bytes over the data-parallel ranks. Within a machine each GPU passes on what the
    others have; the network of a machine carries all of it once for each group (the ring of nccl-tests' PERFORMANCE.md).
    """
    placed, speeds = groups(job), bandwidths(job)
    within = size * (placed.inside - 1) / placed.inside / speeds.within
    if inside_only or placed.machines <= 1:
        return within
    between = size * (placed.machines - 1) / placed.machines * placed.sharing / speeds.between
    return max(within, between) + c.latency * placed.machines


QUANTIZED = 0.5
"""Bytes of a gradient in 4 bits (qgZ)."""

EXCHANGES, MATRICES = 4, 7
"""All-to-alls for each matrix whose gradient is quantised, in pairs within a machine and between them (DeepSpeed's
`all_to_all_quant_reduce`), and matrices of a layer."""


def reduced(job: Job, c: Constants) -> float:
    """Seconds to reduce the gradients once: an all-reduce at stage 0, a reduce-scatter above. Quantised gradients (ZeRO++, Wang et al.
    2023) are exchanged between machines only; on one machine DeepSpeed reduces them as they are.
    """
    if job.data_parallel <= 1:
        return 0.0
    if job.stage == 3 and job.quantized_gradients and groups(job).machines > 1:
        return ring(job, job.trained_here * QUANTIZED, c) + EXCHANGES * MATRICES * job.layers_here * c.latency
    return ring(job, job.trained_here * job.wire_bytes, c) * (2 if job.stage == 0 else 1)


def bucketed(job: Job) -> float:
    """Seconds to copy gradients into the buckets of ZeRO (`contiguous_gradients`): they are read and written once."""
    return 2 * job.trained_here * job.element / (job.hardware.memory * 1e9) if job.stage else 0.0


def updated(job: Job, c: Constants) -> float:
    """Seconds to gather the updated weights after the step at stages 1 and 2."""
    return ring(job, job.trained_here * job.element, c) if job.stage in (1, 2) and job.data_parallel > 1 else 0.0


def gathered(job: Job, c: Constants) -> tuple[float, float]:
    """Seconds to gather the weights at stage 3 for the forward and for the backward of a micro batch. With a secondary partition (hpZ) the
    backward gathers within a machine; quantised weights are half as large (ZeRO++, Wang et al. 2023).
    """
    if job.stage < 3 or job.data_parallel <= 1:
        return 0.0, 0.0
    size = job.held * job.element / c.streaming
    forward = ring(job, size * (0.5 if job.quantized_weights else 1.0), c)
    return forward, ring(job, size, c, inside_only=True) if job.secondary > 1 else forward


def tensor_parallel(job: Job, c: Constants) -> float:
    """Seconds of the all-reduces of tensor parallelism in a micro batch: two per layer and pass (Shoeybi et al. 2019)."""
    if job.tensor <= 1:
        return 0.0
    speeds = bandwidths(job)
    inside = job.tensor <= job.local
    each = 2 * job.tokens * job.hidden * job.element * (job.tensor - 1) / job.tensor / (speeds.within if inside else speeds.between)
    return 2 * (2 + job.recomputed) * job.layers_here * (each + c.latency)


def sequence_parallel(job: Job, c: Constants) -> float:
    """Seconds of Ulysses' all-to-alls in a micro batch: queries, keys, values and the output of each layer (Jacobs et al. 2023)."""
    if job.sequence <= 1:
        return 0.0
    speeds = bandwidths(job)
    inside = job.sequence <= job.local
    each = 4 * job.tokens * job.hidden * job.element * (job.sequence - 1) / job.sequence / (speeds.within if inside else speeds.between)
    return (2 + job.recomputed) * job.layers_here * (each + 4 * c.latency)


def pipeline(job: Job) -> float:
    """Seconds to pass activations and their gradients to the next stage of the pipeline for a micro batch."""
    if job.pipeline <= 1:
        return 0.0
    speeds = bandwidths(job)
    size = 2 * job.tokens * job.hidden * job.element / job.tensor
    return size * min(job.local, job.gpus) / speeds.between if job.machines > 1 else size / speeds.within
