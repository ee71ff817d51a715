"""A job as its log tells it: facts, memory, events, each with its line."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dslint.diagnose.events import LogEvent
from dslint.diagnose.parse_log import normal
from dslint.diagnose.prefixes import LogPlace
from dslint.record import Record


class Known(Record):
    """A fact, and the line that tells it (None: it follows from other facts, or was given)."""

    value: Any
    place: LogPlace | None = None


class MemoryMoment(Record):
    """Memory of a GPU at one moment, in GiB: what tensors hold, the most since the moment before, and what PyTorch reserved."""

    label: str
    now: float
    most: float
    reserved: float
    place: LogPlace
    host: float | None = None
    host_percent: float | None = None


@dataclass
class LoggedJob:
    """A job as its log tells it. `facts` are by name; what the log does not tell is missing. `last_of` is the position in `events` of the
    last one of a kind. `processes` are the numbers that the system gave to processes of the job.
    """

    facts: dict[str, Known] = field(default_factory=dict)
    moments: list[MemoryMoment] = field(default_factory=list)
    events: list[LogEvent] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    last_of: dict[str, int] = field(default_factory=dict)
    steps: list[LogEvent] = field(default_factory=list)
    ranks_seen: set[int] = field(default_factory=set)
    processes: set[int] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    first: LogPlace | None = None
    last: LogPlace | None = None

    def get(self, name: str) -> Any:
        """The value of a fact, None if it is unknown."""
        known = self.facts.get(name)
        return known.value if known else None

    def learn(self, name: str, value: Any, place: LogPlace | None, *, again: bool = False) -> None:
        """Remember a fact. The first line that tells it counts, unless `again`."""
        if value is not None and (again or name not in self.facts):
            self.facts[name] = Known(value, place)

    def told(self) -> str:
        """The values of all facts: equal for jobs with the same config, model and machines."""
        return repr(sorted((name, known.value) for name, known in self.facts.items() if name != "left_out"))

    def see_rank(self, rank: int | None, place: LogPlace) -> None:
        """Remember that a rank appears in the log."""
        if rank is None or rank >= MOST_RANKS:
            return
        self.ranks_seen.add(rank)
        if rank >= (self.get("ranks_at_least") or 0):
            self.learn("ranks_at_least", rank + 1, place, again=True)

    def has_run(self) -> bool:
        """Whether the log holds a start or a step of the job, not only its end."""
        return any(kind in self.counts for kind in ("launch", "ranks", "release", "allocated", "step"))

    def ranks(self) -> Known | None:
        """The number of ranks: what the launcher or the program says, or else the highest rank that the log names."""
        named, started = self.facts.get("ranks_at_least"), self.facts.get("processes")
        if started and (named is None or started.value > named.value):
            named = started
        parallel = None if self.get("megatron") else self.facts.get("data_parallel")
        return self.facts.get("ranks") or parallel or named

    def sure_ranks(self) -> int | None:
        """The number of ranks, if the log says it: the highest rank that it names is only a lower bound."""
        known = self.facts.get("ranks") or (None if self.get("megatron") else self.facts.get("data_parallel"))
        return known.value if known else None

    def survived(self, event: LogEvent) -> bool:
        """Whether the job trained on after an event: the ranks wait for each other, so that none can fail for long before all stop.

        Of an error that the job has survived before, such as one of a loader that tries again, one more step is enough.
        """
        steps = self._steps_after(event)
        if 0 < steps < SURVIVING:
            message = normal(event.text)
            same = (one for one in self.of(event.kind) if one.place < event.place and normal(one.text) == message)
            return any(self._steps_after(one) >= SURVIVING for one in same)
        return steps >= SURVIVING

    def _steps_after(self, event: LogEvent) -> int:
        """The steps after an event, counted up to `SURVIVING`."""
        later = (step for step in reversed(self.steps) if step.place.file == event.place.file)
        return sum(1 for step in islice(later, SURVIVING) if step.place.line > event.place.line)

    def stage(self) -> Known | None:
        """The ZeRO stage that the log or the config says; 0 if a complete config has none."""
        if "stage" in self.facts:
            return self.facts["stage"]
        config = self.facts.get("config")
        if config is None:
            return None
        section = config.value.get("zero_optimization")
        written = section.get("stage", 0) if isinstance(section, dict) else 0
        return Known(written, config.place) if isinstance(written, int) and 0 <= written <= 3 else None

    def setting(self, *path: str) -> Any:
        """A value of the config that the log prints, None without one."""
        value = self.get("config")
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def of(self, *kinds: str) -> list[LogEvent]:
        """The events that were kept, of some kinds."""
        return [event for event in self.events if event.kind in kinds]

    def before(self, event: LogEvent, *kinds: str) -> list[LogEvent]:
        """The events of some kinds that stand above an event in its file."""
        return [one for one in self.of(*kinds) if one.place.file == event.place.file and one.place.line < event.place.line]

    def had_finished(self, event: LogEvent) -> bool:
        """Whether the program said, before an event, that the training finished, and did not train on."""
        done = self.before(event, "finished")
        return bool(done) and not any(
            step.kind == "step" and step.place.file == event.place.file and step.place.line > done[-1].place.line for step in self.steps
        )

    def first_of(self, *kinds: str) -> LogEvent | None:
        """The first event of some kinds."""
        return next((event for event in self.events if event.kind in kinds), None)


SURVIVING = 3
"""The steps after an error that show that the job survived it."""

MOST_RANKS = 100_000
"""Higher numbers in brackets are not ranks."""


def state_after_init(job: LoggedJob) -> MemoryMoment | None:
    """The memory once DeepSpeed has initialized, on rank 0."""
    return next((moment for moment in reversed(job.moments) if "After initializing ZeRO optimizer" in moment.label), None)


def peak_gib(event: LogEvent) -> float:
    """The GiB of an event about the most memory that tensors took."""
    gib = event.real("gib")
    return gib if gib is not None else (event.real("mb") or 0) / 1024


def losses(job: LoggedJob) -> Iterator[tuple[LogEvent, float]]:
    """The losses in their order."""
    for event in job.steps:
        loss = event.real("loss")
        if loss is not None:
            yield event, loss


def first_not_finite(job: LoggedJob) -> LogEvent | None:
    """The first line with a loss that is not finite, of a step or in another form."""
    read = next((event for event, loss in losses(job) if not math.isfinite(loss)), None)
    other = job.first_of("not_finite")
    if read is None or other is None or read.place.file != other.place.file:
        return read or other
    return min(read, other, key=lambda event: event.place.line)


def step_times(job: LoggedJob) -> list[tuple[LogEvent, float]]:
    """The seconds of each step that the log times. Of a step that two loggers time, DeepSpeed's and Megatron's, the first line counts."""
    timed: list[tuple[LogEvent, float]] = []
    last = None
    for event in job.steps:
        seconds = (event.real("ms") or 0) / 1000 or event.real("seconds") or 0.0
        step = event.number("step")
        if event.kind == "step" and seconds > 0 and (step is None or step != last):
            timed.append((event, seconds))
            last = step
    return timed
