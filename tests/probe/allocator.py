"""Runs a question on real CPU tensors, counted by the events of torch's own allocator and by nothing of dslint's. In bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dslint.probe.answer import Memory
from dslint.probe.child.bench import OnCpu
from dslint.probe.child.run import Trial
from dslint.probe.question import Question

MARK = "phase: "


class Marks:
    """In the place of the gauge: puts the phases among the profiler's events, and counts nothing."""

    def enter(self, phase: str) -> None:
        with torch.profiler.record_function(MARK + phase):
            pass

    def now(self) -> Counter[str]:
        return Counter()

    def memory(self, initialized: Counter[str]) -> dict[str, Memory]:
        return {}

    def timeline(self) -> list[tuple[int, int, int, str]]:
        return []


class OnProfiledCpu(OnCpu):
    """The CPU, with the profiler on."""

    def gauge(self, *, timeline: bool) -> Marks:
        return Marks()

    @contextmanager
    def scope(self, gauge: Any) -> Iterator[None]:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as self.profile:
            yield


def count(events: Any) -> tuple[int, dict[str, int]]:
    """What lives at the end, and the most by phase."""
    phase, now, peaks = "build", 0, Counter[str]()
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name().startswith(MARK):
            phase = event.name().removeprefix(MARK)
            peaks[phase] = max(peaks[phase], now)
        elif event.name() == "[memory]":
            now += event.nbytes()
            peaks[phase] = max(peaks[phase], now)
    return now, dict(peaks)


def measure(question: Question) -> dict[str, Any]:
    """Run a question, and say what the allocator's events say of it."""
    bench = OnProfiledCpu()
    trial = Trial(question, bench, lambda **_: None)
    held: list[Any] = []
    train = trial._train

    def train_and_hold(engine: Any, built: Any) -> None:
        train(engine, built)
        held.append((engine, built))  # what is freed at the end is no longer between steps

    trial._train = train_and_hold  # type: ignore[method-assign]
    trial.go()
    steady, peaks = count(bench.profile.profiler.kineto_results.events())
    return {"steady": steady, "peaks": peaks, "steps": trial.data["steps"], "skipped": trial.data["skipped"]}
