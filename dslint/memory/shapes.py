"""What a model is made of: weights in the order in which it registers them, modules, blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cached_property
from typing import NamedTuple


class Step(IntEnum):
    """The steps of a block's forward, in their order."""

    BEFORE_ATTENTION = 0
    INTO_ATTENTION = 1
    OUT_OF_ATTENTION = 2
    BEFORE_FEED = 3
    INTO_FEED = 4
    OUT_OF_FEED = 5


class Norm(Enum):
    """The kinds of norms, by what they keep for their backward."""

    LAYER = "LayerNorm"
    RMS = "RMSNorm, scaled in the precision of the model"
    RMS_IN_FP32 = "RMSNorm, scaled in fp32"
    T5 = "RMSNorm as T5 writes it"


class Weight(NamedTuple):
    """A parameter: its name and shape, the step of its block that uses it, whether tensor parallelism divides it, whether it is trained."""

    name: str
    shape: tuple[int, ...]
    step: Step = Step.BEFORE_ATTENTION
    divided: bool = False
    trained: bool = True

    @property
    def module(self) -> str:
        """The name of the module that owns it."""
        return self.name.rpartition(".")[0]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


class Experts(NamedTuple):
    """A layer of experts: their number, how many see each token, the width of each, and the width of the one that sees all (0: none)."""

    number: int
    active: int
    width: int
    shared: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """A layer of a transformer.

    Sizes are in elements: `hidden` is the width of the stream, `query` and `keys` that of all query heads and of all key heads, `inner`
    that of the feed-forward part. `norms` is the number of norms over the stream. `parallel` says that attention and feed-forward part see
    the same stream, `fused` that query, key and value leave one projection, `softcap` that the scores of attention are capped, which only
    the attention that keeps them can do. `copies` is how many tensors of the inner width the activation function keeps for its backward
    (one where it is a single kernel). `dropout` acts on what attention and feed-forward part give, `inner_dropout` within the latter.
    """

    weights: tuple[Weight, ...]
    hidden: int
    heads: int
    query: int
    keys: int
    inner: int
    gated: bool = False
    norm: Norm = Norm.LAYER
    norms: int = 2
    head_norms: bool = False
    parallel: bool = False
    fused: bool = False
    softcap: bool = False
    copies: int = 1
    dropout: bool = False
    inner_dropout: bool = False
    cross: bool = False
    experts: Experts | None = None


@dataclass(frozen=True)
class Model:
    """A model: what stands before its blocks, the blocks, and what stands after them.

    `tied` says that the head uses the weight of the embedding, which then is not among `last`. `exact` is False for a model made of plain
    numbers. `full_loss` says that its logits become fp32 before the loss, `returns_logits` that its forward gives them back with the loss,
    `softcap` that they are capped. `tokens` is the fixed number of positions of a model that sees images. `vocabulary` is the width of the
    output, 0 where the output is small (a classifier).
    """

    name: str
    family: str
    first: tuple[Weight, ...]
    blocks: tuple[Block, ...]
    last: tuple[Weight, ...]
    hidden: int
    vocabulary: int
    tied: bool
    positions: int | None = None
    tokens: int | None = None
    norm: Norm = Norm.LAYER
    full_loss: bool = True
    returns_logits: bool = True
    softcap: bool = False
    exact: bool = True

    @cached_property
    def weights(self) -> tuple[Weight, ...]:
        """All weights, each once, in the order of registration."""
        return (*self.first, *(w for block in self.blocks for w in block.weights), *self.last)

    @cached_property
    def size(self) -> int:
        """The number of parameters."""
        return sum(weight.size for weight in self.weights)

    @cached_property
    def trained(self) -> int:
        """The number of parameters that are trained."""
        return sum(weight.size for weight in self.weights if weight.trained)

    @cached_property
    def largest(self) -> Weight:
        """The largest weight."""
        return max(self.weights, key=lambda weight: weight.size)
