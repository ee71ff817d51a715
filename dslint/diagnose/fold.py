"""Folds the events of a log into jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dslint.diagnose.events import LogEvent
from dslint.diagnose.facts import FACTS, KEEPERS
from dslint.diagnose.job import LoggedJob, MemoryMoment, peak_gib

MOST_EVENTS, MOST_STEPS, MOST_MOMENTS = 500, 4000, 4000
"""How many events of a kind, steps, and moments of memory are kept. Of more steps, every second is dropped."""


BEGINS = frozenset({"release", "trainer", "ranks", "mesh", "argument", "process_started"})
"""Lines that a run prints before its first step."""

TRAINS = frozenset({"step", "throughput"})
"""Lines that only a run in its steps prints. A progress bar may be one of a tokenizer, before the first step."""

VERDICTS = frozenset({"return_code", "child_failed", "cancelled", "exited_well"})
"""Lines in which a launcher, or Slurm, says that a process has ended. What starts after it on the same machine is another run."""

FAILS = frozenset({"raised", "error", "oom", "host_allocation", "return_code", "child_failed", "worker_failed"})
"""Lines of a run that fails, perhaps before it prints anything else."""

OF_MACHINE = frozenset({"gpu", "gpu_memory"})
"""What stays the same when another launcher starts."""

OF_LAUNCHER = frozenset({"ranks", "nodes", "hosts", "spawned", "config_path", "gpu", "gpu_memory", "torch", "release"})
"""What stays the same when a launcher, or a program, trains again."""


class Fold:
    """The jobs of a log, event by event. A launcher that starts after another one begins a new job, and so does a process that starts after
    a launcher has said that its processes ended.
    """

    def __init__(self) -> None:
        self.jobs = [LoggedJob()]
        self._labels: dict[str, str] = {}
        self._forget()

    def _forget(self) -> None:
        """Forget what the lines of a job say about the next one."""
        self._labels.clear()
        self._restarts = self._starts = False
        self._trained: LogEvent | None = None
        self._ended: LogEvent | None = None

    def take(self, event: LogEvent) -> None:
        """Take the next event."""
        following = self._following(event)
        if following is not None:
            self.jobs.append(following)
            self._forget()
        self._restarts |= event.kind == "restart"
        self._starts |= event.kind == "process_begins" and self._is_after(self._ended, event)
        if event.kind in TRAINS:
            self._trained = event
        elif _is_verdict(event):
            self._ended = event
        _take(self.jobs[-1], event, self._labels)

    def _following(self, event: LogEvent) -> LoggedJob | None:
        """The next job, if a line begins one."""
        job = self.jobs[-1]
        if event.kind == "launch":
            return LoggedJob() if job.has_run() else None
        if event.kind in BEGINS and self._begins_again(event):
            return _next_of(job, OF_LAUNCHER)
        if event.kind in BEGINS and self._is_after(self._ended, event) and _begins_surely(job, event):
            return _next_of(job, OF_MACHINE)
        if event.kind in FAILS and self._starts and self._is_after(self._ended, event) and (job.get("nodes") or 1) == 1:
            return _next_of(job, OF_MACHINE)
        if event.kind == "refused" and (self._trained or self._ended or "finished" in job.counts):
            return _next_of(job, OF_MACHINE)
        return None

    def _begins_again(self, event: LogEvent) -> bool:
        """Whether a line that a run prints at its start begins another one, under the same launcher."""
        if self._restarts:
            return True
        if self._trained is None or event.rank not in (None, 0) or self._trained.place.file != event.place.file:
            return False
        return event.kind != "trainer" or "Running training" in event.text

    @staticmethod
    def _is_after(ended: LogEvent | None, event: LogEvent) -> bool:
        """Whether a line stands in the same log as the end of a process, and is of the same machine."""
        return ended is not None and (ended.place.file, ended.host) == (event.place.file, event.host)


def _is_verdict(event: LogEvent) -> bool:
    """Whether a launcher says that a process has ended. A compiler that failed is one of CalledProcessError, too."""
    return event.kind in VERDICTS and not (event.kind == "child_failed" and "ChildFailedError" not in event.text)


def _begins_surely(job: LoggedJob, event: LogEvent) -> bool:
    """Whether a line that a run prints at its start is not one of a machine that started later than the one that failed."""
    if event.kind in ("ranks", "process_started") and (job.get("nodes") or 1) > 1:
        return False
    return event.rank in (None, 0) and (event.kind != "trainer" or "Running training" in event.text)


def _next_of(job: LoggedJob, kept: frozenset[str]) -> LoggedJob:
    """The next run, with the facts of the one before that stay the same."""
    return LoggedJob(facts={name: known for name, known in job.facts.items() if name in kept})


def jobs_of(events: Iterable[LogEvent]) -> list[LoggedJob]:
    """The jobs of a log."""
    fold = Fold()
    for event in events:
        fold.take(event)
    return fold.jobs


def _take(job: LoggedJob, event: LogEvent, label: dict[str, str]) -> None:
    job.first = job.first or event.place
    job.last = event.place
    job.files.add(event.place.file)
    job.counts[event.kind] = job.counts.get(event.kind, 0) + 1
    job.see_rank(event.rank, event.place)
    if event.values.get("pid") and len(job.processes) < MOST_EVENTS:
        job.processes.add(int(event.values["pid"][:10]))
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
        if event.kind == "first_failed":
            _forget_later_failures(job)
        _keep(job, event)


def _keep(job: LoggedJob, event: LogEvent) -> None:
    """Keep an event. Of too many skipped steps the last one replaces the one before, because their last scale counts; of peaks a higher one
    does; of errors the last ones replace those in the middle, because the job survived these.
    """
    if job.counts[event.kind] > MOST_EVENTS:
        if event.kind == "overflow" or (event.kind == "peak" and peak_gib(event) > peak_gib(job.events[job.last_of[event.kind]])):
            job.events[job.last_of[event.kind]] = event
        if event.kind not in FAILS:
            return
        if job.counts[event.kind] % (MOST_EVENTS // 2) == 0:  # not for each: it looks at all events
            _forget_in_the_middle(job, event.kind)
    job.last_of[event.kind] = len(job.events)
    job.events.append(event)


def _forget_later_failures(job: LoggedJob) -> None:
    """Drop the failures that torchrun lists above the first one: they followed from it."""
    reports = [place for place, event in enumerate(job.events) if event.kind == "child_failed"]
    listed = ("worker_signal", "failed_code")
    _forget(job, {place for place, event in enumerate(job.events) if reports and place > reports[-1] and event.kind in listed})


def _forget_in_the_middle(job: LoggedJob, kind: str) -> None:
    """Drop what lies between the first and the last events of a kind, of each half as many as are kept."""
    places = [place for place, event in enumerate(job.events) if event.kind == kind]
    _forget(job, set(places[MOST_EVENTS // 2 : -(MOST_EVENTS // 2)]))


def _forget(job: LoggedJob, places: set[int]) -> None:
    """Drop events by their place in the list."""
    job.events[:] = [event for place, event in enumerate(job.events) if place not in places]
    job.last_of = {event.kind: place for place, event in enumerate(job.events)}


def _remember_memory(job: LoggedJob, event: LogEvent, label: dict[str, str]) -> None:
    if len(job.moments) >= MOST_MOMENTS:
        return
    scale = 1024 if event.kind == "allocated_mb" else 1
    now, most, reserved = (event.real(name) for name in ("now", "most", "most_reserved"))
    if now is None or most is None or reserved is None:
        return
    name = "after the first iterations" if scale > 1 else label.get(event.source, "")
    job.moments.append(MemoryMoment(name, now / scale, most / scale, reserved / scale, event.place))


_NO_STEPS = re.compile(
    r"^\W*(?:Loading|Download|Fetching|Map\b|Filter|Tokeniz|Running tokenizer|Generating|Converting|Saving|Writing|Quantiz|Casting|Grouping"
    r"|Flattening|Packing|Upload|(?:Pre-?)?[Pp]rocess|Materializing|Extracting|Setting|Adding|Truncating|Dropping|Parsing|Reading|Resolving"
    r"|Creating|Build|Comput|Shuffling|Sorting|Caching)"
)
"""How the bars of loaders and of data preparation begin, which count no steps of a training."""


def _remember_step(job: LoggedJob, event: LogEvent) -> None:
    if event.kind == "bar" and _NO_STEPS.match(event.text):
        return
    if len(job.steps) >= MOST_STEPS:
        job.steps[1:-1] = job.steps[1:-1:2]
    job.steps.append(event)
