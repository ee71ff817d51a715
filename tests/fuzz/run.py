"""Runs targets on mutated inputs, and counts what failed."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from dslint.errors import TRACEBACK
from tests.fuzz import seeds
from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS

SLOW = 5.0
"""The most CPU seconds that an input may take: what hangs or explodes passes any bound, and a busy machine takes twice the time for the rest."""

WAIT = 60.0
"""The most seconds of the clock that an input may take: what waits for a pipe or a lock uses no CPU."""

GROWTH = 64 * 2**20
"""The most bytes by which the memory may grow after the first quarter of a run: caches are full by then."""

TURN = 50
"""Inputs of one target before the next one has its turn."""

SHOWN = 3
"""Failures at the same place that are reported; others are only counted."""


class Waits(BaseException):
    """An input waits without an end. No Exception: what handles any error must not handle this."""


class Failure(NamedTuple):
    """What failed: the case, the place that raised, and what happened."""

    target: str
    number: int
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.target}, case {self.number}: {self.message} ({self.place})"


@dataclass
class Outcome:
    """The numbers of inputs by target, the failures, and the memory after each turn in bytes."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    @property
    def growth(self) -> int:
        """The bytes by which the memory has grown since the first quarter of the run."""
        return self.memory[-1] - max(self.memory[: max(len(self.memory) // 4, 1)]) if self.memory else 0


@dataclass(frozen=True)
class Budget:
    """When a run ends: after so many seconds, or so many inputs of each target."""

    seconds: float | None = None
    cases: int | None = None

    def is_spent(self, counts: Iterator[int], seconds: float) -> bool:
        """Whether the run ends now."""
        if self.seconds is not None and seconds > self.seconds:
            return True
        return self.cases is not None and min(counts) >= self.cases


def input_of(target: str, seed: int, number: int) -> tuple[str, Random]:
    """The input of a case and the source of its other choices. A case depends on nothing but its target, seed and number."""
    rng = Random(f"{seed}/{target}/{number}")
    texts = TARGETS[target].seeds()
    text = rng.choice(texts)
    return mutated(text, rng, texts) if TARGETS[target].mutates else text, rng


def run(names: list[str], seed: int, budget: Budget, report: Callable[[str], object] = lambda _: None) -> Outcome:
    """Run the targets in turn until the budget is spent. What fails is reported at once, and the run goes on."""
    outcome, begun = Outcome(), time.monotonic()
    places: Counter[str] = Counter()
    with _working_folder():
        while not budget.is_spent((outcome.counts[name] for name in names), time.monotonic() - begun):
            for name in names:
                first = outcome.counts[name]
                last = first + TURN if budget.cases is None else min(first + TURN, budget.cases)
                for failed in filter(None, (failure(name, seed, number) for number in range(first, last))):
                    outcome.failures.append(failed)
                    places[failed.place] += 1
                    if places[failed.place] <= SHOWN:
                        report(str(failed))
                outcome.counts[name] = last
            gc.collect()
            outcome.memory.append(_memory())
    return outcome


def failure(name: str, seed: int, number: int) -> Failure | None:
    """What is wrong with dslint on a case; None if nothing is."""
    seconds, raised = _timed(name, seed, number)
    if raised is not None:
        frame = traceback.extract_tb(raised.__traceback__)[-1]
        place = f"{Path(frame.filename).name}, line {frame.lineno}, in {frame.name}"
        return Failure(name, number, place, f"{type(raised).__name__}: {str(raised)[:500]}")
    if seconds > SLOW:  # a busy machine, or the first import of a module: only what is slow each time fails
        seconds = min(seconds, *(_timed(name, seed, number)[0] for _ in range(2)))
    return Failure(name, number, "slow", f"took {seconds:.1f} s of CPU") if seconds > SLOW else None


def _timed(name: str, seed: int, number: int) -> tuple[float, Exception | Waits | None]:
    """The CPU seconds that a case takes, and what it raises."""
    text, rng = input_of(name, seed, number)
    begun = time.process_time()
    try:
        with _bounded():
            TARGETS[name].work(text, rng)
    except (Exception, Waits) as error:  # noqa: BLE001 - that is what fuzzing looks for
        return time.process_time() - begun, error
    return time.process_time() - begun, None


@contextmanager
def _bounded() -> Iterator[None]:
    """Raise where a case still runs after `WAIT` seconds. Systems without alarms have no bound."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        raise Waits(f"still runs after {WAIT:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, WAIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def shown(name: str, seed: int, number: int) -> str:
    """A case with its input and the traceback, for the person who repairs what it found."""
    text, rng = input_of(name, seed, number)
    with _working_folder():
        try:
            TARGETS[name].work(text, rng)
        except Exception:  # noqa: BLE001 - it is shown
            return f"{text!r}\n{traceback.format_exc()}"
        return f"{text!r}\n{failure(name, seed, number) or 'nothing failed'}"


@contextmanager
def _working_folder() -> Iterator[None]:
    """A folder with the files that seeds name, as the working folder; defects raise in it."""
    with TemporaryDirectory() as folder, chdir(folder):
        for file, text in seeds.written_around().items():
            Path(file).write_text(text, encoding="utf-8")
        os.environ[TRACEBACK] = "1"
        try:
            yield
        finally:
            del os.environ[TRACEBACK]


def _memory() -> int:
    """The bytes of memory that this process holds; 0 where the system does not say."""
    if not sys.platform.startswith("linux"):
        return 0
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def summary(outcome: Outcome) -> Iterator[str]:
    """The counts of a run, a line each."""
    failed = Counter(one.target for one in outcome.failures)
    for name, count in outcome.counts.items():
        yield f"{name}: {count:,} inputs, {failed[name]} failed"
    yield f"all: {outcome.counts.total():,} inputs, {len(outcome.failures)} failed, memory grew by {outcome.growth / 2**20:.1f} MiB"
