"""The plan with which a run needs the least memory: its precision, its optimizer, its activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dslint.config import UNKNOWN, Config
from dslint.facts.gpus import GIB
from dslint.rules.helpers.model import counted
from dslint.rules.helpers.offload import OFFLOAD_SECTIONS
from dslint.rules.helpers.zero import STAGE

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


def whole_model(config: Config) -> Model | None:
    """The model, if it trains unquantized.

    Raises:
        CannotJudge: its weights cannot be counted.
    """
    facts = config.facts.model
    return counted(facts) if facts is not None and facts.quantization is None else None


def plan_of(config: Config, model: Model, length: int, micro_batch: int | None, *, either: bool = False) -> Plan | None:
    """The plan for samples of this length; None if the config does not set what the plan depends on. With `either` it is the plan that needs
    the least: the precision may be unknown, and counts as 16 bits; activations are checkpointed, without which stage 3 keeps the gathered
    experts of all layers.
    """
    from dslint.memory.plan import PlanError, Workload
    from dslint.memory.planning import make_plan

    types = () if either or is_half(config) else TYPES
    decisive = (STAGE, *types, *(f"{section}.device" for section in OFFLOAD_SECTIONS))
    if config.document.problems or any(config.value(key) is UNKNOWN for key in decisive):
        return None
    try:
        return make_plan(config, Workload(length, checkpoint_every=int(either)), model.hidden, micro_batch=micro_batch, accumulation=1)
    except (PlanError, ValueError, TypeError):
        return None


def as_optimized(config: Config, plan: Plan) -> tuple[Plan, str]:
    """The plan with the states of the optimizer that the program uses: the fewest that it may keep. And the optimizer, if it is assumed."""
    from dslint.memory.optimizers import used_optimizer
    from dslint.memory.plan import STATES

    if "optimizer" not in config.replaced and isinstance(config.value("optimizer.type"), str):
        return plan, ""
    used = used_optimizer(config)
    if used.lean:
        return plan.but(optimizer="sgd", optimizer_bytes=STATES["sgd"], step_bytes=0, doubtful_step_bytes=0), ""
    return plan, "" if used.known else " with AdamW"


def gib(size: float) -> str:
    """A size in words."""
    return f"{size / GIB:,.1f} GiB" if size < 10 * GIB else f"{size / GIB:,.0f} GiB"


LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
"""The `config.json` of Llama 3.1 8B."""
