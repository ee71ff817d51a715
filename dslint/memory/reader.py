"""Reads the sizes of a model from the data of its `config.json`, and makes lists of weights of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.errors import UserError
from dslint.memory.shapes import Step, Weight

LAYERS, SIZES = 10_000, 1_000_000_000
"""More layers, or anything wider, than that is a mistake and no model."""


class ShapeError(UserError):
    """A model whose weights cannot be listed. The text is a sentence for people."""


class Reader:
    """Reads the sizes of a `config.json`, with the defaults of its family."""

    def __init__(self, data: dict[str, Any], name: str, family: str, defaults: dict[str, Any]) -> None:
        self.data, self.name, self.family, self.defaults = data, name, family, defaults

    def size(self, *names: str) -> int:
        """A size that has to be there.

        Raises:
            ShapeError: it is not, or is no number of 1 or more.
        """
        for name in names:
            value = self.optional(name)
            if value is not None:
                return value
        raise ShapeError(f"the model {self.name} does not say its {names[0]}, without which a {self.family} model has no size")

    def optional(self, name: str) -> int | None:
        """A size that may be missing.

        Raises:
            ShapeError: it is there, and no number of 1 or more, or of a size that no model has.
        """
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ShapeError(f"the model {self.name}: {name} is {value!r}, and has to be a whole number of 1 or more")
        most = LAYERS if name.endswith(("layers", "n_layer")) else SIZES
        if value > most:
            raise ShapeError(f"the model {self.name}: {name} is {value}, and more than {most:,}, which no model has")
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """A value that may be missing or null."""
        value = self.data.get(name)
        return value if value is not None else self.defaults.get(name, default)

    def parts(self, whole: int, name: str) -> int:
        """A number of heads that has to divide a width."""
        number = self.size(name)
        if whole % number:
            raise ShapeError(f"the model {self.name}: {name} {number} does not divide the width {whole}")
        return number


_SLOW_GELU = frozenset({"gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch"})
"""Activation functions that are written out in Python, each step of which keeps a tensor for its backward."""


def copies(function: Any) -> int:
    """How many tensors of the inner width an activation function keeps for its backward."""
    return 4 if function in _SLOW_GELU else 1


def linear(name: str, out: int, into: int, step: Step = Step.INTO_FEED, *, bias: bool = False) -> Iterator[Weight]:
    """A linear layer. Tensor parallelism divides its outputs, or its inputs where a step comes to its end; that bias then stays whole."""
    yield Weight(f"{name}.weight", (out, into), step, divided=True)
    if bias:
        yield Weight(f"{name}.bias", (out,), step, divided=step not in (Step.OUT_OF_ATTENTION, Step.OUT_OF_FEED))


def norm(name: str, size: int, step: Step = Step.BEFORE_ATTENTION, *, bias: bool = True) -> Iterator[Weight]:
    """A norm, which every rank holds whole."""
    yield Weight(f"{name}.weight", (size,), step)
    if bias:
        yield Weight(f"{name}.bias", (size,), step)
