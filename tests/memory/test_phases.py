"""Peaks of single phases: what the real engine allocates there, and the estimate once left out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dslint.config import resolve
from dslint.facts import Facts, Integration, Release
from dslint.memory.engine import Run, run
from dslint.memory.families import read_shape
from dslint.memory.ledger import BACKWARD, FORWARD, INIT, STEP
from dslint.memory.numbers import with_adapters
from dslint.memory.plan import Workload
from dslint.memory.planning import make_plan
from dslint.memory.reasons import reasons
from dslint.probe.question import DecoderSizes
from dslint.source.parse import parse

SHAPE = DecoderSizes(layers=6, hidden=256, heads=4, kv_heads=2, head_size=64, ffn=1024, vocab=8000, tied=False)
PARAMETERS = 9_997_568
LARGEST = 8000 * 256
CPU = {"device": "cpu", "pin_memory": False}


def ran(zero: dict[str, Any], *, optimizer: str = "AdamW", adapters: int = 0, accumulation: int = 1, half: bool = True) -> Run:
    """A training of the built-in model with 8 ranks, replayed."""
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": accumulation,
        "optimizer": {"type": optimizer, "params": {"lr": 1e-4}},
        "zero_optimization": {"reduce_bucket_size": 65536, **zero},
        "bf16": {"enabled": half},
    }
    model = read_shape(SHAPE.as_data(), "built-in")
    model = with_adapters(model, adapters) if adapters else model
    resolved = resolve(parse(json.dumps(config)), Facts(world_size=8, integration=Integration.DEEPSPEED))
    return run(model, make_plan(resolved, Workload(32), model.hidden), prints=False)


def test_parameter_offload_has_the_part_of_a_weight_on_the_device() -> None:
    options = {"stage3_prefetch_bucket_size": 0, "stage3_param_persistence_threshold": 100_000}
    found = ran({"stage": 3, "offload_optimizer": CPU, "offload_param": CPU, **options})
    assert found.layout.whole == PARAMETERS
    assert found.peaks[INIT].total == 4_739_072  # as `dslint probe --device fake` of DeepSpeed 0.19.8 measures it
    assert found.peaks[STEP].total == 2_792_768  # the same


def test_frozen_weights_are_not_gathered_for_hooks() -> None:
    whole, adapted = (ran({"stage": 3}, adapters=adapters) for adapters in (0, 8))
    assert whole.peaks[INIT].total > 2 * LARGEST + 2 * PARAMETERS // 8
    assert adapted.peaks[INIT].total < 2 * LARGEST + 2 * PARAMETERS // 8


def test_adagrad_has_its_states_after_initialize_without_zero() -> None:
    assert ran({"stage": 0}, optimizer="Adagrad", half=False).peaks[INIT].total == 8 * PARAMETERS
    assert ran({"stage": 0}, half=False).peaks[INIT].total == 4 * PARAMETERS


def test_the_call_of_step_between_micro_batches_has_all_gradients() -> None:
    one, two = (ran({"stage": 1, "offload_optimizer": CPU, "overlap_comm": False}, accumulation=steps) for steps in (1, 2))
    assert one.peaks[STEP].total == one.steady.total
    assert two.peaks[STEP].total >= two.steady.total + 2 * PARAMETERS


GEMMA = {
    "model_type": "gemma",
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 8000,
    "tie_word_embeddings": False,
}
"""Trained with Muon by `dslint probe --device fake` of DeepSpeed 0.19.8, on 4 ranks: 29,208,331 bytes between steps, at most 22,401,795
in initialize, 53,511,323 in the backward and 39,837,963 in the step."""


def test_muon_keeps_its_buffers_at_stage_3() -> None:
    zero = {"stage": 3, "reduce_bucket_size": 1_000_000, "stage3_prefetch_bucket_size": 5_000_000, "sub_group_size": 100_000}
    config = {
        "train_micro_batch_size_per_gpu": 3,
        "optimizer": {"type": "Muon", "params": {"lr": 1e-3, "momentum": 0.95}},
        "zero_optimization": {**zero, "stage3_param_persistence_threshold": 2560, "reduce_scatter": False},
        "bf16": {"enabled": True},
    }
    model = read_shape(GEMMA, "gemma")
    resolved = resolve(parse(json.dumps(config)), Facts(world_size=4, integration=Integration.DEEPSPEED))
    found = run(model, make_plan(resolved, Workload(32, checkpoint_every=1), model.hidden), roomy=True, prints=False)
    assert found.steady.total == pytest.approx(29_208_331, abs=200)
    assert found.peaks[INIT].total == pytest.approx(22_401_795, abs=200)
    assert found.peaks[BACKWARD].total == pytest.approx(53_511_323, rel=0.001)
    assert 0.95 < found.peaks[STEP].total / 39_837_963 < 1


LARGE_VOCABULARY = {
    "model_type": "smollm3",
    "hidden_size": 384,
    "intermediate_size": 768,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}


def test_the_group_of_muon_that_is_no_matrices_is_flattened_beside_master_weights_of_the_first() -> None:
    """Measured as above, on rank 3 of 8: the embeddings are most of the weights, and Muon leaves them to AdamW."""
    config = {
        "train_micro_batch_size_per_gpu": 3,
        "optimizer": {"type": "Muon", "params": {"lr": 1e-3, "momentum": 0.95}},
        "zero_optimization": {"stage": 1, "reduce_bucket_size": 1_000_000, "contiguous_gradients": False},
        "fp16": {"enabled": True},
    }
    model = read_shape(LARGE_VOCABULARY, "smollm3")
    resolved = resolve(parse(json.dumps(config)), Facts(world_size=8, integration=Integration.DEEPSPEED))
    found = run(model, make_plan(resolved, Workload(128, checkpoint_every=1), model.hidden), rank=3, roomy=True, prints=False)
    assert found.steady.total == pytest.approx(109_181_764, abs=500)
    assert found.peaks[INIT].total == pytest.approx(116_753_280, abs=500)


SMALL = {"hidden_size": 384, "intermediate_size": 1152, "num_attention_heads": 4, "vocab_size": 32000}
LARGE_PERSISTENT = {"stage": 3, "stage3_param_persistence_threshold": 100_000, "stage3_max_reuse_distance": 1_000_000}
OFFLOADED = {"stage": 3, "offload_optimizer": CPU, "offload_param": CPU, "stage3_prefetch_bucket_size": 0}
PROBED: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], int, dict[str, int]]] = [
    (
        "the master weights of a sub group are cast and copied at a time",
        {**SMALL, "model_type": "llama", "num_hidden_layers": 5},
        {"stage": 3, "sub_group_size": 1_000_000, "stage3_prefetch_bucket_size": 0, "stage3_param_persistence_threshold": 3840},
        {"world": 2, "optimizer": "SGD", "kind": "fp16", "zero_init": False},
        32,
        {INIT: 163_235_457, STEP: 187_811_553},
    ),
    (
        "weights that stay whole are partitioned during the step",
        {**SMALL, "model_type": "gemma", "num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 32, "tie_word_embeddings": False},
        {**LARGE_PERSISTENT, "stage3_prefetch_bucket_size": 0},
        {"world": 64, "optimizer": "AdamW", "kind": "fp16"},
        128,
        {INIT: 30_201_363, STEP: 11_969_663},
    ),
    (
        "one rank copies an offloaded weight once",
        {**SMALL, "model_type": "smollm3", "intermediate_size": 768, "num_hidden_layers": 6, "num_key_value_heads": 2},
        {**OFFLOADED, "stage3_param_persistence_threshold": 100_000, "sub_group_size": 100_000},
        {"world": 1, "optimizer": "AdamW", "kind": "bf16"},
        64,
        {INIT: 51_152_096},
    ),
    (
        "stage 1 has all gradients and its buckets between micro batches",
        {
            "model_type": "gpt_neox",
            "hidden_size": 256,
            "intermediate_size": 1024,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "vocab_size": 8000,
            "tie_word_embeddings": True,
        },
        {"stage": 1, "reduce_bucket_size": 20_000_000, "overlap_comm": False},
        {"world": 1, "optimizer": "Lion", "kind": "fp32", "accumulation": 2},
        256,
        {STEP: 150_684_740},
    ),
    (
        "gradients in fp32 stay on the device until the step, although the optimizer is on the host",
        {**SMALL, "model_type": "llama", "intermediate_size": 1536, "num_hidden_layers": 6, "vocab_size": 1000}
        | {"num_attention_heads": 8, "num_key_value_heads": 1},
        {"stage": 2, "reduce_bucket_size": 20_000_000, "offload_optimizer": CPU},
        {"world": 16, "rank": 15, "optimizer": "AdamW", "kind": "bf16", "data_types": {"grad_accum_dtype": "fp32"}, "batch": 1},
        128,
        {BACKWARD: 99_852_428, STEP: 31_285_960},
    ),
    (
        "Muon's two groups are flattened one after the other",
        {
            "model_type": "smollm3",
            "hidden_size": 256,
            "intermediate_size": 512,
            "num_hidden_layers": 3,
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
            "vocab_size": 1000,
            "tie_word_embeddings": False,
        },
        {"stage": 1, "reduce_bucket_size": 20_000_000},
        {"world": 64, "rank": 49, "optimizer": "Muon", "kind": "fp16"},
        32,
        {INIT: 8_892_032, BACKWARD: 50_696_420},
    ),
    (
        "a sub group has parameters of one of Muon's groups",
        {
            "model_type": "qwen3",
            "hidden_size": 512,
            "intermediate_size": 2048,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 64,
            "vocab_size": 8000,
            "tie_word_embeddings": True,
        },
        {"stage": 3, "reduce_bucket_size": 262_144, "stage3_prefetch_bucket_size": 0, "reduce_scatter": False},
        {"world": 1, "optimizer": "Muon", "kind": "fp32", "zero_init": False},
        128,
        {INIT: 184_059_137, STEP: 233_233_689},
    ),
]
"""What a case shows, the model, the section zero_optimization, options, the length, and peaks as `dslint probe --device fake` of DeepSpeed
0.19.8 measures them.
"""


@pytest.mark.parametrize(("data", "zero", "how", "length", "peaks"), [case[1:] for case in PROBED], ids=[case[0] for case in PROBED])
def test_peaks_are_those_of_the_probe(
    data: dict[str, Any], zero: dict[str, Any], how: dict[str, Any], length: int, peaks: dict[str, int]
) -> None:
    config = {
        "train_micro_batch_size_per_gpu": how.get("batch", 2),
        "gradient_accumulation_steps": how.get("accumulation", 1),
        "data_types": how.get("data_types", {}),
        "optimizer": {"type": how["optimizer"], "params": {"lr": 1e-4}},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"reduce_bucket_size": 1_000_000, **zero},
        **({how["kind"]: {"enabled": True}} if how["kind"] != "fp32" else {}),
    }
    model = read_shape(data, "m")
    facts = Facts(world_size=how["world"], integration=Integration.DEEPSPEED)
    workload = Workload(length, zero_init=how.get("zero_init", True))
    plan = make_plan(resolve(parse(json.dumps(config)), facts), workload, model.hidden)
    found = run(model, plan, how.get("rank", 0), roomy=True, prints=False)
    for phase, measured in peaks.items():
        assert found.peaks[phase].total == pytest.approx(measured, rel=0.001), phase


def test_twin_flow_keeps_the_first_sub_groups_on_the_device() -> None:
    """`dslint probe --device fake`: 16 bytes for each of their elements, for master weights, gradients and states."""
    groups = {"stage": 3, "sub_group_size": 100_000, "reduce_bucket_size": 65536}
    whole, half = (ran({**groups, "offload_optimizer": {**CPU, "ratio": ratio}}) for ratio in (1.0, 0.5))
    kept = (half.steady.total - whole.steady.total) // 16
    assert 0.3 < kept / (PARAMETERS / 8) < 0.5  # of an odd number of groups the smaller half, without the one with the embedding


def test_zenflow_keeps_states_of_the_selected_columns() -> None:
    """`dslint probe --device fake` of a model with 26,286,592 parameters on 2 ranks: these bytes per parameter more with ZenFlow."""
    zero = {"stage": 2, "offload_optimizer": CPU, "overlap_comm": False}
    without, with_it = ran(zero), ran({**zero, "zenflow": {"topk_ratio": 0.1, "select_interval": 4, "update_interval": 2}})
    more = {phase: (with_it.peaks[phase].total - without.peaks[phase].total) / PARAMETERS for phase in (INIT, BACKWARD, STEP)}
    assert more == pytest.approx({INIT: 2.0, BACKWARD: 0.8, STEP: 1.2}, rel=0.01)


LLAMA = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 8000,
}


@pytest.mark.parametrize(
    ("plain", "checkpointed", "tied", "forward", "backward"),
    [
        (False, False, False, 142_446_105, 146_607_129),
        (True, False, False, 151_359_001, 155_520_025),
        (True, True, False, 131_818_521, 135_979_545),
        (True, False, True, 134_975_001, 140_208_921),
    ],
)  # as `dslint probe --device fake` of DeepSpeed 0.19.8 measures it
def test_linear_layers_of_torch_keep_gathered_weights(plain: bool, checkpointed: bool, tied: bool, forward: int, backward: int) -> None:
    done = _ran_linear({"memory_efficient_linear": not plain}, Workload(64, checkpoint_every=int(checkpointed)), tied=tied)
    assert done.peaks[FORWARD].total == pytest.approx(forward, rel=5e-3)
    assert done.peaks[BACKWARD].total == pytest.approx(backward, rel=5e-3)


@pytest.mark.parametrize(
    ("release", "zero_init", "forward"), [("0.19.3", False, 151_359_129), ("0.19.3", True, 142_446_105), ("0.19.4", False, 142_446_233)]
)
def test_earlier_releases_replace_linear_only_in_zero_init(release: str, zero_init: bool, forward: int) -> None:
    done = _ran_linear({}, Workload(64, zero_init=zero_init), release=release)
    assert done.peaks[FORWARD].total == pytest.approx(forward, rel=5e-3)


def test_a_reason_names_kept_linear_weights() -> None:
    config = resolve(
        parse('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "memory_efficient_linear": false}}'),
        Facts(world_size=8, integration=Integration.DEEPSPEED),
    )
    model = read_shape(LLAMA, "llama")
    plan = make_plan(config, Workload(64), model.hidden)
    said = "linear layers: they keep their gathered weights until the backward, because memory_efficient_linear is off"
    assert said in reasons(model, plan)
    assert said not in reasons(model, plan.but(checkpoint_every=1))


def _ran_linear(zero: dict[str, Any], workload: Workload, *, tied: bool = False, release: str = "0.19.8") -> Run:
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": {
            "stage": 3,
            "reduce_bucket_size": 1_000_000,
            "stage3_prefetch_bucket_size": 500_000,
            "stage3_param_persistence_threshold": 5000,
            "stage3_max_reuse_distance": 1_000_000,
            **zero,
        },
        "bf16": {"enabled": True},
    }
    model = read_shape({**LLAMA, "tie_word_embeddings": tied}, "llama")
    facts = Facts(world_size=8, integration=Integration.DEEPSPEED, deepspeed=Release.parse(release))
    return run(model, make_plan(resolve(parse(json.dumps(config)), facts), workload, model.hidden), prints=False)


def test_compressed_attention_and_routers_in_fp32() -> None:
    sizes = {
        "model_type": "deepseek_v3",
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 5,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "vocab_size": 1000,
        "kv_lora_rank": 64,
        "q_lora_rank": 96,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 128,
        "first_k_dense_replace": 1,
        "tie_word_embeddings": True,
    }
    config = {
        "train_micro_batch_size_per_gpu": 3,
        "optimizer": {"type": "Lion", "params": {"lr": 1e-4}},
        "zero_optimization": {"stage": 1, "reduce_bucket_size": 1_000_000, "offload_optimizer": CPU, "overlap_comm": True},
        "bf16": {"enabled": True},
    }
    model = read_shape(sizes, "deepseek")
    plan = make_plan(
        resolve(parse(json.dumps(config)), Facts(world_size=16, integration=Integration.DEEPSPEED)), Workload(256), model.hidden
    )
    assert run(model, plan).peaks[FORWARD].total == pytest.approx(122_337_184, rel=5e-3)  # as the fake device measures it
