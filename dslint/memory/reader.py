"""Reads the sizes of a model from the data of its `config.json`, and builds lists of weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.errors import UserError
from dslint.memory.shapes import BlockStep, Weight

LAYERS, SIZES = 10_000, 1_000_000_000
"""Upper bounds for layers and other sizes; larger values are mistakes."""


class ShapeError(UserError):
    """A model with unknown weights. The text is a sentence for the user."""


class ModelReader:
    """Reads the sizes of a `config.json`, with the defaults of its family."""

    def __init__(self, data: dict[str, Any], name: str, family: str, defaults: dict[str, Any]) -> None:
        self.data, self.name, self.family, self.defaults = data, name, family, defaults

    def size(self, *names: str) -> int:
        """A required size.

        Raises:
            ShapeError: it is missing, or not a positive integer.
        """
        for name in names:
            value = self.optional(name)
            if value is not None:
                return value
        raise ShapeError(f"the model {self.name} has no {names[0]}, which {self.family} requires")

    def optional(self, name: str) -> int | None:
        """An optional size.

        Raises:
            ShapeError: it is present, but not a positive integer or implausibly large.
        """
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ShapeError(f"the model {self.name}: {name} is {value!r}, but must be a positive integer")
        most = LAYERS if name.endswith(("layers", "n_layer")) else SIZES
        if value > most:
            raise ShapeError(f"the model {self.name}: {name} is {value}, but must be at most {most:,}")
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """A value that may be missing or null."""
        value = self.data.get(name)
        return value if value is not None else self.defaults.get(name, default)

    def parts(self, whole: int, name: str) -> int:
        """A number of heads that must divide a width."""
        number = self.size(name)
        if whole % number:
            raise ShapeError(f"the model {self.name}: {name} {number} does not divide the width {whole}")
        return number


_SLOW_GELU = frozenset({"gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch"})
"""Activation functions implemented in Python: each of their steps keeps a tensor for the backward."""


def copies(function: Any) -> int:
    """The number of tensors of the intermediate size that an activation function keeps for its backward."""
    return 4 if function in _SLOW_GELU else 1


def linear(name: str, out: int, into: int, step: BlockStep = BlockStep.INTO_FEED, *, bias: bool = False) -> Iterator[Weight]:
    """A linear layer. Tensor parallelism splits its outputs, or its inputs at the end of a step, where the bias stays whole."""
    yield Weight(f"{name}.weight", (out, into), step, divided=True)
    if bias:
        yield Weight(f"{name}.bias", (out,), step, divided=step not in (BlockStep.OUT_OF_ATTENTION, BlockStep.OUT_OF_FEED))


def norm(name: str, size: int, step: BlockStep = BlockStep.BEFORE_ATTENTION, *, bias: bool = True) -> Iterator[Weight]:
    """A norm, which tensor parallelism does not split."""
    yield Weight(f"{name}.weight", (size,), step)
    if bias:
        yield Weight(f"{name}.bias", (size,), step)
