"""Models of diffusers that make images: UNets and diffusion transformers, as `_class_name` of their `config.json` says.

Only their weights are counted. What they keep for their backward depends on the resolution of the images, so that an estimate of theirs
is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.memory.reader import ModelReader, ShapeError
from dslint.memory.shapes import Block, Model, Norm, Weight

UNCOUNTED = "the activations of images, which depend on their resolution: the low and the expected figure are lower bounds", 1.0
"""What an estimate of these models leaves out, with the share by which the peak may be higher: a guess."""


def makes_images(data: dict[str, Any]) -> bool:
    """Whether a config is that of a UNet or a diffusion transformer of diffusers."""
    return any(word in str(data.get("_class_name", "")) for word in ("UNet", "Transformer2D", "Transformer3D", "DiT"))


def diffusion(data: dict[str, Any], name: str) -> Model:
    """The weights of a UNet or a diffusion transformer, as one weight per layer.

    Raises:
        ShapeError: a size is missing.
    """
    kind = str(data["_class_name"])
    sizes = list(_unet(data, name) if "UNet" in kind else _transformer(ModelReader(data, name, kind, {}), kind))
    blocks = tuple(
        Block((Weight(f"blocks.{index}.weight", (size,)),), 0, 1, 0, 0, 0, norm=Norm.LAYER, norms=0) for index, size in enumerate(sizes)
    )
    return Model(name, kind, (), blocks, (), 0, 0, tied=False, tokens=1, exact=False, generic=True)


def _transformer(r: ModelReader, kind: str) -> Iterator[int]:
    """The weights of the layers of a diffusion transformer, in squares of its width: attention 4, feed-forward layer 8, modulation 6; twice
    where text and image have their own (SD3, Flux); Flux's single layers have 15.
    """
    width = r.size("num_attention_heads") * r.size("attention_head_dim")
    both = any(word in kind for word in ("SD3", "Flux", "Qwen", "HunyuanVideo"))
    squares = 36 if both else 18 if "DiT" in kind else 16
    yield from [squares * width**2] * r.size("num_layers")
    yield from [15 * width**2] * (r.optional("num_single_layers") or 0)


def _unet(data: dict[str, Any], name: str) -> Iterator[int]:
    """The weights of the levels of a UNet, after diffusers' `UNet2DConditionModel`."""
    channels = data.get("block_out_channels") or [320, 640, 1280, 1280]
    count = len(channels) if isinstance(channels, list) else 0
    if not count or not all(isinstance(size, int) and 0 < size < 2**20 for size in channels):
        raise ShapeError(f"the model {name}: block_out_channels is {channels!r}, but must be a list of sizes")
    layers = [_per_level(data.get("layers_per_block", 2), level) for level in range(count)]
    depths = [_per_level(data.get("transformer_layers_per_block", 1), level) for level in range(count)]
    context = _per_level(data.get("cross_attention_dim", 1280), 0)
    time = 4 * int(channels[0])
    down = data.get("down_block_types")
    if isinstance(down, list) and len(down) == count:
        attends = ["CrossAttn" in str(kind) for kind in down]
    else:  # as SDXL if it has depths by level, else as Stable Diffusion 1
        by_level = isinstance(data.get("transformer_layers_per_block"), list)
        attends = [level > 0 if by_level else level < count - 1 for level in range(count)]

    def residual(into: int, out: int) -> int:
        return 9 * (into + out) * out + 3 * out + time * out + 2 * (into + out) + (into * out + out if into != out else 0)

    def transformer(width: int, depth: int) -> int:
        each = 6 * width + 5 * width**2 + 2 * width + width * (width + 2 * context) + 12 * width**2 + 9 * width
        return 2 * width + 2 * (width**2 + width) + depth * each

    extra = data.get("projection_class_embeddings_input_dim") or 0
    yield channels[0] * time + time + time * (time + 1) + (extra * time + time + time * (time + 1) if extra else 0)
    yield 9 * int(data.get("in_channels", 4)) * channels[0] + channels[0]
    before = channels[0]
    for level, width in enumerate(channels):
        for number in range(layers[level]):
            yield residual(before if number == 0 else width, width) + (transformer(width, depths[level]) if attends[level] else 0)
        before = width
        if level < count - 1:
            yield 9 * width**2 + width
    yield 2 * residual(before, before) + transformer(before, depths[-1])
    for level in reversed(range(count)):
        width, below = channels[level], channels[max(0, level - 1)]
        for number in range(layers[level] + 1):
            skipped = below if number == layers[level] else width
            into = (before if number == 0 else width) + skipped
            yield residual(into, width) + (transformer(width, depths[level]) if attends[level] else 0)
        before = width
        if level:
            yield 9 * width**2 + width
    yield 2 * channels[0] + 9 * channels[0] * int(data.get("out_channels", 4)) + int(data.get("out_channels", 4))


def _per_level(value: Any, level: int) -> int:
    found = value[level] if isinstance(value, list) and level < len(value) else value
    return int(found) if isinstance(found, int) and 0 < found < 10**6 else 1
