"""What a deep model takes, from runs at smaller depths: a straight line over the layers, shown to hold by a run at another depth."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from dslint.probe.answer import Answer, Memory

TOLERANCE = 0.01


class Line(NamedTuple):
    """The answer at full depth that a line through the two deepest runs gives.

    The runs before these show how far what is measured bends away from the line. `error` is how far it would be from the line at full depth
    if it went on bending so (as a parabola does): the largest, as a share of the peak, and `where` what it is of. `holds` says that it is
    small enough. It is None where there are no other runs to show it.
    """

    answer: Answer
    depths: tuple[int, ...]
    error: float | None
    where: str

    @property
    def holds(self) -> bool | None:
        """Whether the line was shown to hold."""
        return None if self.error is None else self.error <= TOLERANCE


def line(answers: dict[int, Answer], full: int) -> Line:
    """Draw the line. There must be two depths at least, and every answer must be of a run that took its steps."""
    *others, near, far = sorted(answers)
    low, high = answers[near], answers[far]
    part = (full - near) / (far - near)
    memory = {place: _between(low.memory[place], high.memory[place], part) for place in high.memory}
    error: float | None = None
    where = ""
    for depth in others:
        bend = (full - near) * (full - far) / ((near - depth) * (far - depth))
        for place, measured in answers[depth].memory.items():
            drawn = _sizes(_between(low.memory[place], high.memory[place], (depth - near) / (far - near)))
            for name, size in _sizes(measured).items():
                off = bend * abs(drawn.get(name, 0) - size) / max(memory[place].peak, 1)
                if error is None or off > error:
                    error, where = off, f"{name} on the {place}"
    parameters = round(low.parameters + (high.parameters - low.parameters) * part)
    return Line(replace(high, memory=memory, parameters=parameters, layers=full, timeline=()), (*others, near, far), error, where)


def _between(low: Memory, high: Memory, part: float) -> Memory:
    """The memory at a part of the way from one to the other; beyond 1 it is ahead of both, below 0 behind. Sites are those of `high`."""

    def at(first: int, second: int) -> int:
        return max(0, round(first + (second - first) * part))

    return replace(
        high,
        initialized=at(low.initialized, high.initialized),
        steady=at(low.steady, high.steady),
        peaks={phase: at(low.peaks.get(phase, 0), size) for phase, size in high.peaks.items()},
        pinned=at(low.pinned, high.pinned),
        parts={name: at(low.parts.get(name, 0), size) for name, size in high.parts.items()},
    )


def _sizes(memory: Memory) -> dict[str, int]:
    return {"steady memory": memory.steady, **{f"the peak of {phase}": size for phase, size in memory.peaks.items()}}
