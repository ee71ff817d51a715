"""Smaller variants of a model: fewer layers, or all sizes scaled down. Works on the data of a config.json."""

from __future__ import annotations

from typing import Any

_TEXT = ("text_config", "llm_config", "language_config")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_WIDTHS = (
    "hidden_size",
    "n_embd",
    "d_model",
    "dim",
    "intermediate_size",
    "n_inner",
    "ffn_dim",
    "ffn_hidden_size",
    "moe_intermediate_size",
    "word_embed_proj_dim",
)
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads", "num_key_value_heads", "num_kv_heads")

SMALL_WIDTH, SMALL_LAYERS, SMALL_VOCABULARY = 256, 2, 4096


def text_part(data: dict[str, Any]) -> dict[str, Any]:
    """The config of the language model, if the model has several parts."""
    return next((data[name] for name in _TEXT if isinstance(data.get(name), dict)), data)


def depth(data: dict[str, Any]) -> int | None:
    """The number of layers."""
    return _first(text_part(data), _LAYERS)


def with_layers(data: dict[str, Any], layers: int) -> dict[str, Any]:
    """The model with this number of layers. Lists with an entry per layer are cut."""
    text = dict(text_part(data))
    full = _first(text, _LAYERS)
    for name in _LAYERS:
        if isinstance(text.get(name), int):
            text[name] = layers
    for name, value in text.items():
        if isinstance(value, list) and len(value) == full:
            text[name] = value[:layers]
    return _put_back(data, text)


def small(data: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The model scaled down to run anywhere, and a description of what was scaled."""
    text = dict(text_part(data))
    width, heads, layers, vocabulary = (_first(text, names) for names in (_WIDTHS, _HEADS, _LAYERS, ("vocab_size",)))
    factor = 1
    while width and heads and width // (2 * factor) >= SMALL_WIDTH and not (width % (2 * factor) or heads % (2 * factor)):
        factor *= 2
    for name in (*_WIDTHS, *_HEADS):
        if isinstance(text.get(name), int):
            text[name] = max(1, text[name] // factor)
    said = []
    if layers and layers > SMALL_LAYERS:
        text = with_layers(text, SMALL_LAYERS)
        said.append(f"{SMALL_LAYERS} of {layers} layers")
    if factor > 1 and width:
        said.append(f"hidden size {width // factor:,} of {width:,}")
    if vocabulary and vocabulary > SMALL_VOCABULARY:
        text["vocab_size"] = SMALL_VOCABULARY
        said.append(f"vocabulary {SMALL_VOCABULARY:,} of {vocabulary:,}")
        for name, value in text.items():  # special tokens must be in the vocabulary
            if name.endswith("_token_id") and isinstance(value, int) and value >= SMALL_VOCABULARY:
                text[name] = 0
    return _put_back(data, text), ", ".join(said)


def _put_back(data: dict[str, Any], text: dict[str, Any]) -> dict[str, Any]:
    name = next((name for name in _TEXT if isinstance(data.get(name), dict)), None)
    return text if name is None else {**data, name: text}


def _first(data: dict[str, Any], names: tuple[str, ...]) -> int | None:
    found = (data.get(name) for name in names)
    return next((value for value in found if isinstance(value, int) and not isinstance(value, bool) and value > 0), None)
