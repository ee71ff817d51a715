"""What a training without DeepSpeed needs at least: each GPU holds the whole model, and what is trained of it."""

from __future__ import annotations

from dslint.memory.plan import STATES
from dslint.memory.shapes import Model
from dslint.record import Record

_PACKED = {4: 0.5625, 8: 1.0}
"""Bytes per element of a weight in 4 and 8 bits, with the scales of bitsandbytes."""


class LeastBytes(Record):
    """The bytes on each GPU: of the weights, of the gradients and of the optimizer states, all in 16 bits."""

    weights: int
    gradients: int
    states: int

    @property
    def total(self) -> int:
        """Their sum."""
        return self.weights + self.gradients + self.states


def least_undivided(model: Model, optimizer: str | None, bits: int | None, *, in_part: bool) -> LeastBytes:
    """The least that a training needs, with weights, gradients and states in 16 bits, as of a model that is loaded so.

    Args:
        model: the model; without adapters all of it is trained.
        optimizer: the optimizer of the estimate; None counts as one without states.
        bits: the bits of a quantized base, if it is one.
        in_part: only a part of the weights may be trained: their gradients do not count.
    """
    packed = _PACKED.get(bits or 0, 2.0)
    weights = sum(weight.size * (packed if weight.quantized else 2) for weight in model.weights)
    trained = 0 if in_part else sum(weight.size for weight in model.weights if weight.trained)
    states = STATES[optimizer] if optimizer is not None else 0.0
    return LeastBytes(round(weights), 2 * trained, round(trained * states / 2))
