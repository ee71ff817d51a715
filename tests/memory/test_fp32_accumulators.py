"""What stage 1 holds while it accumulates gradients in fp32 outside of BF16_Optimizer, compared with the real DeepSpeed 0.19.8.

Figures of `dslint probe --device fake` with torch 2.13 and its built-in model: the peaks of the backward and of the step, in megabytes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dslint.config import resolve
from dslint.facts import Facts, Integration
from dslint.memory.engine import run
from dslint.memory.families import read_shape
from dslint.memory.plan import Workload
from dslint.memory.planning import make_plan
from dslint.probe.question import DecoderSizes
from dslint.source.parse import parse

CPU: dict[str, Any] = {"offload_optimizer": {"device": "cpu"}}
MIDDLE, SMALL, LARGE = ({"reduce_bucket_size": size} for size in (1_000_000, 60_000, 20_000_000))
LOOSE = {"contiguous_gradients": False}


@pytest.mark.parametrize(
    ("kind", "zero", "accumulation", "world", "rank", "tied", "backward", "step"),
    [
        ("bf16", {**CPU, **MIDDLE}, 1, 4, 1, False, 67.719, 49.358),
        ("bf16", {**CPU, **MIDDLE}, 2, 4, 1, False, 74.259, 57.852),
        ("bf16", {**CPU, **MIDDLE}, 1, 2, 0, False, 90.821, 49.459),
        ("fp16", {**SMALL, **LOOSE, "overlap_comm": True}, 1, 8, 3, True, 54.053, 52.054),
        ("fp16", {**MIDDLE, "overlap_comm": True}, 1, 1, 0, False, 181.835, 165.651),
        ("fp16", {**LARGE, **LOOSE}, 1, 2, 1, True, 112.403, 89.522),
        ("fp16", {**CPU, **SMALL, **LOOSE}, 1, 8, 5, True, 49.996, 40.723),
        ("fp16", {**CPU, **MIDDLE, "overlap_comm": True}, 1, 1, 0, False, 90.515, 53.852),
    ],
)
def test_peaks(kind: str, zero: dict[str, Any], accumulation: int, world: int, rank: int, tied: bool, backward: float, step: float) -> None:
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": accumulation,
        "optimizer": {"type": "AdamW"},
        kind: {"enabled": True},
        "data_types": {"grad_accum_dtype": "fp32"},
        "zero_optimization": {"stage": 1, **zero},
    }
    shape = DecoderSizes(layers=4, hidden=256, heads=4, kv_heads=4, head_size=64, ffn=1024, vocab=8000, tied=tied)
    model = replace(read_shape(shape.as_data(), "small"), returns_logits=False)
    facts = Facts(world_size=world, nodes=1, integration=Integration.DEEPSPEED)
    plan = make_plan(resolve(parse(json.dumps(config)), facts), Workload(64), model.hidden)
    peaks = run(model, plan, rank).peaks
    assert peaks["backward"].total / 1e6 == pytest.approx(backward, rel=0.01)
    assert peaks["step"].total / 1e6 == pytest.approx(step, rel=0.01)
