"""Follows the log of a running job, and says what it tells as it comes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from dslint.diagnose.context import NOTHING, LogContext
from dslint.diagnose.diagnose import diagnose_job
from dslint.diagnose.diagnosis import Diagnosis, End
from dslint.diagnose.equal_jobs import EqualJobs
from dslint.diagnose.events import EventReader
from dslint.diagnose.fold import Fold
from dslint.diagnose.job import LoggedJob
from dslint.diagnose.reading import LogSource
from dslint.diagnose.summary import Row, rows
from dslint.diagnose.typed_facts import settled
from dslint.record import Record

ENDED = frozenset({End.FINISHED, End.FAILED, End.KILLED, End.HUNG})
GRACE = 5
"""How many times nothing new may come before a job that has ended is reported: other ranks may still write."""

CHANGING = frozenset({"step time", "throughput", "tokens", "compute"})
"""Facts that change with every step."""


class Following:
    """A stream that waits for more at its end, instead of ending. `wait` says whether to look again."""

    def __init__(self, stream: BinaryIO, wait: Callable[[], bool]) -> None:
        self._stream, self._wait = stream, wait

    def read(self, size: int) -> bytes:
        """The next bytes; none once waiting is over."""
        while not (data := self._stream.read(size)):
            if not self._wait():
                return b""
        return data


def follow(
    name: str, stream: BinaryIO, wait: Callable[[], bool], tell: Callable[[Item], None], given: LogContext = NOTHING
) -> list[Diagnosis]:
    """Follow a log until its job has ended, or `wait` says to stop, and return the diagnosis of each job.

    Args:
        name: the name of the log.
        stream: the open log.
        wait: waits until there may be more; False to stop.
        tell: gets what is new.
        given: what a person adds to the log.
    """
    fold, news, equal = Fold(), News(), EqualJobs()
    quiet = 0

    def look() -> bool:
        nonlocal quiet
        found = diagnose_job(fold.jobs[-1], equal, given)
        fresh = list(news.of(found))
        for item in fresh:
            tell(item)
        quiet = 0 if fresh else quiet + 1
        return not (found.outcome.end in ENDED and quiet >= GRACE) and wait()

    for event in EventReader(bounded=False).read([LogSource(name, Following(stream, look))]):  # type: ignore[arg-type]
        fold.take(event)
    return [diagnose_job(job, equal, given) for job in fold.jobs]


class Item(Record):
    """Something new: its kind ("fact", "finding", "notice", "cause" or "step"), as a sentence, and as data.

    A fact is two items: one with a sentence for a reader, one with a typed value for a program.
    """

    kind: str
    sentence: str
    data: dict[str, Any]


class News:
    """What was not said before."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._step = 0

    def of(self, found: Diagnosis) -> Iterator[Item]:
        """What is new in a diagnosis."""
        told = [Item("fact", f"{row.name}: {row.value}", {}) for row in _facts(found.job)]
        told += [Item("fact", "", {"name": fact.name, "value": fact.value}) for fact in settled(found.job)]
        told += [
            Item("finding", f"{one.code}: {one.message}", {"code": one.code, "severity": one.severity.value, "message": one.message})
            for one in found.findings
        ]
        for kind, causes in (("notice", found.notices), ("cause", found.causes)):
            told += [Item(kind, one.title, {"kind": one.kind, "title": one.title, "certain": one.certain}) for one in causes]
        for item in told:
            new = item.sentence or repr(item.data)
            if new not in self._said:
                self._said.add(new)
                yield item
        yield from self._progress(found.job)

    def _progress(self, job: LoggedJob) -> Iterator[Item]:
        """How far the job is: at each step that has twice as many steps as the one before, or a thousand more."""
        last = next((event for event in reversed(job.steps) if event.kind == "step" and event.number("step")), None)
        step = last.number("step") if last else None
        if last is None or step is None or step < min(2 * self._step, self._step + 1000) or step == self._step:
            return
        self._step = step
        whole = last.number("steps") or job.get("steps")
        loss = last.real("loss")
        told = f", loss {last.values['loss']}" if "loss" in last.values else ""
        data = {"step": step, "steps": whole, "loss": loss if loss is not None and math.isfinite(loss) else None}
        yield Item("step", f"step {step:,}{f' of {whole:,}' if whole else ''}{told}", data)


def _facts(job: LoggedJob) -> Iterator[Row]:
    return (row for row in rows(job) if row.name not in CHANGING)
