"""The weights of every family are those of the real class in transformers, name by name, in its order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dslint.memory.activations import operations
from dslint.memory.families import FAMILIES, ShapeError, read_shape
from dslint.memory.given import ModelRequest, model_of
from dslint.memory.plan import Plan, Workload
from dslint.memory.shapes import parameters_in_words, rounded
from dslint.memory.sizes import TRAITS
from dslint.memory.towers import towers

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
LATENT = {
    **SMALL,
    "num_key_value_heads": 8,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}
WHISPER = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 160,
    "decoder_ffn_dim": 128,
    "vocab_size": 1000,
    "num_mel_bins": 8,
    "max_source_positions": 20,
    "max_target_positions": 30,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
DEBERTA = {"share_att_key": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0}

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
    ("opt", {**ENCODER, "ffn_dim": 160, "word_embed_proj_dim": 64}),
    ("opt", {**ENCODER, "ffn_dim": 160, "word_embed_proj_dim": 32}),
    ("bloom", {"hidden_size": 64, "n_layer": 2, "n_head": 8, "vocab_size": 1000}),
    ("gptj", {"n_embd": 64, "n_layer": 2, "n_head": 8, "vocab_size": 1000, "rotary_dim": 4}),
    ("glm", {**SMALL, "head_dim": 8, "pad_token_id": 0}),
    ("glm4", {**SMALL, "head_dim": 8, "pad_token_id": 0}),
    ("olmo2", {**SMALL, "pad_token_id": 0, "eos_token_id": 1}),
    ("gpt_oss", {**SMALL, "num_local_experts": 4, "head_dim": 16, "pad_token_id": 0, "eos_token_id": 1}),
    ("deepseek_v2", {**LATENT, "q_lora_rank": None}),
    ("deepseek_v2", {**LATENT, "q_lora_rank": 24}),
    ("deepseek_v3", {**LATENT, "q_lora_rank": 24, "n_group": 1, "topk_group": 1}),
    ("llama4_text", {**SMALL, "num_local_experts": 4, "intermediate_size_mlp": 192, "head_dim": 16, "interleave_moe_layer_step": 2}),
    ("roberta", ENCODER),
    ("deberta-v2", {**ENCODER, "relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm"} | DEBERTA),
    ("bert", ENCODER),
    ("bert", {**ENCODER, "tie_word_embeddings": False}),
    ("t5", T5),
    ("t5", {**T5, "feed_forward_proj": "gated-gelu", "num_decoder_layers": 1}),
    ("whisper", WHISPER),
    ("vit", {**ENCODER, "image_size": 64, "patch_size": 8, "num_channels": 1}),
    ("vit", {key: value for key, value in ENCODER.items() if key != "vocab_size"}),
]


def _real(family: str, sizes: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers", minversion="5")
    auto = {
        "t5": transformers.AutoModelForSeq2SeqLM,
        "bert": transformers.AutoModelForMaskedLM,
        "roberta": transformers.AutoModelForMaskedLM,
        "deberta-v2": transformers.AutoModelForMaskedLM,
        "vit": transformers.AutoModelForImageClassification,
        "whisper": transformers.AutoModelForSpeechSeq2Seq,
    }.get(family, transformers.AutoModelForCausalLM)
    config = transformers.AutoConfig.for_model(family, **sizes)
    if family == "bert":
        config.tie_word_embeddings = sizes.get("tie_word_embeddings", True)
    with torch.device("meta"):
        model = auto.from_config(config)
    return [(name, tuple(weight.shape)) for name, weight in model.named_parameters()]


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("family", "sizes"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_weights_are_those_of_transformers(family: str, sizes: dict[str, Any]) -> None:
    ours = [(weight.name, weight.shape) for weight in read_shape({"model_type": family, **sizes}, "config.json").weights]
    assert ours == _real(family, sizes)


def test_every_family_is_tried() -> None:
    assert {family for family, _ in CASES} == set(FAMILIES) - set(TRAITS) - {"chatglm"}


def test_chatglm_is_glm_with_other_names() -> None:
    sizes = {"hidden_size": 64, "ffn_hidden_size": 160, "num_layers": 3, "num_attention_heads": 8, "kv_channels": 8}
    theirs = read_shape({"model_type": "chatglm", **sizes, "multi_query_group_num": 2, "padded_vocab_size": 1000}, "config.json")
    assert theirs.size == read_shape({"model_type": "glm", **SMALL, "head_dim": 8}, "config.json").size


@pytest.mark.parametrize(
    ("data", "family"),
    [
        ({"model_type": "qwen2_5_vl", **SMALL, "vision_config": {"depth": 2}}, "qwen2"),
        ({"model_type": "llama4", "text_config": {"model_type": "llama4_text", **SMALL, "num_local_experts": 4}}, "llama4_text"),
        ({"model_type": "qwen3_omni_moe", "thinker_config": {"text_config": {"model_type": "qwen3_omni_moe_text", **MOE}}}, "qwen3_moe"),
    ],
)
def test_of_several_parts_the_language_model_counts(data: dict[str, Any], family: str) -> None:
    assert read_shape(data, "config.json").family == family


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "gemma3", "llava"])
def test_the_towers_of_a_model_count_to_a_few_percent(family: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers", minversion="5")
    config = transformers.AutoConfig.for_model(family)
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(config)
    real = sum(weight.numel() for name, weight in model.named_parameters() if "language_model" not in name and "lm_head" not in name)
    found = towers(config.to_dict(), config.text_config.hidden_size)
    assert sum(weight.size for weight in found) == pytest.approx(real, rel=0.1)


def test_towers_are_trained_or_frozen(tmp_path: Path) -> None:
    vision = {"model_type": "qwen2_5_vl", "depth": 2, "hidden_size": 32, "intermediate_size": 64, "patch_size": 14}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "qwen2_5_vl", **SMALL, "vision_config": vision}), encoding="utf-8")
    trained, frozen = (model_of(ModelRequest(str(path), frozen_towers=frozen)) for frozen in (False, True))
    count = sum(weight.size for weight in towers({"vision_config": vision}, 64))
    assert trained.model.size == frozen.model.size == trained.model.trained == frozen.model.trained + count
    assert f"{count:,} parameters" in trained.assumed[0]


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


def _safetensors(folder: Path, names: dict[str, tuple[int, ...]], *, files: int) -> None:
    """Files with headers of these weights, and without any contents."""
    for number in range(files):
        part = {"__metadata__": {"format": "pt"}}
        part |= {name: {"dtype": "BF16", "shape": shape} for index, (name, shape) in enumerate(names.items()) if index % files == number}
        header = json.dumps(part).encode()
        (folder / f"model-{number}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)


@pytest.mark.parametrize("family", ["llama", "qwen2", "olmo2", "qwen3"])
def test_an_unknown_family_has_the_weights_of_its_files(family: str, tmp_path: Path) -> None:
    known = read_shape({"model_type": family, **SMALL, "head_dim": 8}, "config.json")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "quokka", "num_attention_heads": 8}), encoding="utf-8")
    with pytest.raises(ShapeError, match="safetensors"):
        model_of(ModelRequest(str(tmp_path)))
    _safetensors(tmp_path, {weight.name: weight.shape for weight in sorted(known.weights)}, files=1)  # lm_head before model
    read = model_of(ModelRequest(str(tmp_path)))
    found, notes = read.model, read.assumed
    assert found.size == known.size
    assert (len(found.blocks), found.hidden, found.vocabulary, found.tied) == (3, 64, 1000, False)
    assert not found.exact
    assert "quokka is an unknown family" in notes[0]
    plan = Plan(Workload(128), world=1, local=1, replicas=1)
    kept = [sum(o.kept for block in operations(model, plan).blocks for o in block) for model in (found, known)]
    assert kept[0] == pytest.approx(kept[1], rel=0.15)
    assert model_of(ModelRequest(str(tmp_path), params=1e9)).model.family == "numbers"


def test_broken_files_of_weights_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "quokka"}), encoding="utf-8")
    for number, content in enumerate((b"", b"\xff" * 8, (2**40).to_bytes(8, "little"), (4).to_bytes(8, "little") + b"null")):
        (tmp_path / f"{number}.safetensors").write_bytes(content)
    with pytest.raises(ShapeError, match="no hidden_size, which quokka requires"):
        model_of(ModelRequest(str(tmp_path)))


@pytest.mark.parametrize(("size", "words"), [(6.738e9, "6.74"), (235.1e9, "235"), (1.026e12, "1,026")])
def test_a_number_of_parameters_in_words(size: float, words: str) -> None:
    assert parameters_in_words(size) == f"{words} billion parameters"
    assert rounded(size) == f"{words}B"
