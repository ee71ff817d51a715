"""Reads the time of steps from the output of a training as it comes."""

from __future__ import annotations

import re
from statistics import median

from dslint.diagnose.signs.failure import SIGNS as FAILURES
from dslint.diagnose.signs.progress import SIGNS as PROGRESS

WARM_UP = 2
"""Steps that are not counted: kernels are compiled and memory is reserved in the first ones."""

STEPS = 5
"""Steps that are measured."""

CURRENT = re.compile(r"CurrSamplesPerSec=(?P<rate>\d+(?:\.\d+)?)")
"""What DeepSpeed's throughput timer prints at every `steps_per_print` steps."""

OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemoryError|oom[-_]kill|exitcode: -9|exits with return code = -9")

STEP_SIGNS = tuple(sign for sign in PROGRESS if sign.kind == "step")
FAILED = tuple(sign for sign in FAILURES if sign.kind in ("oom", "pinned"))


class Timing:
    """The step times of a training. A line that states a time counts more than the moment at which a line about a step comes."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.stated: list[float] = []
        self.came: list[float] = []
        self.ran_out = False
        self.last: list[str] = []
        self._literal = ""

    def read(self, line: str, now: float) -> None:
        """Read a line that came at a time."""
        self.last = [*self.last[-19:], line.rstrip()[:500]]
        if OUT_OF_MEMORY.search(line) or any(sign.pattern.search(line) for sign in FAILED):
            self.ran_out = True
        current = CURRENT.search(line)
        if current is not None and float(current["rate"]) > 0:
            self.stated.append(self.samples / float(current["rate"]))
            return
        for sign in STEP_SIGNS:
            literal = next((literal for literal in sign.literals if literal in line), None)
            match = sign.pattern.search(line) if literal else None
            if match is None or literal is None:
                continue
            values = match.groupdict()
            if values.get("ms"):
                self.stated.append(float(values["ms"]) / 1000)
            elif values.get("seconds"):
                self.stated.append(float(values["seconds"]))
            elif self._literal in ("", literal):  # a step may print several lines, of which one kind is enough
                self._literal = literal
                self.came.append(now)
            return

    @property
    def steps(self) -> list[float]:
        """Seconds of the steps after the first ones."""
        if len(self.stated) > WARM_UP:
            return self.stated[WARM_UP:]
        return [after - before for before, after in zip(self.came[WARM_UP:], self.came[WARM_UP + 1 :], strict=False)]

    @property
    def is_done(self) -> bool:
        """Whether enough steps were measured."""
        return len(self.steps) >= STEPS

    @property
    def seconds(self) -> float | None:
        """The median of a step; None if no step was measured."""
        return median(self.steps) if self.steps else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The shortest and the longest step."""
        return (min(self.steps), max(self.steps)) if self.steps else None
