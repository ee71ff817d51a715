"""The weights of every family are those of the real class in transformers, name by name, in its order."""

from __future__ import annotations

from typing import Any

import pytest

from dslint.memory.families import FAMILIES, ShapeError, read_shape

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}
ENCODER = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
MOE = {**SMALL, "num_experts": 6, "moe_intermediate_size": 32}
T5 = {"d_model": 64, "d_kv": 8, "d_ff": 160, "num_layers": 2, "num_heads": 8, "vocab_size": 1000}

CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama", SMALL),
    ("llama", {**SMALL, "tie_word_embeddings": True}),
    ("llama", {**SMALL, "attention_bias": True, "mlp_bias": True, "head_dim": 24}),
    ("mistral", SMALL),
    ("qwen2", SMALL),
    ("qwen2", {**SMALL, "tie_word_embeddings": True}),
    ("qwen3", {**SMALL, "head_dim": 16}),
    ("qwen3", SMALL),
    ("gemma", {**SMALL, "head_dim": 16}),
    ("gemma2", {**SMALL, "head_dim": 16}),
    ("gemma3_text", {**SMALL, "head_dim": 16}),
    ("gpt2", {"n_embd": 64, "n_layer": 3, "n_head": 8, "vocab_size": 1000, "n_positions": 128}),
    ("gpt2", {"n_embd": 64, "n_layer": 3, "n_head": 8, "n_inner": 100, "tie_word_embeddings": False}),
    ("gpt_neox", ENCODER),
    ("gpt_neox", {**ENCODER, "attention_bias": False}),
    ("phi", SMALL),
    ("phi", {**SMALL, "qk_layernorm": True}),
    ("phi3", {**SMALL, "pad_token_id": 0}),
    ("mixtral", SMALL),
    ("mixtral", {**SMALL, "num_local_experts": 3}),
    ("qwen2_moe", {**MOE, "shared_expert_intermediate_size": 48}),
    ("qwen2_moe", {**MOE, "decoder_sparse_step": 2, "mlp_only_layers": [1]}),
    ("qwen3_moe", {**MOE, "head_dim": 16}),
    ("bert", ENCODER),
    ("bert", {**ENCODER, "tie_word_embeddings": False}),
    ("t5", T5),
    ("t5", {**T5, "feed_forward_proj": "gated-gelu", "num_decoder_layers": 1}),
    ("vit", {**ENCODER, "image_size": 64, "patch_size": 8, "num_channels": 1}),
    ("vit", {key: value for key, value in ENCODER.items() if key != "vocab_size"}),
]


def _real(family: str, sizes: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers", minversion="5")
    auto = {
        "t5": transformers.AutoModelForSeq2SeqLM,
        "bert": transformers.AutoModelForMaskedLM,
        "vit": transformers.AutoModelForImageClassification,
    }.get(family, transformers.AutoModelForCausalLM)
    config = transformers.AutoConfig.for_model(family, **sizes)
    if family == "bert":
        config.tie_word_embeddings = sizes.get("tie_word_embeddings", True)
    with torch.device("meta"):
        model = auto.from_config(config)
    return [(name, tuple(weight.shape)) for name, weight in model.named_parameters()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("family", "sizes"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_weights_are_those_of_transformers(family: str, sizes: dict[str, Any]) -> None:
    ours = [(weight.name, weight.shape) for weight in read_shape({"model_type": family, **sizes}, "config.json").weights]
    assert ours == _real(family, sizes)


def test_every_family_is_tried() -> None:
    assert {family for family, _ in CASES} == set(FAMILIES)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"model_type": "mamba"}, "mamba"),
        ({"model_type": "llama"}, "hidden_size"),
        ({"model_type": "llama", **SMALL, "vocab_size": 0}, "vocab_size is 0"),
        ({"model_type": "llama", **SMALL, "vocab_size": -5}, "vocab_size is -5"),
        ({"model_type": "llama", **SMALL, "vocab_size": "32k"}, "vocab_size is '32k'"),
        ({"model_type": "llama", **SMALL, "num_attention_heads": 7}, "does not divide"),
        ({"model_type": "llama", **SMALL, "num_key_value_heads": 3}, "does not divide"),
    ],
)
def test_what_is_no_model_is_said_in_a_sentence(data: dict[str, Any], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        read_shape(data, "config.json")
