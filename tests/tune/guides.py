"""What public guides advise about speed, and what the step-time model says of it: the table of docs/tune.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dslint.speed.job import Job
from dslint.speed.step import step
from tests.speed.jobs import job


def slower(first: Job, second: Job) -> float:
    """How many times as long the second job takes for a sample as the first."""
    one, other = step(first), step(second)
    return (other.seconds / second.samples) / (one.seconds / first.samples)


class Guide(NamedTuple):
    """An advice, its public source, the range of the factor that it states, and what the model says."""

    advice: str
    source: str
    low: float
    high: float
    ours: Callable[[], float]


DGX_2 = {"gpus": 384, "local": 16, "network": 25e9, "params": 1.8e10, "length": 1024, "precision": "fp16", "micro_batch": 2}
"""The cluster of ZeRO++'s paper with 200 Gb/s for a machine, and its model of 18 billion parameters."""

GUIDES = (
    Guide(
        "Full activation checkpointing costs 20 to 40 % of a step",
        "Korthikanti et al. 2022; Hugging Face, GPU training guide",
        1.2,
        1.4,
        lambda: slower(job(), job(recomputed=1.0)),
    ),
    Guide(
        "Stage 2 within a machine is nearly as fast as data parallelism",
        "Rajbhandari et al. 2020 (ZeRO): no more communication than data parallelism",
        0.9,
        1.1,
        lambda: slower(job(stage=0), job(stage=2)),
    ),
    Guide(
        "Stage 3 within a machine with NVLink costs little at a large micro batch",
        "Rajbhandari et al. 2020 (ZeRO): 1.5 times the communication",
        1.0,
        1.25,
        lambda: slower(job(stage=2, micro_batch=8), job(stage=3, micro_batch=8)),
    ),
    Guide(
        "Stage 3 across 10 Gb/s Ethernet is several times slower than across a fast network",
        "Wang et al. 2023 (ZeRO++); Bekman, Machine Learning Engineering",
        3.0,
        60.0,
        lambda: slower(job(stage=3, gpus=64, network=100e9), job(stage=3, gpus=64, network=1.25e9)),
    ),
    Guide(
        "ZeRO++ is up to 2.2 times as fast on a slow network",
        "Wang et al. 2023 (ZeRO++): up to 2.2 times on 384 V100 GPUs, more the slower the network",
        1.2,
        2.6,
        lambda: slower(
            job("v100", stage=3, secondary=16, quantized_weights=True, quantized_gradients=True, **DGX_2),
            job("v100", stage=3, **DGX_2),
        ),
    ),
    Guide(
        "Optimizer offload at a small micro batch makes a step several times longer",
        "DeepSpeed issues 6695 (7 to 15 times) and 3901 (3.4 to 4.8 times), h2o-llmstudio issue 288 (6.4 times)",
        3.0,
        15.0,
        lambda: slower(job(stage=3, micro_batch=1, length=1024), job(stage=3, micro_batch=1, length=1024, optimizer_on="cpu")),
    ),
    Guide(
        "Accumulation hides most of the cost of optimizer offload",
        "Ren et al. 2021 (ZeRO-Offload): the update is amortised over the micro batches",
        1.0,
        1.5,
        lambda: slower(job(stage=2, accumulation=32), job(stage=2, accumulation=32, optimizer_on="cpu")),
    ),
    Guide(
        "Tensor parallelism belongs inside a machine",
        "Narayanan et al. 2021: use it up to the number of GPUs of a machine",
        1.5,
        20.0,
        lambda: slower(job(stage=1, gpus=16, tensor=8, params=7e10), job(stage=1, gpus=16, tensor=16, params=7e10)),
    ),
    Guide(
        "A pipeline of p stages and m micro batches waits (p - 1) / m of its time",
        "Narayanan et al. 2021: 7/8 more with p 8 and m 8, 7/64 with m 64",
        1.5,
        1.75,
        lambda: slower(job(stage=0, pipeline=8, accumulation=64, vocabulary=0), job(stage=0, pipeline=8, accumulation=8, vocabulary=0)),
    ),
    Guide(
        "bf16 on a V100 is several times slower than fp16: it has no tensor cores for it",
        "NVIDIA, V100 data sheet: 125 TFLOPS in fp16, 15.7 in fp32",
        4.0,
        9.0,
        lambda: slower(job("v100", precision="fp16"), job("v100", precision="bf16")),
    ),
)


def table() -> str:
    """The table in Markdown."""
    rows = ["| advice | source | stated | predicted |", "|---|---|---|---|"]
    rows += [f"| {one.advice} | {one.source} | {one.low:g} to {one.high:g} times | {one.ours():.2f} times |" for one in GUIDES]
    return "\n".join(rows) + "\n"
