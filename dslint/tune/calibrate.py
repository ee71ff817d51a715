"""What measurements say about predictions: a factor for all times of a setup, and how far they still differ."""

from __future__ import annotations

import json
from statistics import median

from dslint.errors import UserError
from dslint.record import Record
from dslint.speed.step import Kind, StepPart, StepTime

NARROWEST = 0.1
"""The half width of a range that measurements of other configs of the setup leave at least."""


class Factor(Record):
    """Measured times as multiples of predicted ones: the median, and the smallest and largest in comparison with it."""

    factor: float
    low: float
    high: float
    count: int


def factor_of(path: str) -> Factor:
    """The factor that a file of measurements gives.

    Raises:
        UserError: the file cannot be read, or has no measured time.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.strip()]
        ended = [line for line in lines if line.get("event") == "ended" and line["outcome"]["seconds"]]
        ratios = [line["outcome"]["seconds"] / line["predicted"] for line in ended]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        raise UserError(f"{path} is not a file of `dslint tune --measure`") from None
    if not ratios:
        raise UserError(f"{path} has no measured time")
    middle = median(ratios)
    return Factor(middle, min(ratios) / middle, max(ratios) / middle, len(ratios))


def calibrated(step: StepTime, factor: Factor) -> StepTime:
    """The step with a measured factor: its parts keep their shares, and their ranges shrink to what the measurements leave open."""
    low, high = min(1 - NARROWEST, factor.low), max(1 + NARROWEST, factor.high)
    parts = tuple(StepPart(_narrower(part.kind, low, high), part.seconds * factor.factor) for part in step.parts)
    return step._replace(parts=parts)


def _narrower(kind: Kind, low: float, high: float) -> Kind:
    """A kind with a range that is no wider than given, and half as wide as its own where that is wider."""
    return kind._replace(low=max(kind.low, min(low, (1 + kind.low) / 2)), high=min(kind.high, max(high, (1 + kind.high) / 2)))
