"""The structure of a model: weights in the order of registration, modules, blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cached_property
from typing import NamedTuple

from dslint.record import Record


class BlockStep(IntEnum):
    """The steps of a block's forward, in order."""

    BEFORE_ATTENTION = 0
    INTO_ATTENTION = 1
    OUT_OF_ATTENTION = 2
    BEFORE_FEED = 3
    INTO_FEED = 4
    OUT_OF_FEED = 5


class Norm(Enum):
    """The kinds of norms, by what they keep for the backward."""

    LAYER = "LayerNorm"
    RMS = "RMSNorm, scaled in the precision of the model"
    RMS_IN_FP32 = "RMSNorm, scaled in fp32"
    T5 = "RMSNorm as implemented by T5"
    FUSED = "RMSNorm as a fused kernel"


class Weight(NamedTuple):
    """A parameter: name and shape, the step of its block that uses it, whether tensor parallelism splits it, whether it is trained, the
    bytes of each of its elements if it is quantized, whether the forward keeps a view of it instead of the weight itself, and whether it is
    stored `transposed`, so that a linear layer multiplies by the weight itself.
    """

    name: str
    shape: tuple[int, ...]
    step: BlockStep = BlockStep.BEFORE_ATTENTION
    divided: bool = False
    trained: bool = True
    quantized: float | None = None
    viewed: bool = False
    transposed: bool = False

    def stored(self, model_bytes: int) -> int:
        """The number of elements of the model's precision, in bytes, that take as much memory."""
        return self.size if self.quantized is None else math.ceil(self.size * self.quantized / model_bytes)

    @property
    def module(self) -> str:
        """The name of its module."""
        return self.name.rpartition(".")[0]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def is_linear(self) -> bool:
        """Whether it is the weight of a `torch.nn.Linear`, which multiplies by a view of it."""
        return len(self.shape) == 2 and self.name.endswith(".weight") and not self.transposed

    @property
    def is_stacked(self) -> bool:
        """Whether it holds the matrices of all experts of a layer."""
        return len(self.shape) == 3 and ".experts." in self.name

    @property
    def routes(self) -> bool:
        """Whether it belongs to the router of a layer of experts."""
        return self.module.endswith((".gate", ".router"))

    @property
    def is_matrix(self) -> bool:
        """Whether Muon updates it: no vector, embedding or head. Source: DeepSpeed 0.19.8, `set_optimizer_flags`."""
        return len(self.shape) > 1 and not any(word in self.name.lower() for word in ("embed", "lm_head"))


class Experts(Record):
    """A layer of experts: their number, active experts per token, the size of each, and the size of the shared expert (0: none), which has
    a `shared_gate` or is added as it is. `routed_in_fp32`: the router has an fp32 copy of its input. `biased`: a bias is added to their
    results.
    """

    number: int
    active: int
    width: int
    shared: int = 0
    shared_gate: bool = True
    routed_in_fp32: bool = False
    biased: bool = False


class Latent(NamedTuple):
    """Attention with compressed queries, keys and values: the ranks of `queries` (0: not compressed) and `keys`, and the sizes of all heads
    of what the keys' projection `expands` to (values are a view of it) and of `values`.
    """

    queries: int
    keys: int
    expands: int
    values: int


@dataclass(frozen=True, slots=True)
class Block:
    """A layer of a transformer.

    Sizes are in elements: `hidden` is the hidden size, `query` and `keys` the sizes of all query heads and of all key heads, `inner` the
    intermediate size. `norms` is the number of norms on the residual stream. `parallel`: attention and feed-forward layer have the same
    input. `fused`: query, key and value come from one projection. `softcap`: attention scores are capped, `sinks`: each head also attends
    to a sink; both require eager attention. `eager`: transformers has no other attention for the family.
    `copies` is the number of tensors of the intermediate size that the activation function keeps for its backward (one for a fused
    kernel). `dropout` applies to the outputs of attention and feed-forward layer, `inner_dropout` inside the latter.
    `tokens` is the number of positions, if it does not depend on the samples.
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
    sinks: bool = False
    eager: bool = False
    copies: int = 1
    dropout: bool = False
    inner_dropout: bool = False
    cross: bool = False
    experts: Experts | None = None
    latent: Latent | None = None
    tokens: int | None = None

    @property
    def keeps_scores(self) -> bool:
        """Whether transformers computes its attention eagerly, unless a program asks for flash attention."""
        return self.softcap or self.sinks or self.eager


def rounded(number: float) -> str:
    """A number of parameters to three digits: 7.07B, 125M."""
    unit, letter = next((unit, letter) for unit, letter in ((1e9, "B"), (1e6, "M"), (1e3, "K"), (1.0, "")) if number >= unit or unit == 1)
    return f"{_three_digits(number / unit)}{letter}"


def parameters_in_words(number: float) -> str:
    """A number of parameters in short: "6.74 billion parameters"."""
    return f"{_three_digits(number / 1e9)} billion parameters"


def _three_digits(number: float) -> str:
    return f"{number:.3g}" if number < 999.5 else f"{number:,.0f}"


def in_digits(number: float) -> str:
    """A number of parameters that somebody stated, with the digits that he gave: 7.07B for 7.07e9, 6,738,415,616 for all of them."""
    return rounded(number) if round(number) % 10 ** (len(str(round(number))) - 3) == 0 else f"{number:,.0f}"


@dataclass(frozen=True, eq=False)
class Model:
    """A model: weights before its blocks, the blocks, and weights after them. Models are compared by identity: what is computed of one is
    kept for it, and comparing a thousand weights would take longer.

    `tied`: the head uses the weight of the embedding, which is then not in `last`. `exact`: it is known what its layers keep for the
    backward. `stated` is the number of parameters of the model for which this one stands, if only that is known. `generic`: its weights are
    guessed from sizes, because its family is unknown. `full_loss`: logits are cast to fp32 before the loss. `returns_logits`: the forward
    returns logits with the loss. `softcap`: logits are capped. `tokens` is the fixed number of positions of an image model. `vocabulary` is
    the size of the output, 0 if it is small (a classifier).
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
    generic: bool = False
    stated: float | None = None

    @property
    def count(self) -> str:
        """The number of parameters for a reader: of a model that stands for one with a stated number, what was stated."""
        if self.stated is not None and not self.adapted:
            return in_digits(self.stated)
        return self._counted(self.size)

    @property
    def in_billions(self) -> str:
        """The number of parameters in short: "6.74 billion parameters"."""
        return parameters_in_words(self.stated or self.size)

    @property
    def trained_count(self) -> str:
        """The same of the parameters that are trained."""
        return self._counted(self.trained)

    def _counted(self, size: int) -> str:
        return f"about {rounded(size)}" if self.generic or self.family == "numbers" else f"{size:,}"

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
    def adapted(self) -> bool:
        """Whether it has LoRA adapters."""
        return any(".lora_" in weight.name for weight in self.weights)

    @cached_property
    def embedding(self) -> int:
        """The index of the embedding, the weight that a tied head uses."""
        return next(index for index, weight in enumerate(self.weights) if weight.shape[0] == self.vocabulary)

    @cached_property
    def largest(self) -> Weight:
        """The largest weight."""
        return max(self.weights, key=lambda weight: weight.size)
