"""Known models by name, with the values of their published `config.json`."""

from __future__ import annotations

import re
from typing import Any


def _llama(hidden: int, inner: int, layers: int, heads: int, groups: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "vocab_size": vocabulary,
        **more,
    }


def _gpt2(hidden: int, layers: int, heads: int) -> dict[str, Any]:
    return {"model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": heads, "n_positions": 1024, "vocab_size": 50257}


def _bert(hidden: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "model_type": "bert",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "vocab_size": 30522,
    }


def _qwen(family: str, *sizes: int, **more: Any) -> dict[str, Any]:
    return {**_llama(*sizes, **more), "model_type": family}


PRESETS: dict[str, dict[str, Any]] = {
    "llama-2-7b": _llama(4096, 11008, 32, 32, 32, 32000, max_position_embeddings=4096),
    "llama-2-13b": _llama(5120, 13824, 40, 40, 40, 32000, max_position_embeddings=4096),
    "llama-2-70b": _llama(8192, 28672, 80, 64, 8, 32000, max_position_embeddings=4096),
    "llama-3-8b": _llama(4096, 14336, 32, 32, 8, 128256, max_position_embeddings=8192),
    "llama-3-70b": _llama(8192, 28672, 80, 64, 8, 128256, max_position_embeddings=8192),
    "llama-3.1-405b": _llama(16384, 53248, 126, 128, 8, 128256, max_position_embeddings=131072),
    "llama-3.2-1b": _llama(2048, 8192, 16, 32, 8, 128256, tie_word_embeddings=True, max_position_embeddings=131072),
    "llama-3.2-3b": _llama(3072, 8192, 28, 24, 8, 128256, tie_word_embeddings=True, max_position_embeddings=131072),
    "mistral-7b": {**_llama(4096, 14336, 32, 32, 8, 32000, max_position_embeddings=32768), "model_type": "mistral"},
    "mixtral-8x7b": {
        **_llama(4096, 14336, 32, 32, 8, 32000, max_position_embeddings=32768),
        "model_type": "mixtral",
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "mixtral-8x22b": {
        **_llama(6144, 16384, 56, 48, 8, 32768, max_position_embeddings=65536),
        "model_type": "mixtral",
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "qwen2.5-0.5b": _qwen("qwen2", 896, 4864, 24, 14, 2, 151936, tie_word_embeddings=True, max_position_embeddings=32768),
    "qwen2.5-1.5b": _qwen("qwen2", 1536, 8960, 28, 12, 2, 151936, tie_word_embeddings=True, max_position_embeddings=32768),
    "qwen2.5-7b": _qwen("qwen2", 3584, 18944, 28, 28, 4, 152064, max_position_embeddings=131072),
    "qwen2.5-14b": _qwen("qwen2", 5120, 13824, 48, 40, 8, 152064, max_position_embeddings=131072),
    "qwen2.5-32b": _qwen("qwen2", 5120, 27648, 64, 40, 8, 152064, max_position_embeddings=131072),
    "qwen2.5-72b": _qwen("qwen2", 8192, 29568, 80, 64, 8, 152064, max_position_embeddings=131072),
    "qwen3-0.6b": _qwen("qwen3", 1024, 3072, 28, 16, 8, 151936, head_dim=128, tie_word_embeddings=True, max_position_embeddings=40960),
    "qwen3-8b": _qwen("qwen3", 4096, 12288, 36, 32, 8, 151936, head_dim=128, max_position_embeddings=40960),
    "qwen3-32b": _qwen("qwen3", 5120, 25600, 64, 64, 8, 151936, head_dim=128, max_position_embeddings=40960),
    "gemma-2b": {
        **_llama(2048, 16384, 18, 8, 1, 256000, head_dim=256, max_position_embeddings=8192),
        "model_type": "gemma",
    },
    "gemma-7b": {
        **_llama(3072, 24576, 28, 16, 16, 256000, head_dim=256, max_position_embeddings=8192),
        "model_type": "gemma",
    },
    "gemma-2-9b": {
        **_llama(3584, 14336, 42, 16, 8, 256000, head_dim=256, max_position_embeddings=8192),
        "model_type": "gemma2",
    },
    "phi-2": {
        **_llama(2560, 10240, 32, 32, 32, 51200, max_position_embeddings=2048),
        "model_type": "phi",
    },
    "phi-3-mini": {**_llama(3072, 8192, 32, 32, 32, 32064, max_position_embeddings=4096), "model_type": "phi3"},
    "gpt-neox-20b": {
        "model_type": "gpt_neox",
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "num_hidden_layers": 44,
        "num_attention_heads": 64,
        "vocab_size": 50432,
        "max_position_embeddings": 2048,
    },
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-large": _gpt2(1280, 36, 20),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "bert-base": _bert(768, 12, 12),
    "bert-large": _bert(1024, 24, 16),
    "t5-base": {"model_type": "t5", "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12, "vocab_size": 32128},
    "t5-11b": {"model_type": "t5", "d_model": 1024, "d_kv": 128, "d_ff": 65536, "num_layers": 24, "num_heads": 128, "vocab_size": 32128},
    "vit-base": {
        "model_type": "vit",
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "image_size": 224,
        "patch_size": 16,
        "num_channels": 3,
    },
}
"""By name, in lower case."""


def preset(name: str) -> dict[str, Any] | None:
    """The data of a known model by one of its names: `llama-3-8b`, `Llama-3-8B`, `meta-llama/Llama-2-7b`."""
    word = re.sub(r"[\s_]+", "-", name.lower().rpartition("/")[2])
    word = re.sub(r"-(hf|instruct|chat|it|v0\.\d|base)$", "", word) if word not in PRESETS else word
    return PRESETS.get(word) or PRESETS.get(word.replace("llama3", "llama-3").replace("llama2", "llama-2"))
