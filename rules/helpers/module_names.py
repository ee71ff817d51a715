"""The names of modules in families of models: of the layers that LoRA takes, and of the embeddings and heads that are trained besides."""

from __future__ import annotations

import re
from collections.abc import Mapping

_GLM = "query_key_value dense dense_h_to_4h dense_4h_to_h"

_OF_OWN_CODE: Mapping[str, tuple[str, str]] = {
    r"chatglm-6b": (_GLM, "word_embeddings lm_head"),
    r"chatglm[23]-6b": (_GLM, "word_embeddings output_layer"),
    r"baichuan2?-(7|13)b": ("W_pack o_proj gate_proj up_proj down_proj", "embed_tokens lm_head"),
    r"qwen-(1[._-]8b|7b|14b|72b)": ("c_attn c_proj w1 w2", "wte lm_head"),
    r"falcon-(7b|40b|180b)": (_GLM, "word_embeddings lm_head"),
}
"""By the beginning of a model's name: the layers, and the embeddings and heads. All but Falcon come with code of their own."""

_HEADS: Mapping[str, str] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3", "olmo2", "opt"), "embed_tokens lm_head"),
    "gpt2": "wte wpe lm_head",
    "gptj": "wte lm_head",
    "bloom": "word_embeddings lm_head",
}
"""By family of transformers: its embeddings and its head, as transformers 5.24 names them."""

LAYERS = frozenset(
    [
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
        "out_proj",
        "fc1",
        "fc2",
        "fc_in",
        "fc_out",
        "qkv_proj",
        "gate_up_proj",
        "c_attn",
        "c_fc",
        "c_proj",
        "w1",
        "w2",
        "w3",
        "query_key_value",
        "dense",
        "dense_h_to_4h",
        "dense_4h_to_h",
        "W_pack",
        "Wqkv",
        "wqkv",
        "wo",
    ]
)
"""The names of layers in some family."""

OUTER = frozenset(["wte", "wpe", "embed_tokens", "embed_in", "word_embeddings", "tok_embeddings", "lm_head", "output_layer"])
"""The names of embeddings and heads in some family. `embed_out` is GPT-NeoX's head before transformers 5."""


def of_own_code(name: str) -> tuple[frozenset[str], frozenset[str]] | None:
    """The layers, and the embeddings and heads, of a model by its name; None if it is not known."""
    base = name.rstrip("/").rpartition("/")[2].lower()
    found = next((one for start, one in _OF_OWN_CODE.items() if re.match(start, base)), None)
    return (frozenset(found[0].split()), frozenset(found[1].split())) if found is not None else None


def heads_of(family: str) -> frozenset[str] | None:
    """The embeddings and the head of a family of transformers; None if they are not known."""
    return frozenset(_HEADS[family].split()) if family in _HEADS else None
