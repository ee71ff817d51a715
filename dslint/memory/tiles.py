"""Memory-centric tiling: splits a huge linear layer into tiles that stage 3 gathers and releases one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from dslint.memory.shapes import Model, Weight


@lru_cache(maxsize=8)
def tiled(model: Model, pieces: int) -> Model:
    """The model with its largest linear layers (and those at least half as large) split into tiles (`deepspeed.zero.TiledLinear`)."""
    least = max((w.size for w in _linear(model)), default=0) // 2
    blocks = tuple(replace(block, weights=tuple(_divided(block.weights, pieces, least))) for block in model.blocks)
    return replace(model, blocks=blocks, last=tuple(_divided(model.last, pieces, least)))


def _linear(model: Model) -> Iterator[Weight]:
    for block in model.blocks:
        yield from (w for w in block.weights if len(w.shape) == 2)
    yield from (w for w in model.last if len(w.shape) == 2)


def _divided(weights: tuple[Weight, ...], pieces: int, least: int) -> Iterator[Weight]:
    for weight in weights:
        if len(weight.shape) != 2 or weight.size < least or weight.shape[0] % pieces:
            yield weight
            continue
        module, _, name = weight.name.rpartition(".")
        for number in range(pieces):
            yield weight._replace(name=f"{module}.{number}.{name}", shape=(weight.shape[0] // pieces, weight.shape[1]))
