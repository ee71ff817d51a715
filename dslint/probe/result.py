"""What a run of the probe gives back, and what its reports are written from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dslint.diagnostics import Diagnostic
from dslint.probe.answer import Answer
from dslint.probe.depth import Line
from dslint.probe.question import Question
from dslint.probe.variants import Variant

RAN, RAISED, COULD_NOT_RUN, OVER = 0, 1, 3, 4
"""Exit codes: the engine ran and fits; it raised; nothing could be run; it ran (or ran out of memory), and is over the limit."""


class Predicted(NamedTuple):
    """A size in bytes that the estimate gives, beside what was measured, on the device."""

    what: str
    predicted: int
    measured: int


class Limit(NamedTuple):
    """The bytes there are on the device, and where that is known from: "--limit", "one h100"."""

    size: int
    source: str


@dataclass(frozen=True, slots=True)
class Result:
    """A question about a config with its answer.

    `explained` are the rules that explain an exception, `predicted` the estimate beside the measurement, `line` how the answer was drawn
    from runs at other depths, where it was.
    """

    path: str
    question: Question
    answer: Answer
    limit: Limit | None = None
    explained: tuple[Diagnostic, ...] = ()
    predicted: tuple[Predicted, ...] = ()
    line: Line | None = None
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool | None:
        """Whether the peak is within the limit; None without a limit or a peak."""
        if self.answer.out_of_memory:
            return False
        memory = self.answer.memory.get(self.answer.place)
        return memory.peak <= self.limit.size if self.limit and memory and self.answer.started else None

    @property
    def exit_code(self) -> int:
        """The exit code that says it."""
        if self.answer.unable is not None:
            return COULD_NOT_RUN
        if self.fits is False:
            return OVER
        return RAN if self.answer.started else RAISED


@dataclass(frozen=True, slots=True)
class Comparison:
    """Variants with their results, in the order in which they were run."""

    path: str
    results: tuple[tuple[Variant, Result], ...]

    @property
    def exit_code(self) -> int:
        """That of the best variant."""
        return min(result.exit_code for _, result in self.results)


@dataclass(frozen=True, slots=True)
class Search:
    """What the search for the largest micro batch found: the size (None: not even 1 fits), its result, and all sizes that were tried."""

    path: str
    largest: int | None
    result: Result
    tried: tuple[tuple[int, Result], ...]

    @property
    def exit_code(self) -> int:
        """`RAN` where a size fits; else that of the run with micro batch 1."""
        return RAN if self.largest is not None else self.result.exit_code
