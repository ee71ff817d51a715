"""The work of a training step: operations, and bytes moved. `dslint.speed` says how long it takes."""

from __future__ import annotations

from typing import NamedTuple

from dslint.facts.gpus import GIB
from dslint.memory.activations import operations
from dslint.memory.estimate import Estimate
from dslint.memory.layout import share_on_host
from dslint.memory.plan import HOST, NVME
from dslint.record import Record


class Speeds(Record):
    """Bytes per second: between GPU and host, NVMe of a machine, host memory."""

    pcie: float = 25e9
    nvme: float = 6e9
    memory: float = 40e9


class Work(Record):
    """The work of one rank for one optimizer step: operations (`again` of them recomputed), collective operations, and bytes over each
    link. `adam` is the bytes that the CPU optimizer reads and writes.
    """

    operations: float
    again: float
    collectives: int
    network: int
    pcie: int
    nvme: int
    adam: int


class Seconds(NamedTuple):
    """Seconds of a step: compute and what belongs to it, waiting for other GPUs, copies over PCIe, NVMe, and the CPU optimizer."""

    compute: float
    network: float
    pcie: float
    nvme: float
    adam: float

    @property
    def total(self) -> float:
        """The sum."""
        return sum(self)


def work(found: Estimate) -> Work:
    """The work of a step of an estimate."""
    plan, run = found.plan, found.run
    b, layout, times = plan.model_bytes, run.layout, plan.accumulation
    forward, blocks = _operations(found)
    share = 1 / plan.workload.checkpoint_every if plan.workload.checkpoint_every else 0.0
    again = share * blocks
    backward = 2 if found.model.trained == found.model.size else 1.1
    reduced = layout.flat * plan.wire_bytes
    part = -(-layout.flat // plan.replicas)
    network = {0: 2 * reduced, 1: reduced, 2: reduced * times, 3: reduced * times}[plan.stage]
    collectives = run.collectives * (times if plan.stage > 1 else 1)
    if plan.stage == 3:
        network += run.gathered * times
    elif plan.stage:
        network += b * layout.flat
    if plan.replicas == 1:
        network = collectives = 0
    if plan.tensor > 1:
        network += 8 * len(found.model.blocks) * b * found.model.hidden * plan.tokens * times
        collectives += 4 * len(found.model.blocks) * times
    pcie = nvme = adam = 0
    if plan.optimizer_device:
        down = plan.master_bytes * (times if plan.stage == 3 else 1) + (2 * b * (times - 1) if plan.stage < 3 else 0)
        on_host = round(part * share_on_host(layout, plan))
        pcie += (down + b) * on_host
        adam = 28 * on_host
    if plan.optimizer_device == NVME:
        nvme += 2 * round((plan.master_bytes + plan.optimizer_bytes) * part)
    if plan.parameter_device in (HOST, NVME):
        fetched = run.gathered * times // plan.replicas
        pcie += fetched
        nvme += fetched + b * part if plan.parameter_device == NVME else 0
    if plan.activations_on_host:
        prepared = operations(found.model, plan)
        pcie += 2 * sum(prepared.checkpointed) * prepared.host_stream * times
    return Work((forward * (1 + backward) + again) * times, again * times, collectives, round(network), pcie, nvme, adam)


def _operations(found: Estimate) -> tuple[float, float]:
    """Operations of the forward of one micro batch on one rank: of the whole model, and of its blocks."""
    model, plan = found.model, found.plan
    tokens = plan.tokens if model.tokens is None else plan.micro_batch * model.tokens
    blocks = 0.0
    for block in model.blocks:
        weights = sum(w.size for w in block.weights)
        if block.experts:
            stacked = sum(w.size for w in block.weights if len(w.shape) == 3)
            weights -= round(stacked * (1 - block.experts.active / block.experts.number))
        blocks += 2 * weights * tokens + 2 * block.query * tokens * plan.workload.length
    head = 2 * model.vocabulary * model.hidden * tokens
    return (blocks + head) / plan.tensor, blocks / plan.tensor


def differences(before: Work, after: Work, lasts: Seconds, speeds: Speeds) -> list[str]:
    """Sentences about the additional work of a step. `lasts` is the time of the new step."""
    words = []
    if after.again > before.again:
        words.append(f"recomputes part of the forward: {100 * (after.again - before.again) / before.operations:.0f} % more operations")
    if after.pcie > before.pcie:
        words.append(
            f"{_gib(after.pcie - before.pcie)} more over PCIe per step, {_time(lasts.pcie)} in total at {speeds.pcie / 1e9:.3g} GB/s"
        )
    if after.nvme > before.nvme:
        words.append(
            f"{_gib(after.nvme)} read and written on NVMe per step and rank, {_time(lasts.nvme)} at {speeds.nvme / 1e9:.3g} GB/s a machine"
        )
    if after.adam > before.adam:
        words.append(f"the optimizer runs on the CPU: about {_time(lasts.adam)} per step at {speeds.memory / 1e9:.3g} GB/s per machine")
    if after.network > 1.02 * before.network:
        words.append(f"{_gib(after.network - before.network)} more between GPUs per step")
    if after.collectives > 1.05 * before.collectives:
        words.append(f"{after.collectives:,} collective operations per step instead of {before.collectives:,}")
    return words


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / GIB * 1024:.0f} MiB"


def _time(amount: float) -> str:
    return f"{amount:.0f} s" if amount >= 10 else f"{amount:.2g} s"
