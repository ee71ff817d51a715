"""Model families: turns the data of a `config.json` into the exact list of weights.

The lists match transformers 5 in names and order; the test suite compares them with the real classes. Missing values have the defaults of
the family in transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from dslint.memory.decoders import gpt2, gpt_neox, like_llama, phi, phi3
from dslint.memory.encoders import bert, deberta, roberta, t5, vit
from dslint.memory.generic import generic
from dslint.memory.images import diffusion, makes_images
from dslint.memory.newer_decoders import deepseek, glm, gpt_oss, llama4, olmo2
from dslint.memory.older_decoders import bloom, gptj, opt
from dslint.memory.reader import ModelReader, ShapeError
from dslint.memory.shapes import Model, Norm
from dslint.memory.sizes import REQUIRED, TRAITS, family_defaults
from dslint.memory.speech import whisper
from dslint.memory.towers import towers

__all__ = ["FAMILIES", "ShapeError", "read_shape"]

_QWEN = {"vocab_size": 151936}
_GEMMA = {"tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh", "head_dim": 256, "norm": Norm.RMS_IN_FP32}
_CAPPED = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"num_key_value_heads": 8},
    "qwen2": {**_QWEN, "attention_bias": True, "output_bias": False},
    "qwen3": {**_QWEN, "head_dim": 128, "head_norms": True},
    "gemma": _GEMMA,
    "gemma2": {**_GEMMA, **_CAPPED, "num_key_value_heads": 4, "norms": 4},
    "gemma3_text": {**_GEMMA, "num_key_value_heads": 4, "norms": 4, "head_norms": True},
    "mixtral": {"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": {
        **_QWEN,
        "attention_bias": True,
        "output_bias": False,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
    },
    "qwen3_moe": {
        **_QWEN,
        "num_key_value_heads": 4,
        "head_norms": True,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
    },
}
"""Families with the structure of Llama, and their differences that the file does not state."""

_LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}

_OTHERS: dict[str, tuple[Callable[[ModelReader], Model], dict[str, Any]]] = {
    "gpt2": (gpt2, {"tie_word_embeddings": True, "vocab_size": 50257, "n_positions": 1024}),
    "gpt_neox": (gpt_neox, {}),
    "opt": (opt, {"vocab_size": 50272, "max_position_embeddings": 2048}),
    "bloom": (bloom, {"tie_word_embeddings": True, "vocab_size": 250880}),
    "gptj": (gptj, {"vocab_size": 50400}),
    "glm": (glm, {"head_dim": 128, "num_key_value_heads": 2}),
    "glm4": (glm, {"head_dim": 128, "num_key_value_heads": 2}),
    "chatglm": (glm, {}),
    "olmo2": (olmo2, {}),
    "gpt_oss": (gpt_oss, {"num_experts_per_tok": 4, "head_dim": 64, "num_key_value_heads": 8}),
    "deepseek_v2": (deepseek, {**_LATENT, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1}),
    "deepseek_v3": (deepseek, {**_LATENT, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3}),
    "llama4_text": (
        llama4,
        {"num_experts_per_tok": 1, "head_dim": 128, "interleave_moe_layer_step": 1, "intermediate_size_mlp": 16384},
    ),
    "phi": (phi, {}),
    "phi3": (phi3, {}),
    "bert": (bert, {"max_position_embeddings": 512, "type_vocab_size": 2}),
    "roberta": (roberta, {"max_position_embeddings": 512, "type_vocab_size": 2}),
    "deberta-v2": (deberta, {"max_position_embeddings": 512, "type_vocab_size": 0, "position_buckets": -1}),
    "t5": (t5, {"relative_attention_num_buckets": 32}),
    "whisper": (
        whisper,
        {
            "vocab_size": 51865,
            "max_source_positions": 1500,
            "max_target_positions": 448,
            "num_mel_bins": 80,
            "d_model": 384,
            "encoder_layers": 4,
            "decoder_layers": 4,
            "encoder_attention_heads": 6,
            "decoder_attention_heads": 6,
            "encoder_ffn_dim": 1536,
            "decoder_ffn_dim": 1536,
        },
    ),
    "vit": (vit, {"image_size": 224, "patch_size": 16, "num_channels": 3}),
}

FAMILIES = (*DEFAULTS, *_OTHERS, *TRAITS)
"""The supported values of `model_type`."""


SAME = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_5_omni_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_omni_moe_text": "qwen3_moe",
    "xlm-roberta": "roberta",
    "ministral": "mistral",
    "kimi_k2": "deepseek_v3",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "phi4mm": "phi3",
    "phi4_multimodal": "phi3",
    "mistral3": "ministral3",
}
"""Families with the weights of another one; of models with several parts, those of the language model."""


def language_part(data: dict[str, Any]) -> dict[str, Any]:
    """The config of the language model: of a model with several parts, the one that generates text."""
    for name in ("thinker_config", "text_config", "llm_config", "language_config"):
        if isinstance(data.get(name), dict):
            return language_part(data[name])
    return data


ALWAYS_STACKED = frozenset(
    ("gpt_oss", "llama4_text", "qwen3_vl_moe_text", "aria_text", "granitemoe", "granitemoehybrid", "granitemoeshared", "jetmoe", "dbrx")
)
"""Families with the experts of a layer in one parameter in every release of transformers: those of 4.57.6 whose model code makes an
`nn.Parameter` for all experts. Before transformers 5, the experts of all other families are linear layers."""


class _Asked:
    """The data of a `config.json` with its name; equal to another of the same content."""

    def __init__(self, data: dict[str, Any], name: str) -> None:
        self.data, self.name = data, name
        self._content = (repr(data), name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asked) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)


def read_shape(data: dict[str, Any], name: str) -> Model:
    """The shape of a model, from the data of its `config.json`. Of a model with several parts, that of the language model, with the weights
    of its towers.

    The same data give the same model, for which its operations, its layout and its estimates are kept.

    Raises:
        ShapeError: the family is unknown, or a size is missing or invalid.
    """
    return _read(_Asked(data, name))


@lru_cache(maxsize=8)
def _read(asked: _Asked) -> Model:
    model = _language_model(asked.data, asked.name)
    more = towers(asked.data, model.hidden)
    return replace(model, first=(*model.first, *more)) if more else model


def _language_model(data: dict[str, Any], name: str) -> Model:
    if makes_images(data):
        return diffusion(data, name)
    text = language_part(data)
    stated = str(text.get("model_type", data.get("model_type")))
    family = SAME.get(stated, stated)
    if family in DEFAULTS:
        model = like_llama(ModelReader(text, name, family, DEFAULTS[family]))
        return replace(model, family=stated) if stated in ALWAYS_STACKED else model
    if family in _OTHERS:
        build, defaults = _OTHERS[family]
        usual = {key: value for key, value in family_defaults().get(family, {}).items() if key not in REQUIRED and key not in text}
        return build(ModelReader(text, name, family, {**usual, **defaults}))
    return generic(text, name, family)
