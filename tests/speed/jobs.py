"""Jobs for the tests of the step-time model."""

from __future__ import annotations

from typing import Any

from dslint.speed.hardware import HARDWARE, assumed_network
from dslint.speed.job import Job


def job(gpu: str = "a100", **changes: Any) -> Job:
    """A model of 7 billion parameters on one machine with 8 GPUs, at stage 2."""
    hardware = HARDWARE[gpu]
    values: dict[str, Any] = {
        "hardware": hardware,
        "precision": "bf16",
        "params": 7e9,
        "active": 7e9,
        "trained": 7e9,
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "vocabulary": 32_000,
        "length": 2048,
        "attended": 2048,
        "micro_batch": 4,
        "accumulation": 1,
        "gpus": 8,
        "local": 8,
        "link": hardware.link * 1e9,
        "network": assumed_network(hardware, 8),
        "pcie": hardware.host * 1e9,
        "stage": 2,
    }
    return Job(**{**values, **changes})
