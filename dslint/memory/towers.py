"""The towers of a model with several parts: encoders of images or sound, from `vision_config` and `audio_config`.

Their weights are counted to a few percent, as one weight per layer; sizes differ by family in small parts. What they keep for their
backward depends on the images and is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dslint.facts.model_config import trained_part
from dslint.memory.reader import LAYERS, SIZES
from dslint.memory.shapes import Model, Weight

_NAME = "tower"
"""The first part of the names of their weights."""


def towers(data: dict[str, Any], text_hidden: int) -> tuple[Weight, ...]:
    """The weights of all towers, with what connects them to a language model of this hidden size."""
    parts = trained_part(data)
    return tuple(
        weight
        for name in ("vision_config", "audio_config")
        if isinstance(parts.get(name), dict)
        for weight in _tower(f"{_NAME}.{name.removesuffix('_config')}", parts[name], parts, text_hidden)
    )


def is_tower(weight: Weight) -> bool:
    """Whether a weight belongs to a tower."""
    return weight.name.startswith(f"{_NAME}.")


def has_towers(model: Model) -> bool:
    """Whether a model has towers."""
    return any(map(is_tower, model.first))


def with_frozen_towers(model: Model) -> Model:
    """A model of which no tower is trained."""
    return replace(model, first=tuple(weight._replace(trained=False) if is_tower(weight) else weight for weight in model.first))


def _tower(at: str, own: dict[str, Any], whole: dict[str, Any], text_hidden: int) -> Iterator[Weight]:
    depth, hidden = _size(own, "depth", "num_hidden_layers", "encoder_layers"), _size(own, "embed_dim", "d_model", "hidden_size")
    if not depth or not hidden or depth > LAYERS:
        return
    inner = _size(own, "intermediate_size", "encoder_ffn_dim") or (_size(own, "mlp_ratio") or 4) * hidden
    kind = str(own.get("model_type", whole.get("model_type", "")))
    matrices = 3 if kind.startswith(("qwen2_5_vl", "qwen2_5_omni_vision")) else 2
    patch, sides = _size(own, "patch_size") or 0, _size(own, "image_size") or 0
    channels = _size(own, "num_channels", "in_channels", "in_chans") or 3
    positions = (sides // patch) ** 2 * hidden if patch else 0
    yield Weight(f"{at}.embeddings.weight", (max(1, channels * patch**2 * (_size(own, "temporal_patch_size") or 1) * hidden + positions),))
    for index in range(depth):
        yield Weight(f"{at}.{index}.weight", (4 * hidden**2 + matrices * hidden * inner + 9 * hidden + inner,))
    yield Weight(f"{at}.projector.weight", (_projector(own, whole, hidden, text_hidden),))


def _projector(own: dict[str, Any], whole: dict[str, Any], hidden: int, text_hidden: int) -> int:
    """The elements of what connects a tower to the language model."""
    merge = _size(own, "spatial_merge_size")
    if merge:
        wide = hidden * merge**2
        out = _size(own, "out_hidden_size") or (_size(own, "hidden_size") if "embed_dim" in own else None) or text_hidden
        deep = own.get("deepstack_visual_indexes")
        return (wide**2 + wide * out) * (1 + (len(deep) if isinstance(deep, list) else 0))
    return hidden * text_hidden + (text_hidden**2 if whole.get("projector_hidden_act") else 0)


def _size(data: dict[str, Any], *names: str) -> int | None:
    """The first of these sizes that is given and plausible."""
    for name in names:
        value = data.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= SIZES:
            return int(value)
    return None
