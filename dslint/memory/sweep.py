"""Estimates for several values of one option."""

from __future__ import annotations

from dslint.memory.estimate import Estimate, estimate
from dslint.memory.plan import Plan, PlanError
from dslint.record import Record

NAMES = ("world-size", "stage", "micro-batch", "sequence-length")
MOST = 1000
"""Points of a sweep."""


class Sweep(Record):
    """The name of a sweep, its values, and an estimate for each."""

    name: str
    values: tuple[int, ...]
    points: tuple[Estimate, ...]


def read_sweep(text: str) -> tuple[str, tuple[int, ...]]:
    """The name and the values of `world-size=1..512` (doubling), `stage=0..3` (each), `micro-batch=1,2,4`.

    Raises:
        PlanError: the text has another form.
    """
    name, _, values = text.partition("=")
    name = name.strip().removeprefix("--")
    if name not in NAMES:
        raise PlanError(f'--sweep "{text}" must be one of {", ".join(f"{name}=VALUES" for name in NAMES)}')
    try:
        if ".." in values:
            first, last = (int(word) for word in values.split(".."))
            found = _steps(first, last, doubling=name != "stage")
        else:
            found = [int(word) for word in values.split(",")]
    except ValueError:
        found = []
    least = 0 if name == "stage" else 1
    if not found or min(found) < least or (name == "stage" and max(found) > 3) or len(found) > MOST:
        raise PlanError(f'--sweep "{text}" needs values such as {name}={"0..3" if name == "stage" else "1..64"}')
    return name, tuple(found)


def _steps(first: int, last: int, *, doubling: bool) -> list[int]:
    if not doubling:
        return list(range(first, last + 1))
    found = []
    while 0 < first <= last:
        found.append(first)
        first *= 2
    return found + [last] * bool(found and found[-1] != last)


def sweep(base: Estimate, name: str, values: tuple[int, ...]) -> Sweep:
    """An estimate for each value, with everything else as in `base`.

    Raises:
        PlanError: a value is invalid for this plan.
    """
    return Sweep(name, values, tuple(estimate(base.model, _with(base.plan, name, value)) for value in values))


def _with(plan: Plan, name: str, value: int) -> Plan:
    if name == "world-size":
        if value % (plan.tensor * plan.sequence):
            raise PlanError(f"--world-size {value} is not divisible by the tensor and sequence parallel size {plan.tensor * plan.sequence}")
        return plan.but(world=value, replicas=value // plan.tensor, local=min(plan.local if plan.world > plan.local else 8, value))
    if name == "stage":
        return at_stage(plan, value)
    if name == "micro-batch":
        return plan.but(micro_batch=value)
    if value % plan.sequence:
        raise PlanError(f"--sequence-length {value} is not divisible by the sequence parallel size {plan.sequence}")
    return plan.but(length=value)


def at_stage(plan: Plan, stage: int) -> Plan:
    """The plan at another ZeRO stage, with the values that the config has for that stage, or its defaults."""
    return plan.but(
        stage=stage,
        overlap=stage == 3 if plan.overlap == (plan.stage == 3) else plan.overlap,
        optimizer_device=plan.optimizer_device if stage else None,
        parameter_device=plan.parameter_device if stage == 3 else None,
        secondary=plan.secondary if stage == 3 else 1,
    )
