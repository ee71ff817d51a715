"""The optimizer step, on the GPU, on the host or from NVMe, and what offload moves over PCIe."""

from __future__ import annotations

from dslint.record import Record
from dslint.speed.constants import FITTED, Constants
from dslint.speed.hardware import TO_HOST, host_memory
from dslint.speed.job import Job


class Offload(Record):
    """Seconds: of the optimizer on the GPU and on the CPU, of copies over PCIe for each step (`once`) and for each further micro batch
    (`each`), of optimizer states on NVMe, and of parameters and activations that a micro batch fetches from the host (`fetched`).
    """

    device: float
    cpu: float
    once: float
    each: float
    nvme: float
    fetched: float


ADAM = 28
"""Bytes for each parameter: Adam reads and writes master weights and two moments in fp32, reads the gradient, and writes the weight (Ren et
al. 2021, ZeRO-Offload)."""


def adam_rate(job: Job, c: Constants = FITTED) -> float:
    """Bytes per second of the CPU optimizer of a machine."""
    return job.host_rate or c.adam * host_memory(job.hardware, min(job.local, job.gpus))


def offload(job: Job, c: Constants) -> Offload:
    """What the optimizer and offload cost. The ranks of a machine share the bandwidth of its memory and of its disks."""
    part = job.trained_here / (job.data_parallel if job.stage else 1)
    local = min(job.local, job.gpus)
    rate = job.pcie * (1.0 if "pcie" in job.given else TO_HOST) * (1.0 if job.pinned else c.unpinned)
    on_host = part * job.offloaded if job.optimizer_on else 0.0
    device = (part - on_host) * job.optimizer_bytes / (job.hardware.memory * 1e9)
    cpu = on_host * ADAM * local / adam_rate(job, c)
    pcie = on_host * 2 * job.element / rate
    each = on_host * (4.0 if job.stage == 3 else job.element) / rate if job.accumulation > 1 else 0.0
    nvme = on_host * 2 * 12 * local / job.nvme if job.optimizer_on == "nvme" else 0.0
    fetched = 0.0
    if job.parameters_on:
        shard = job.held * job.element / job.data_parallel
        fetched = 2 * shard * (local / job.nvme if job.parameters_on == "nvme" else 1 / (c.unpinned * rate))
    if job.activations_on_host:
        fetched += 2 * job.tokens * job.hidden * job.element * job.layers_here / rate
    return Offload(device, cpu, pcie, each, nvme, fetched)
