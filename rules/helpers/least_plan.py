"""The precisions that a run may have, for plans that need the least memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dslint.config import UNKNOWN, Config

if TYPE_CHECKING:
    from dslint.memory.estimate import Estimate
    from dslint.memory.plan import Plan
    from dslint.memory.shapes import Model

TYPES = ("bf16.enabled", "fp16.enabled")
FULL = {"model_bytes": 4, "gradient_bytes": 4, "wire_bytes": 4, "master_bytes": 4, "fp16": False}
"""What a plan has in 32 bits."""
HALF = {"model_bytes": 2, "gradient_bytes": 2, "wire_bytes": 2, "fp16": False}
"""What it has in 16 bits."""


def is_half(config: Config) -> bool:
    """Whether the model has 16 bits. With both keys DeepSpeed raises, and each has 16 bits."""
    return any(config.value(key) is True for key in TYPES)


def may_be_full_precision(config: Config) -> bool:
    """Whether only the run knows if the model has 16 or 32 bits."""
    return not is_half(config) and any(config.value(key) is UNKNOWN for key in TYPES)


def least_estimate(config: Config, model: Model, plan: Plan, size: Callable[[Estimate], float]) -> Estimate:
    """The estimate of a plan; the one with the least `size` of both precisions where only the run knows which it has."""
    from dslint.memory.estimate import estimate

    plans = [plan.but(**each) for each in (HALF, FULL)] if may_be_full_precision(config) else [plan]
    return min((estimate(model, one) for one in plans), key=size)
