"""Splits the memory between steps by purpose: parameters, master weights, optimizer states, gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

MASTERS = (
    "single_partition_of_fp32_groups",  # stages 1 and 2
    "fp32_partitioned_groups_flat",  # stage 3
    "fp32_groups_flat_partition",  # stage 1 with gradients in fp32
    "fp32_groups_flat",  # fp16 without ZeRO
    "fp32_groups",  # the same, for optimizers that are not fused
)
GRADIENTS = ("fp32_groups_gradients_flat", "grad_partitions_flat_buffer", "averaged_gradients", "all_grad_tensors")
"""The attributes of DeepSpeed's optimizers with master weights and gradients."""


def parts(engine: Any, device: str) -> dict[str, dict[str, int]]:
    """Bytes by place and part. A storage counts once, for the first part that contains it.

    Args:
        engine: DeepSpeed's engine, between two steps.
        device: the type of the device; everything else is the host. On a CPU both are one place, "both".
    """
    optimizer = engine.optimizer
    held = {
        "parameters": [getattr(p, "ds_tensor", None) for p in engine.module.parameters()] + list(engine.module.parameters()),
        "master weights": [getattr(optimizer, name, None) for name in MASTERS],
        "optimizer states": list(states(engine).values()),
        "gradients": [p.grad for p in engine.module.parameters()] + [getattr(optimizer, name, None) for name in GRADIENTS],
    }
    held["gradients"] += [tensor.grad for tensor in _tensors(held["master weights"]) if tensor.is_leaf]
    seen: set[int] = set()
    counted: dict[str, dict[str, int]] = {}
    for part, values in held.items():
        for tensor in _tensors(values):
            storage = tensor.untyped_storage()
            if storage._cdata in seen or not storage.nbytes():  # noqa: SLF001 - the identity of a storage has no other name
                continue
            seen.add(storage._cdata)  # noqa: SLF001 - the same
            place = "both" if device == "cpu" else "device" if tensor.device.type == device else "host"
            sizes = counted.setdefault(place, {})
            sizes[part] = sizes.get(part, 0) + storage.nbytes()
    return counted


def states(engine: Any) -> dict[Any, Any]:
    """The states of the innermost optimizer, by parameter."""
    found = getattr(getattr(engine, "basic_optimizer", None), "state", None)
    return dict(found) if found else {}


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in nested lists and dicts, without scalars such as a step count."""
    if isinstance(value, torch.Tensor):
        if value.dim():
            yield value
    elif isinstance(value, dict):
        for entry in value.values():
            yield from _tensors(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _tensors(entry)
