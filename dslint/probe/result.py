"""The results of a probe, from which its reports are written."""

from __future__ import annotations

from typing import NamedTuple

from dslint.diagnostics import Diagnostic
from dslint.probe.answer import Answer
from dslint.probe.depth import DepthLine
from dslint.probe.question import Question
from dslint.probe.variants import ProbedVariant
from dslint.record import Record

RAN, RAISED, COULD_NOT_RUN, OVER = 0, 1, 3, 4
"""Exit codes: the engine ran and fits; it raised; nothing could run; it needs more than the limit or ran out of memory."""


class Predicted(NamedTuple):
    """An estimated and a measured size on the device, in bytes."""

    what: str
    predicted: int
    measured: int


class MemoryLimit(Record):
    """The memory limit of the device in bytes, and its source: "--limit", "one h100"."""

    size: int
    source: str


class ProbeResult(Record):
    """A question about a config with its answer.

    `explained` are the findings that explain an exception, `predicted` compares estimate and measurement, `line` is the extrapolation from
    runs at other depths, if any.
    """

    path: str
    question: Question
    answer: Answer
    limit: MemoryLimit | None = None
    explained: tuple[Diagnostic, ...] = ()
    predicted: tuple[Predicted, ...] = ()
    line: DepthLine | None = None
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
        """The exit code for this result."""
        if self.answer.unable is not None:
            return COULD_NOT_RUN
        if self.fits is False:
            return OVER
        return RAN if self.answer.started else RAISED


class ComparedVariants(Record):
    """Variants with their results, in the order in which they were run."""

    path: str
    results: tuple[tuple[ProbedVariant, ProbeResult], ...]

    @property
    def exit_code(self) -> int:
        """That of the best variant."""
        return min(result.exit_code for _, result in self.results)


class SearchResult(Record):
    """The largest micro batch size (None: not even 1 fits), its result, and all sizes that were tried."""

    path: str
    largest: int | None
    result: ProbeResult
    tried: tuple[tuple[int, ProbeResult], ...]

    @property
    def exit_code(self) -> int:
        """`RAN` if a size fits; otherwise that of the run with micro batch 1."""
        return RAN if self.largest is not None else self.result.exit_code
