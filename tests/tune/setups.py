"""Setups for the tests of `tune`."""

from __future__ import annotations

import json
from typing import Any

from dslint.config import Config, resolve
from dslint.config.context import Context
from dslint.facts import Facts, Integration
from dslint.facts.gpus import GPUS
from dslint.memory.plan import Plan
from dslint.memory.requests import DEFAULTS, described_model, planned
from dslint.memory.ways import Goal
from dslint.source.parse import parse
from dslint.tune.search import TuneSearch

CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 8,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": True}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
}


def search(
    config: dict[str, Any] | str,
    *,
    gpu: str = "a100",
    world: int = 8,
    nodes: int | None = None,
    integration: Integration = Integration.DEEPSPEED,
    **said: Any,
) -> TuneSearch:
    """A search for a config, without the check."""
    kind = GPUS[gpu]
    facts = Facts(world_size=world, nodes=nodes, gpu=kind, gpu_memory=kind.memory, integration=integration)
    given = {**DEFAULTS, "model": "llama-3-8b", "length": 2048, "checkpoint_every": 1, **said}
    found = described_model(given, facts)
    context = Context(facts.but(model=found.config) if hasattr(facts, "but") else facts._replace(model=found.config))

    def planner(text: str, otherwise: dict[str, Any]) -> tuple[Config, Plan]:
        resolved = resolve(parse(text), context)
        return resolved, planned(resolved, found.model, {**given, **otherwise}, found.assumed)

    text = config if isinstance(config, str) else json.dumps(config, indent=2)
    return TuneSearch(text, found.model, planner, lambda _: True, Goal(kind.memory))
