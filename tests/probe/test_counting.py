"""Bytes on the fake device are those of real tensors on the CPU, as torch's own allocator says them: each run in a fresh process."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dslint.probe.answer import Memory
from dslint.probe.question import Question
from tests.probe.running import ask, found, needs_engine

pytestmark = [pytest.mark.deepspeed, needs_engine]

TOLERANCE = 0.001
BASE: dict[str, Any] = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
PRECISIONS: dict[str, dict[str, Any]] = {
    "bf16": {"bf16": {"enabled": True}},
    "fp16": {"fp16": {"enabled": True, "loss_scale": 1}},
    "fp32": {},
}
HOST = {"device": "cpu"}
NVME = {"device": "nvme", "nvme_path": "nvme", "buffer_count": 4}
OFFLOAD: dict[str, dict[str, Any]] = {
    "": {},
    "optimizer": {"offload_optimizer": HOST},
    "all": {"offload_optimizer": HOST, "offload_param": HOST},
    "nvme": {"offload_optimizer": NVME},
}
MATRIX = [
    ("bf16", 0, ""),
    ("bf16", 1, ""),
    ("bf16", 2, ""),
    ("bf16", 3, ""),
    ("fp16", 0, ""),
    ("fp16", 2, ""),
    ("fp16", 3, ""),
    ("fp32", 1, ""),
    ("fp32", 3, ""),
    ("bf16", 2, "optimizer"),
    ("bf16", 3, "optimizer"),
    ("bf16", 3, "all"),
    ("bf16", 3, "nvme"),
]


def question(precision: str, stage: int, offload: str) -> Question:
    zero = {"stage": stage, "reduce_bucket_size": 1_000_000, "allgather_bucket_size": 1_000_000, **OFFLOAD[offload]}
    return Question(json.dumps({**BASE, **PRECISIONS[precision], "zero_optimization": zero}), world_size=4, steps=2)


def counted(asked: Question) -> Memory:
    """What the probe says of a run."""
    answer = ask(asked, timeout=0, progress=lambda *_: None)
    assert answer.started, answer
    return answer.memory["both"]


@pytest.mark.parametrize(("precision", "stage", "offload"), MATRIX)
def test_fake_tensors_take_what_real_ones_do(precision: str, stage: int, offload: str) -> None:
    asked = question(precision, stage, offload)
    fake = counted(replace(asked, device="fake"))
    real = found(replace(asked, device="cpu"), "allocator")
    assert real["steps"] - real["skipped"] >= 2
    assert fake.steady == pytest.approx(real["steady"], rel=TOLERANCE)
    # The step copies new parameters from the host to the device; on a CPU the two are one place, and nothing is copied.
    for phase in ("forward", "backward", "step") if offload != "all" else ("forward", "backward"):
        assert fake.peaks[phase] == pytest.approx(real["peaks"][phase], rel=TOLERANCE), phase


def test_the_tracker_counts_real_tensors_as_the_allocator_does() -> None:
    asked = replace(question("bf16", 2, ""), device="cpu")
    tracked, real = counted(asked), found(asked, "allocator")
    assert tracked.steady == pytest.approx(real["steady"], rel=TOLERANCE)
    assert dict(tracked.peaks) == pytest.approx(real["peaks"], rel=TOLERANCE)
