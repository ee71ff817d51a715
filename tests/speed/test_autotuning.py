"""The published table of DeepSpeed's autotuner: of the configs of each model, the one that the step-time model ranks first is among the best.

The table compares what users tuned by hand with what the autotuner chose, end to end, and for some models the best config of each stage by
the autotuner's own measure, on 16 V100 GPUs of one machine. It does not publish the configs that the autotuner tried besides, nor what
`tune` could choose freely: only published ones are ranked, and
DistilBERT and GPT-2 XL have only one. Lengths of samples are those of the examples: 128 tokens of GLUE, 1024 of GPT-2.

Source: DeepSpeedExamples, training/autotuning/hf, its README and those of the models.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from dslint.speed.step import StepTime, step
from tests.speed.jobs import job

ENOUGH = 0.95


class Model(NamedTuple):
    """Sizes of a model of the table, and the precision of its training."""

    params: float
    layers: int
    hidden: int
    vocabulary: int
    length: int
    precision: str


MODELS = {
    "bert-base": Model(110e6, 12, 768, 30_522, 128, "fp32"),
    "bert-large": Model(340e6, 24, 1024, 30_522, 128, "fp32"),
    "gpt2": Model(124e6, 12, 768, 50_257, 1024, "fp16"),
    "gpt2-medium": Model(355e6, 24, 1024, 50_257, 1024, "fp16"),
    "gpt2-large": Model(774e6, 36, 1280, 50_257, 1024, "fp16"),
    "deberta": Model(1.5e9, 48, 1536, 128_100, 128, "fp16"),
}

TABLE = [
    ("bert-base", {(0, 128): 2523.684, (0, 235): 2736.561}),
    ("bert-base", {(0, 235): 2930.18, (1, 235): 2930.17, (2, 235): 2744.16, (3, 238): 2479.47}),
    ("bert-large", {(1, 64): 766.929, (1, 93): 808.168}),
    ("bert-large", {(0, 93): 835.244, (1, 93): 842.243, (2, 94): 764.524}),
    ("gpt2", {(1, 8): 397.827, (1, 14): 431.586}),
    ("gpt2", {(0, 11): 441.693, (1, 15): 452.004}),
    ("gpt2-medium", {(1, 4): 142.211, (1, 6): 163.3}),
    ("gpt2-large", {(1, 2): 56.797, (1, 3): 69.061}),
    ("deberta", {(1, 8): 140.587, (1, 11): 162.395}),
]
"""Samples per second by stage and micro batch size."""


def predicted(model: Model, stage: int, micro_batch: int) -> StepTime:
    sizes = {**model._asdict(), "active": model.params, "trained": model.params, "attended": model.length, "heads": model.hidden // 64}
    return step(job("v100", **sizes, stage=stage, micro_batch=micro_batch, gpus=16, local=16, flash=False))


@pytest.mark.parametrize(
    ("name", "measured"), TABLE, ids=[f"{name}-{len(measured)}-{number}" for number, (name, measured) in enumerate(TABLE)]
)
def test_the_config_ranked_first_is_among_the_best(name: str, measured: dict[tuple[int, int], float]) -> None:
    steps = {config: predicted(MODELS[name], *config) for config in measured}
    first = max(steps, key=lambda config: steps[config].job.samples / steps[config].seconds)
    assert measured[first] >= ENOUGH * max(measured.values())
