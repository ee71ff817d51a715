"""Memory on a GPU that is not in tensors: the CUDA context, libraries, NCCL, and what PyTorch's allocator reserves but does not use.

The constants come from public job logs of A100 and V100 GPUs: messages of "CUDA out of memory" of 7 jobs state the memory of the process,
what PyTorch allocated and what it reserved; 12 jobs of Megatron-DeepSpeed state allocated and reserved memory at the peak. Newer GPUs are
assumed to be like the A100.
"""

from __future__ import annotations

from typing import NamedTuple

from dslint.facts.gpus import GIB
from dslint.memory.plan import Plan


class Bounds(NamedTuple):
    """Bytes: low, expected, high."""

    low: int
    expected: int
    high: int


class Reserve(NamedTuple):
    """The memory that PyTorch reserves, as a multiple of what tensors use at the peak. `full` is expected on a GPU that is nearly full:
    PyTorch returns unused blocks before it gives up.
    """

    low: float
    expected: float
    high: float
    full: float


USUAL = Reserve(1.01, 1.14, 1.25, 1.05)
"""The logs have 1.01 to 1.39 (median 1.14) at the peak, and 1.00 to 1.19 (median 1.12) when memory ran out. An H100 with room has 1.07 to
1.8 (median 1.27), and 69 published figures of reserved or occupied memory agree best with 1.14: they are 0.99 of it in the median."""

VARYING = Reserve(1.01, 1.14, 1.39, 1.12)
"""With samples of different lengths, blocks of one length seldom fit another: the same logs, without a margin for the odd one."""

EXPANDABLE = Reserve(1.0, 1.03, 1.08, 1.02)
"""With `expandable_segments:True` in PYTORCH_ALLOC_CONF, unused memory is only the rounding of segments to 2 and 20 MiB on a GPU that is
nearly full: an H100 trained with 1.3 and 2.3 % more than tensors. Where there is room, PyTorch keeps more (18 and 21 % there)."""

OLD_CONTEXT, CONTEXT = 0.31 * GIB, 0.41 * GIB
"""The CUDA context of a process, before and from Ampere. The logs show it for other processes on the same GPU."""

LOADED = 0.6 * GIB
"""Kernels, cuBLAS and the first communicator: one rank on an A100 had 1.05 GiB with the context."""

COMMUNICATOR = 0.2 * GIB
"""The part of the first communicator: a calibration has none, and an H100 had 0.82 GiB in it."""

PEERS = 0.3 * GIB
"""Buffers of NCCL for several ranks: 1.32 GiB in total with data parallelism only."""

GROUP = 0.35 * GIB
"""Buffers of a further process group, of sequence or tensor parallelism: 1.65 GiB in total."""

MACHINES = 0.5 * GIB
"""Buffers of NCCL for a network between machines."""


def context(plan: Plan) -> Bounds:
    """Bytes of CUDA context, libraries and NCCL on a GPU, and of another engine that always shares it. A calibration replaces the part of
    one rank without a communicator, because it was made without others.
    """
    found = Bounds(*(size + plan.always_elsewhere for size in context_in_logs(plan)))
    if plan.calibration is None:
        return found
    alone = context_in_logs(plan.but(world=1, local=1, tensor=1, sequence=1, secondary=1))
    low, expected, high = plan.calibration.context
    own = (low, expected + COMMUNICATOR, high + 2 * COMMUNICATOR)
    return Bounds(*(round(every - one + measured) for every, one, measured in zip(found, alone, own, strict=True)))


def context_in_logs(plan: Plan) -> Bounds:
    """The same from job logs."""
    gpu = plan.gpu
    base = OLD_CONTEXT if gpu and gpu.capability and gpu.capability < (8, 0) else CONTEXT
    if plan.world == 1:
        return Bounds(round(base + 0.1 * GIB), round(base + LOADED), round(base + LOADED + 0.5 * GIB))
    groups = (plan.tensor > 1) + (plan.sequence > 1) + (plan.secondary > 1)
    machines = plan.world > plan.local
    expected = base + LOADED + PEERS + groups * GROUP + machines * MACHINES
    most = 4.2 * GIB if groups else expected + (1.0 if machines else 0.7) * GIB
    return Bounds(round(base + 0.3 * GIB), round(expected), round(max(most, expected + 0.5 * GIB)))


def reserve(plan: Plan) -> Reserve:
    """How much PyTorch's allocator reserves under the setting of the workload, as in job logs."""
    return EXPANDABLE if plan.workload.expandable else VARYING if plan.workload.varying else USUAL
