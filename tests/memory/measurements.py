"""Measurements of the real engine, and the model they were made with.

A line of measured.jsonl is one configuration: DeepSpeed 0.19.8, rank 0 of `world`, every byte of tensors counted on a device that computes
nothing (torch 2.13, fused Adam and CPU Adam replaced by stand-ins with the same states, attention by one that keeps what flash attention
keeps). Bytes. `shape` is that of a GPT: L layers of width h with a heads and a feed-forward part of width f, V words, S positions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dslint.config import resolve
from dslint.facts import Facts, Integration
from dslint.memory.engine import Run, run
from dslint.memory.plan import ONE_BY_ONE, Plan, Workload
from dslint.memory.planning import make_plan
from dslint.memory.shapes import Block, BlockStep, Model, Weight
from dslint.source.parse import parse


@dataclass(frozen=True)
class Row:
    """A measurement, with what dslint says of the same configuration."""

    data: dict[str, Any]
    plan: Plan
    model: Model
    run: Run

    def error(self, ours: int, measured: str | int) -> float:
        """Percent."""
        real = self.data[measured] if isinstance(measured, str) else measured
        return 100 * (ours / real - 1)

    @property
    def peak(self) -> int:
        """The highest moment of a step, without init."""
        return max(moment.total for phase, moment in self.run.peaks.items() if phase != "init")


def gpt(shape: dict[str, Any]) -> Model:
    """The model of the measurements."""
    h, f, a = shape["h"], shape["f"], shape["a"]

    def block(index: int) -> Block:
        def norm(name: str, step: BlockStep) -> tuple[Weight, ...]:
            return Weight(f"{index}.{name}.weight", (h,), step), Weight(f"{index}.{name}.bias", (h,), step)

        def linear(name: str, out: int, into: int, step: BlockStep) -> tuple[Weight, ...]:
            return Weight(f"{index}.{name}.weight", (out, into), step), Weight(f"{index}.{name}.bias", (out,), step)

        weights = (
            *norm("ln1", BlockStep.BEFORE_ATTENTION),
            *linear("qkv", 3 * h, h, BlockStep.INTO_ATTENTION),
            *linear("o", h, h, BlockStep.OUT_OF_ATTENTION),
            *norm("ln2", BlockStep.BEFORE_FEED),
            *linear("up", f, h, BlockStep.INTO_FEED),
            *linear("down", h, f, BlockStep.OUT_OF_FEED),
        )
        return Block(weights, h, a, h, h, f)

    first = (Weight("emb.weight", (shape["V"], h)), Weight("pos.weight", (shape["S"], h)))
    last = (Weight("lnf.weight", (h,)), Weight("lnf.bias", (h,)), Weight("head.weight", (shape["V"], h)))
    return Model("gpt", "gpt", first, tuple(block(i) for i in range(shape["L"])), last, h, shape["V"], tied=False, returns_logits=False)


def plan_of(data: dict[str, Any]) -> Plan:
    """The plan of a measured configuration."""
    shape = data["shape"]
    facts = Facts(world_size=data["world"], nodes=max(1, data["world"] // 8), integration=Integration.DEEPSPEED)
    workload = Workload(
        shape["S"],
        checkpoint_every=int(shape["ckpt"]),
        eager=shape["attn"] == "math",
        full_loss=shape["loss"] == "fp32",
        zero_init=False,
    )
    return one_by_one(make_plan(resolve(parse(json.dumps(data["config"])), facts), workload, shape["h"]))


def one_by_one(plan: Plan) -> Plan:
    """The plan without a GPU: there torch's Adam updates one weight after the other."""
    return plan.but(step_bytes=ONE_BY_ONE) if plan.torch_adam else plan


@cache
def measured() -> tuple[Row, ...]:
    """All rows."""
    rows = []
    for line in Path(__file__).with_name("measured.jsonl").read_text(encoding="utf-8").splitlines():
        data = json.loads(line)
        plan, model = plan_of(data), gpt(data["shape"])
        rows.append(Row(data, plan, model, run(model, plan, roomy=True, prints=False)))
    return tuple(rows)


def kind(row: Row) -> str:
    """The kind of a row, for tables."""
    where = {None: "", "cpu": ", optimizer on the host"}[row.plan.optimizer_device]
    where = ", all on the host" if row.plan.parameter_device else where
    return f"stage {row.plan.stage}{where}"
