"""Rules of effect `slow` say what the mistake costs in a setup whose model, GPU and ranks are known."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from dslint.config import resolve
from dslint.config.context import Context
from dslint.facts import Facts, Integration
from dslint.facts.gpus import GPUS
from dslint.facts.model_config import load_model
from dslint.lint.run import run_rules
from dslint.registry.rules import own_rules
from dslint.source.parse import parse

BASE: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
}
CPU = {"device": "cpu"}
SCHEDULE = {"schedule_type": "fixed_linear", "schedule_config": {"total_curriculum_step": 9000, "difficulty_step": 10}}
METRIC = {"index_to_sample_path": "a", "index_to_metric_path": "b", "difficulty_type": "value", "clustering_type": "single_cluster"}
CURRICULUM = {
    "enabled": True,
    "data_cluster_path": "c",
    "curriculum_metrics": {"seqlen": {**METRIC, "min_difficulty": 64, "max_difficulty": 2048, **SCHEDULE}},
}

COSTLY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "DS323": ({}, {"gpu": "v100"}),
    "DS409": ({"zero_optimization": {"stage": 3}}, {"world": 1, "gpu": "b200"}),
    "DS413": ({"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 0}}, {"world": 16, "nodes": 2}),
    "DS423": ({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 16}}, {"world": 32, "nodes": 4}),
    "DS430": ({"zero_optimization": {"stage": 2, "reduce_bucket_size": 1000}}, {}),
    "DS524": ({"zero_optimization": {"stage": 3, "offload_param": CPU}}, {}),
    "DS526": ({"zero_force_ds_cpu_optimizer": False, "optimizer": None, "zero_optimization": {"stage": 2, "offload_optimizer": CPU}}, {}),
    "DS527": ({"zero_optimization": {"stage": 2, "offload_optimizer": {**CPU, "pin_memory": False}}}, {}),
    "DS528": ({"gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2, "offload_optimizer": CPU}}, {}),
    "DS623": (
        {
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "torch_adam": True}},
            "zero_optimization": {"stage": 2, "offload_optimizer": CPU},
        },
        {},
    ),
    "DS705": ({"activation_checkpointing": {"profile": True}}, {}),
    "DS805": ({"comms_logger": {"enabled": True}, "zero_optimization": {"stage": 3}}, {"world": 16, "nodes": 2}),
    "DS436": ({"zero_optimization": {"stage": 3, "sub_group_size": 0}}, {}),
    "DS818": (
        {"data_efficiency": {"enabled": True, "data_sampling": {"enabled": True, "curriculum_learning": CURRICULUM}}},
        {},
    ),
    "DS837": ({"tensor_parallel": {"autotp_size": 16}}, {"world": 16, "nodes": 2}),
}


def helps(code: str, *, known: bool = True) -> list[str]:
    changes, where = COSTLY[code]
    data = {key: value for key, value in {**BASE, **changes}.items() if value is not None}
    gpu = GPUS[where.get("gpu", "h100")]
    model = load_model("llama-3-8b") if known else None
    facts = Facts(
        world_size=where.get("world", 8),
        nodes=where.get("nodes"),
        gpu=gpu,
        gpu_memory=gpu.memory,
        integration=Integration.DEEPSPEED,
        model=model,
    )
    rules = [rule for rule in own_rules() if rule.code == code]
    config = resolve(parse(json.dumps(data)), Context(facts))
    return [found.help or "" for found in run_rules(rules, config, "")[0]]


@pytest.mark.parametrize("code", COSTLY)
def test_the_cost_is_said(code: str) -> None:
    found = helps(code)
    assert found
    for text in found:
        assert "By prediction" in text, text
        factor = re.search(r"takes (\d[\d.]*) times", text)
        assert factor is None or float(factor[1]) > 1


@pytest.mark.parametrize("code", [code for code in COSTLY if code != "DS837"])  # which needs a model
def test_nothing_is_said_of_an_unknown_model(code: str) -> None:
    assert helps(code, known=False)
    assert not any("By prediction" in text for text in helps(code, known=False))


def test_offload_to_slow_memory_costs_more_than_a_lost_overlap() -> None:
    factors = [float(match[1]) for text in helps("DS623") if (match := re.search(r"takes (\d[\d.]*) times", text))]
    assert factors
    assert factors[0] > 1.5
