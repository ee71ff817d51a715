"""Models of unknown families: the shapes of their weights, from the headers of the safetensors files next to the `config.json`.

The weights are exact. What a layer keeps for its backward is assumed to be that of Llama, with sizes that follow from the weights' names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from dslint.memory.shapes import Block, BlockStep, Model, Norm, Weight

LARGEST_HEADER = 100_000_000
"""Bytes of a header, as safetensors itself limits it."""

_LAYER = re.compile(r"^(.*?)\.(\d+)\.")
_OUT_OF_ATTENTION = re.compile(r"\b(?:o_proj|out_proj|dense|c_proj|wo|proj)\b")
_ATTENTION = re.compile(r"attn|attention|\b[qkvo]_proj\b|query|wqkv", re.IGNORECASE)
_OUT_OF_FEED = re.compile(r"down_proj|fc2|\bw2\b|c_proj|dense_4h_to_h|\bwo\b|fc_out")
_NORM = re.compile(r"norm|\bln_?\w*\b", re.IGNORECASE)
_HEAD = re.compile(r"\b(?:lm_head|embed_out|output|head)\b")


def shape_of_headers(folder: str, data: dict[str, Any], name: str) -> Model | None:
    """The model with the weights of a folder's safetensors files; None if there are none, or they have no layers or no embedding."""
    shapes = _shapes(folder)
    layers: dict[str, dict[int, list[Weight]]] = {}
    others = []
    for weight, shape in shapes.items():
        found = _LAYER.match(weight)
        if found is None:
            others.append(Weight(weight, shape))
        else:
            layers.setdefault(found[1], {}).setdefault(int(found[2]), []).append(Weight(weight, shape, _step(weight)))
    if not layers:
        return None
    main = max(layers, key=lambda prefix: sum(w.size for weights in layers[prefix].values() for w in weights))
    others += [w for prefix, numbered in layers.items() if prefix != main for weights in numbered.values() for w in weights]
    embedding = max((w for w in others if len(w.shape) == 2), key=lambda w: (w.shape[0], _HEAD.search(w.name) is None), default=None)
    if embedding is None:
        return None
    vocabulary, hidden = embedding.shape
    heads = [w for w in others if _HEAD.search(w.name) and w.shape[0] == vocabulary and w is not embedding]
    norms = [w for w in others if len(w.shape) == 1 and _NORM.search(w.name)]
    last = [w for w in others if w in heads or w in norms]
    first = [embedding, *(w for w in others if w is not embedding and w not in last)]
    kind = Norm.LAYER if any(w.name.endswith(".bias") for w in norms) else Norm.RMS
    blocks = tuple(_block(weights, hidden, data, kind) for _, weights in sorted(layers[main].items()))
    family = str(data.get("model_type", "unknown"))
    return Model(name, family, tuple(first), blocks, tuple(last), hidden, vocabulary, tied=not heads, norm=kind, exact=False)


def _shapes(folder: str) -> dict[str, tuple[int, ...]]:
    """The shapes of all weights, by name. Files that cannot be read have none."""
    found: dict[str, tuple[int, ...]] = {}
    for file in sorted(name for name in _names(folder) if name.endswith(".safetensors")):
        for name, entry in _header(os.path.join(folder, file)).items():  # noqa: PTH118 - a path of the user
            shape = entry.get("shape") if isinstance(entry, dict) else None
            if isinstance(shape, list) and shape and all(isinstance(size, int) and size > 0 for size in shape):
                found[name] = tuple(shape)
    return found


def _names(folder: str) -> Iterable[str]:
    try:
        return os.listdir(folder or ".")  # noqa: PTH208 - the same
    except OSError:
        return ()


def _header(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the same
            length = int.from_bytes(file.read(8), "little")
            data = json.loads(file.read(length)) if 0 < length <= LARGEST_HEADER else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _step(name: str) -> BlockStep:
    """The step of a layer that uses a weight, by the names that are usual."""
    module = name.rpartition(".")[0]
    if _NORM.search(module.rpartition(".")[2]):
        return (
            BlockStep.BEFORE_FEED if re.search(r"post|ffn|mlp|feed|_2|2$|final", module.rpartition(".")[2]) else BlockStep.BEFORE_ATTENTION
        )
    if _ATTENTION.search(module):
        return BlockStep.OUT_OF_ATTENTION if _OUT_OF_ATTENTION.search(module.rpartition(".")[2]) else BlockStep.INTO_ATTENTION
    return BlockStep.OUT_OF_FEED if _OUT_OF_FEED.search(module) else BlockStep.INTO_FEED


def _block(weights: list[Weight], hidden: int, data: dict[str, Any], kind: Norm) -> Block:
    """A layer with these weights; the sizes of its steps follow from them."""
    query = _width(weights, r"\bq(?:uery)?(?:_proj)?\b") or hidden
    keys = _width(weights, r"\bk(?:ey)?(?:_proj)?\b") or query
    inner = max((max(w.shape[-2:]) for w in _matrices(weights, BlockStep.INTO_FEED)), default=4 * hidden)
    given = next((data[name] for name in ("num_attention_heads", "n_head", "num_heads") if isinstance(data.get(name), int)), 0)
    gated = any("gate" in w.name for w in weights)
    heads = given if given > 0 else max(1, query // 128)
    normed = any("q_norm" in w.name for w in weights)
    return Block(tuple(weights), hidden, heads, query, keys, inner, gated=gated, norm=kind, head_norms=normed)


def _matrices(weights: list[Weight], step: BlockStep) -> Iterator[Weight]:
    return (w for w in weights if w.step is step and len(w.shape) >= 2)


def _width(weights: list[Weight], pattern: str) -> int | None:
    """The outputs of the projection with such a name."""
    return next((w.shape[0] for w in _matrices(weights, BlockStep.INTO_ATTENTION) if re.search(pattern, w.module.rpartition(".")[2])), None)
