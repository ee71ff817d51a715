"""Measurements of models that transformers builds: grouped-query attention, gates, tied heads, experts.

A line of fresh.jsonl was measured by the child of `dslint probe` on its counting device: DeepSpeed 0.19.8, transformers 5.23, torch 2.13,
one process for each. transformers gives attention a mask there, as it does for padded samples. `ckpt` says that each so-manieth layer is
checkpointed; adapters are those of peft 0.21. All sets but "drawn" were looked at while formulas were mended. "drawn" was drawn by chance
(Python's random.Random(20261121)) and measured before they were mended for the last time, and compared with them only afterwards.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from dslint.config import resolve
from dslint.facts import Facts, Integration
from dslint.memory.engine import Run, run
from dslint.memory.families import read_shape
from dslint.memory.numbers import with_adapters
from dslint.memory.plan import Plan, Workload
from dslint.memory.planning import make_plan
from dslint.memory.shapes import Model
from dslint.source.parse import parse
from tests.memory.measurements import one_by_one

TRAINING = ("forward", "backward", "step")


class Fresh:
    """A measurement, with what dslint says of the same configuration."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        whole = read_shape(data["model"], data["name"])
        rank = data.get("lora_rank")
        self.model: Model = with_adapters(whole, rank, data.get("lora_targets", ())) if rank else whole
        facts = Facts(world_size=data["world"], nodes=max(1, data["world"] // 8), integration=Integration.DEEPSPEED)
        workload = Workload(data["seq"], checkpoint_every=int(data["ckpt"]), padded=True, zero_init=data.get("zero_init", False))
        self.plan: Plan = one_by_one(make_plan(resolve(parse(json.dumps(data["config"])), facts), workload, self.model.hidden))
        self.run: Run = run(self.model, self.plan, data.get("rank", 0), roomy=True, prints=False)

    @property
    def measured(self) -> int:
        """The highest moment of a step, as it was measured."""
        return max(int(self.data["phase_peak_dev"][phase]) for phase in TRAINING)

    @property
    def peak(self) -> int:
        """What dslint says of it."""
        return max(self.run.peaks[phase].total for phase in TRAINING)

    @property
    def steady_error(self) -> float:
        """Percent."""
        return 100 * (self.run.steady.total / int(self.data["steady_dev"]) - 1)

    @property
    def peak_error(self) -> float:
        """Percent."""
        return 100 * (self.peak / self.measured - 1)


@cache
def fresh() -> tuple[Fresh, ...]:
    """All rows."""
    lines = Path(__file__).with_name("fresh.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(Fresh(json.loads(line)) for line in lines)
