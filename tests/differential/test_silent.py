"""What DeepSpeed accepts in silence and drops or takes otherwise, dslint says.

Each case changes one thing of a working config. DeepSpeed still parses it, without a word; dslint says something that it does not say of the
config it was made from.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from dslint.facts import Facts, Integration
from dslint.lint.document import lint_document
from dslint.registry.rules import default_rules, own_rules
from dslint.rule import RuleInfo
from dslint.source.parse import parse
from tests.engine.harness import Case, Engine

BASE: dict[str, Any] = {
    "train_batch_size": 32,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-4, "warmup_num_steps": 10}},
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2, "overlap_comm": True},
    "activation_checkpointing": {"number_checkpoints": 4},
    "flops_profiler": {"enabled": False, "profile_step": 5},
}
REMOVE = object()

CASES: dict[str, dict[str, Any]] = {
    "zero_optimisation": {"zero_optimization": REMOVE, "zero_optimisation": {"stage": 2}},
    "BF16": {"bf16": REMOVE, "BF16": {"enabled": True}},
    "optim": {"optimizer": REMOVE, "optim": BASE["optimizer"]},
    "lr_scheduler": {"scheduler": REMOVE, "lr_scheduler": BASE["scheduler"]},
    "gradient_clip": {"gradient_clipping": REMOVE, "gradient_clip": 1.0},
    "mixed_precision": {"mixed_precision": {"enabled": True}},
    "train_bach_size": {"train_batch_size": REMOVE, "train_bach_size": 32},
    "a typo in activation_checkpointing": {"activation_checkpointing": {"number_checkoints": 4}},
    "a typo in aio": {"aio": {"bloc_size": 262144}},
    "a typo in flops_profiler": {"flops_profiler": {"enabld": True}},
    "a typo in checkpoint": {"checkpoint": {"load_univrsal": True}},
    "a typo in data_types": {"data_types": {"grad_acum_dtype": "fp32"}},
    "a typo in torch_autocast": {"torch_autocast": {"enable": True}},
    "a typo in optimizer": {"optimizer": {"type": "AdamW", "parms": {"lr": 1e-4}}},
    "a typo in scheduler": {"scheduler": {"typ": "WarmupLR", "params": {"warmup_num_steps": 10}}},
    "overlap_comm at the top": {"overlap_comm": True, "zero_optimization": {"stage": 2}},
    "stage at the top": {"zero_optimization": {"overlap_comm": True}, "stage": 2},
    "ZeRO without a stage": {"zero_optimization": {"overlap_comm": True}},
    "an empty ZeRO": {"zero_optimization": {}},
    "bf16 without enabled": {"bf16": {"check_grad_overflow": True}},
    "an empty bf16": {"bf16": {}},
    "auto for bf16": {"bf16": {"enabled": "auto"}},
    "auto for the stage": {"zero_optimization": {"stage": "auto"}},
    "auto for a device": {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "auto"}}},
    "auto for an unknown key": {"zero_optimization": {"stage": 2, "reduce_bucket_sizee": "auto"}},
    "auto for a plain boolean": {"prescale_gradients": "auto"},
    "false in quotes": {"zero_allow_untested_optimizer": "false"},
    "false in quotes in a section": {"activation_checkpointing": {"cpu_checkpointing": "false"}},
    "false in quotes in checkpoint": {"checkpoint": {"load_universal": "false"}},
    "false in quotes in torch_autocast": {"torch_autocast": {"enabled": "false"}},
    "false in quotes for the optimizer": {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": "false"}}},
    "bf16 beside bfloat16": {"bf16": {"enabled": False}, "bfloat16": {"enabled": True}},
    "offload_param at stage 2": {"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}},
    "NVMe at stage 2": {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/x"}}},
    "offload at stage 0": {"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}},
    "stage 3 keys at stage 2": {"zero_optimization": {"stage": 2, "stage3_max_live_parameters": 1e8}},
    "sub_group_size at stage 2": {"zero_optimization": {"stage": 2, "sub_group_size": 1e8}},
    "quantized weights at stage 2": {"zero_optimization": {"stage": 2, "zero_quantized_weights": True}},
    "optimizer without params": {"optimizer": {"type": "AdamW"}, "scheduler": REMOVE},
    "optimizer with null params": {"optimizer": {"type": "AdamW", "params": None}, "scheduler": REMOVE},
    "optimizer with flat params": {"optimizer": {"type": "AdamW", "lr": 1e-4}, "scheduler": REMOVE},
    "optimizer without a type": {"optimizer": {"params": {"lr": 1e-4}}},
    "scheduler without a type": {"scheduler": {"params": {"warmup_num_steps": 10}}},
    "Adam that is AdamW": {"optimizer": {"type": "Adam", "params": {"lr": 1e-4, "weight_decay": 0.1}}},
    "the scheduler's own rate": {"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3, "warmup_num_steps": 10}}},
    "half a sample": {"train_batch_size": REMOVE, "train_micro_batch_size_per_gpu": 2.5},
    "true for a number": {"train_batch_size": REMOVE, "train_micro_batch_size_per_gpu": True},
    "negative clipping": {"gradient_clipping": -1.0},
    "true for clipping": {"gradient_clipping": True},
    "a high loss scale": {"bf16": REMOVE, "fp16": {"enabled": True, "initial_scale_power": 32}},
    "contiguous without a number": {"activation_checkpointing": {"partition_activations": True, "contiguous_memory_optimization": True}},
}


def config_of(change: dict[str, Any]) -> dict[str, Any]:
    config = {**copy.deepcopy(BASE), **change}
    return {key: value for key, value in config.items() if value is not REMOVE}


def said(config: dict[str, Any], rules: tuple[RuleInfo, ...]) -> set[tuple[str, str | None]]:
    found = lint_document(parse(json.dumps(config)), "c.json", Facts(8, Integration.DEEPSPEED), rules).diagnostics
    return {(d.code, d.pointer) for d in found}


@pytest.mark.parametrize("name", CASES)
def test_dslint_says_something_new(name: str) -> None:
    assert said(config_of(CASES[name]), own_rules()) - said(BASE, own_rules())  # with --pedantic, too


def test_the_config_they_are_made_from_is_clean() -> None:
    assert said(BASE, default_rules()) == set()


@pytest.mark.deepspeed
def test_deepspeed_parses_them_without_a_word(engine: Engine) -> None:
    outcomes = engine.ask(Case(name, text=json.dumps(config_of(change)), world_size=8) for name, change in CASES.items())
    assert {outcome.id: outcome.error for outcome in outcomes if outcome.raised} == {}
    loud = [word for outcome in outcomes for word in outcome.warnings if "accelerator" not in word.lower()]
    assert loud == []
