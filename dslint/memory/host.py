"""Host memory and NVMe space that the ranks of a machine need."""

from __future__ import annotations

from typing import NamedTuple

from dslint.memory.activations import Operations
from dslint.memory.layout import Layout
from dslint.memory.plan import HOST, NVME, Plan


class Host(NamedTuple):
    """Bytes of one rank: by part between steps, while loading the model, and on NVMe."""

    parts: dict[str, int]
    loading: int
    disk: int

    @property
    def total(self) -> int:
        """Bytes between steps."""
        return sum(self.parts.values())


def host_memory(plan: Plan, layout: Layout, states: float, operations: Operations) -> Host:
    """The memory of one rank on the host. `states` is the bytes of optimizer states per element.

    An offloaded optimizer keeps master weights, fp32 gradients and states there, and a 16-bit buffer for updated weights.
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
        share = plan.offload_ratio
        parts["master weights"] = round(share * m * trained)
        parts["gradients"] = round(share * m * trained)
        parts["optimizer states"] = round(share * states * trained)
        parts["buffers"] = b * trained + (b * max(layout.sizes) if plan.stage < 3 else 0)
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
    checkpointed = sum(operations.checkpointed) * operations.host_stream
    if checkpointed:
        parts["activations"] = checkpointed
    whole = 0 if plan.stage == 3 and plan.workload.zero_init else 4 * layout.whole * plan.tensor
    return Host(parts, whole, disk)
