"""What ran: the facts of a job, each with the line that tells it, folded from events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dslint.diagnose.events import Event
from dslint.diagnose.facts import FACTS, KEEPERS
from dslint.diagnose.reading import Place


class Known(NamedTuple):
    """A fact, and the line that tells it (None: it follows from other facts, or was given)."""

    value: Any
    place: Place | None = None


class Moment(NamedTuple):
    """Memory of a GPU at one moment, in GiB: what tensors hold, the most since the moment before, and what PyTorch reserved."""

    label: str
    now: float
    most: float
    reserved: float
    place: Place
    host: float | None = None
    host_percent: float | None = None


@dataclass
class Job:
    """A job as its log tells it. `facts` are by name; what the log does not tell is missing."""

    facts: dict[str, Known] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    steps: list[Event] = field(default_factory=list)
    ranks_seen: set[int] = field(default_factory=set)
    first: Place | None = None
    last: Place | None = None

    def get(self, name: str) -> Any:
        """The value of a fact, None if it is unknown."""
        known = self.facts.get(name)
        return known.value if known else None

    def learn(self, name: str, value: Any, place: Place | None, *, again: bool = False) -> None:
        """Remember a fact. The first line that tells it counts, unless `again`."""
        if value is not None and (again or name not in self.facts):
            self.facts[name] = Known(value, place)

    def see_rank(self, rank: int | None, place: Place) -> None:
        """Remember that a rank appears in the log."""
        if rank is None or rank >= MOST_RANKS:
            return
        self.ranks_seen.add(rank)
        if rank >= (self.get("ranks_at_least") or 0):
            self.learn("ranks_at_least", rank + 1, place, again=True)

    def ranks(self) -> Known | None:
        """The number of ranks: what the launcher or the program says, or else the highest rank that the log names."""
        named, started = self.facts.get("ranks_at_least"), self.facts.get("processes")
        if started and (named is None or started.value > named.value):
            named = started
        parallel = None if self.get("megatron") else self.facts.get("data_parallel")
        return self.facts.get("ranks") or parallel or named

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

    def of(self, *kinds: str) -> list[Event]:
        """The events that were kept, of some kinds."""
        return [event for event in self.events if event.kind in kinds]

    def first_of(self, *kinds: str) -> Event | None:
        """The first event of some kinds."""
        return next((event for event in self.events if event.kind in kinds), None)


MOST_RANKS = 100_000
"""Higher numbers in brackets are not ranks."""

MOST_EVENTS, MOST_STEPS = 4000, 4000
"""How many events and steps of a job are kept; of more steps, every second is dropped."""


def jobs_of(events: Iterable[Event]) -> list[Job]:
    """The jobs of a log. A launcher that starts after another one begins a new job."""
    found = [Job()]
    label: dict[str, str] = {}
    for event in events:
        if event.kind == "launch" and _has_run(found[-1]):
            found.append(Job())
            label.clear()
        _take(found[-1], event, label)
    return found


def _has_run(job: Job) -> bool:
    return any(kind in job.counts for kind in ("launch", "ranks", "release", "allocated", "step"))


def _take(job: Job, event: Event, label: dict[str, str]) -> None:
    job.first = job.first or event.place
    job.last = event.place
    job.counts[event.kind] = job.counts.get(event.kind, 0) + 1
    job.see_rank(event.rank, event.place)
    if event.kind in FACTS:
        FACTS[event.kind](job, event)
    if event.kind == "label":
        label[event.source] = event.values["label"].strip()
    elif event.kind in ("allocated", "allocated_mb"):
        _remember_memory(job, event, label)
    elif event.kind == "host" and job.moments:
        job.moments[-1] = job.moments[-1]._replace(host=event.real("used"), host_percent=event.real("percent"))
    elif event.kind in ("step", "bar", "throughput"):
        _remember_step(job, event)
    elif event.kind in KEEPERS and len(job.events) < MOST_EVENTS:
        job.events.append(event)


def _remember_memory(job: Job, event: Event, label: dict[str, str]) -> None:
    if len(job.moments) >= MOST_EVENTS:
        return
    scale = 1024 if event.kind == "allocated_mb" else 1
    now, most, reserved = (event.real(name) for name in ("now", "most", "most_reserved"))
    if now is None or most is None or reserved is None:
        return
    name = "after the first iterations" if scale > 1 else label.get(event.source, "")
    job.moments.append(Moment(name, now / scale, most / scale, reserved / scale, event.place))


def _remember_step(job: Job, event: Event) -> None:
    if len(job.steps) >= MOST_STEPS:
        job.steps[1:-1] = job.steps[1:-1:2]
    job.steps.append(event)


def state_after_init(job: Job) -> Moment | None:
    """The memory once DeepSpeed has initialized, on rank 0."""
    return next((moment for moment in reversed(job.moments) if "After initializing ZeRO optimizer" in moment.label), None)


def losses(job: Job) -> Iterator[tuple[Event, float]]:
    """The losses in their order."""
    for event in job.steps:
        loss = event.real("loss")
        if loss is not None:
            yield event, loss
