"""A config that `tune` considers, with its time."""

from __future__ import annotations

from dslint.memory.plan import Plan
from dslint.record import Record
from dslint.speed.step import StepTime
from dslint.tune.space import ConfigChoice


class Candidate(Record):
    """A choice with its plan and its step, and the seconds of a sample."""

    choice: ConfigChoice
    plan: Plan
    step: StepTime

    @property
    def seconds(self) -> float:
        """Seconds of a sample over all GPUs."""
        return self.step.seconds / self.plan.samples
