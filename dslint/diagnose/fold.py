"""Folds the events of a log into jobs."""

from __future__ import annotations

from collections.abc import Iterable

from dslint.diagnose.events import Event
from dslint.diagnose.facts import FACTS, KEEPERS
from dslint.diagnose.job import Job, Moment

MOST_EVENTS, MOST_STEPS, MOST_MOMENTS = 500, 4000, 4000
"""How many events of a kind, steps, and moments of memory are kept. Of more steps, every second is dropped."""


BEGINS = frozenset({"release", "trainer", "ranks", "mesh", "argument", "process_started"})
"""Lines that a run prints before its first step."""

TRAINS = frozenset({"step", "throughput"})
"""Lines that only a run in its steps prints. A progress bar may be one of a tokenizer, before the first step."""

OF_LAUNCHER = frozenset({"ranks", "nodes", "hosts", "spawned", "config_path", "gpu", "gpu_memory", "torch", "release"})
"""What stays the same when a launcher, or a program, trains again."""


class Fold:
    """The jobs of a log, event by event. A launcher that starts after another one begins a new job."""

    def __init__(self) -> None:
        self.jobs = [Job()]
        self._labels: dict[str, str] = {}
        self._restarts = False
        self._trained: Event | None = None

    def take(self, event: Event) -> None:
        """Take the next event."""
        job = self.jobs[-1]
        if (event.kind == "launch" and job.has_run()) or (event.kind in BEGINS and self._begins_again(event)):
            self.jobs.append(Job() if event.kind == "launch" else _next_of(job))
            self._labels.clear()
            self._restarts = False
            self._trained = None
        self._restarts |= event.kind == "restart"
        if event.kind in TRAINS:
            self._trained = event
        _take(self.jobs[-1], event, self._labels)

    def _begins_again(self, event: Event) -> bool:
        """Whether a line that a run prints at its start begins another one, under the same launcher."""
        if self._restarts:
            return True
        if self._trained is None or event.rank not in (None, 0) or self._trained.place.file != event.place.file:
            return False
        return event.kind != "trainer" or "Running training" in event.text


def _next_of(job: Job) -> Job:
    """The next run under the same launcher, with what the launcher told."""
    return Job(facts={name: known for name, known in job.facts.items() if name in OF_LAUNCHER})


def jobs_of(events: Iterable[Event]) -> list[Job]:
    """The jobs of a log."""
    fold = Fold()
    for event in events:
        fold.take(event)
    return fold.jobs


def _take(job: Job, event: Event, label: dict[str, str]) -> None:
    job.first = job.first or event.place
    job.last = event.place
    job.files.add(event.place.file)
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
    elif event.kind in KEEPERS:
        _keep(job, event)


def _keep(job: Job, event: Event) -> None:
    """Keep an event. Of too many skipped steps the last one replaces the one before, because their last scale counts."""
    if job.counts[event.kind] <= MOST_EVENTS:
        job.last_of[event.kind] = len(job.events)
        job.events.append(event)
    elif event.kind == "overflow":
        job.events[job.last_of[event.kind]] = event


def _remember_memory(job: Job, event: Event, label: dict[str, str]) -> None:
    if len(job.moments) >= MOST_MOMENTS:
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
