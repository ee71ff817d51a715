"""The memory of a deep model, extrapolated linearly from runs with fewer layers, and checked by a run at another depth."""

from __future__ import annotations

from dataclasses import replace

from dslint.probe.answer import Answer, Memory
from dslint.record import Record

TOLERANCE = 0.01
"""How far a third depth may be off the line through two others, relatively, before the line is not trusted."""


class DepthLine(Record):
    """The answer at full depth, on a line through the two deepest runs.

    The other runs show how far measurements deviate from the line. `error` is the largest deviation at full depth, as a share of the peak,
    if it grows like a parabola; `where` names the measurement. `holds` says whether it is small enough. `error` is None without other runs.
    """

    answer: Answer
    depths: tuple[int, ...]
    error: float | None
    where: str

    @property
    def holds(self) -> bool | None:
        """Whether the measured deviation is within the tolerance; None if unknown."""
        return None if self.error is None else self.error <= TOLERANCE


def line(answers: dict[int, Answer], full: int) -> DepthLine:
    """Extrapolate. Needs at least two depths, and every run must have finished."""
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
    return DepthLine(replace(high, memory=memory, parameters=parameters, layers=full, timeline=()), (*others, near, far), error, where)


def _between(low: Memory, high: Memory, part: float) -> Memory:
    """The memory at a fraction of the way from one to the other; above 1 and below 0 it extrapolates. Sites are those of `high`."""

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
