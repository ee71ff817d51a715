"""A place in a program that reads the gradient of a weight."""

from __future__ import annotations

from dslint.job.arguments import SourcedValue
from dslint.record import Record

CALLBACK = "callback"
"""A method of a `TrainerCallback` that the Trainer calls after the backward pass of the last batch of a step."""

TRAINING_STEP = "training_step"
"""A method of a Trainer that has called the backward pass."""

LOOP = "loop"
"""A loop that has called `backward` of an object."""


class GradientRead(Record):
    """A read of `weight.grad` that follows a backward pass, in the same turn of a loop or in a function that is called there.

    `after` is one of the words above; `backward` is the start of the call of `backward` in a `LOOP`, as in `Event.start`. `stepped` is True
    if a `step` of the same object lies between. `raises` is True if the code takes a part of the gradient, and never asks whether there is
    one.
    """

    at: SourcedValue
    after: str
    backward: int = 0
    stepped: bool = False
    raises: bool = False
