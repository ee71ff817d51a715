"""What to change so that a config fits: each change is made to the text of the config, which is then read and estimated like any other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dslint.config import Config
from dslint.facts.gpus import Gpu
from dslint.memory.changes import REMOVE, Change, accumulated, possible
from dslint.memory.costs import Seconds, Speeds, Work, seconds, work
from dslint.memory.estimate import Estimate, estimate
from dslint.memory.plan import Plan, PlanError
from dslint.memory.shapes import Model
from dslint.memory.tiles import tiled
from dslint.source.change import Insert, Remove, Set
from dslint.source.edit import CannotChange, apply, edits_for
from dslint.source.parse import parse

Planner = Callable[[str, dict[str, Any]], tuple[Config, Plan]]
"""Reads the text of a config, with answers about the program that differ from those given, and plans it."""

WIDTH, DEPTH, ENOUGH, MOST = 4, 5, 3, 8
"""How many ways are followed at a time, how many changes are combined at most, how many ways that fit are enough to look
no further, how many are kept."""


@dataclass(frozen=True)
class Variant:
    """A config after some changes, with its estimate, the work of a step, and how long that takes.

    `also` is what the changes bring with them: the accumulation with which a step keeps its samples. `said` are the answers about the
    program that go with the text.
    """

    changes: tuple[Change, ...]
    also: tuple[Change, ...]
    text: str
    said: dict[str, Any]
    config: Config
    found: Estimate
    work: Work
    lasts: Seconds

    @property
    def peak(self) -> int:
        """Bytes on the device, expected."""
        return self.found.device.expected

    @property
    def trains_otherwise(self) -> bool:
        """Whether numbers come out differently."""
        return any(change.trains_otherwise for change in self.changes)


@dataclass(frozen=True)
class Goal:
    """What it has to fit into: bytes of a GPU, and of a machine's host memory (None: not known)."""

    device: int
    host: int | None = None

    def met(self, found: Estimate) -> bool:
        """Whether an estimate is expected to fit."""
        return found.device.expected <= self.device and self.host_met(found)

    def host_met(self, found: Estimate) -> bool:
        """Whether its host memory is enough, as far as that is known."""
        return self.host is None or found.host_of_node <= self.host


@dataclass
class Fit:
    """The answer. `ways` fit, best first; `singles` are all single changes that save something, `least` is the nearest that was found.

    `lesser` are simpler configs that surely fit, too: what is in force is not needed.
    """

    base: Variant
    goal: Goal
    ways: list[Variant] = field(default_factory=list)
    singles: list[Variant] = field(default_factory=list)
    lesser: list[Variant] = field(default_factory=list)
    tried: int = 0

    @property
    def fits(self) -> bool:
        """Whether it fits as it is."""
        return self.goal.met(self.base.found)

    @property
    def least(self) -> Variant:
        """What needs the least on the device, of all that was tried alone or together."""
        return min([self.base, *self.singles, *self._together], key=lambda variant: variant.peak)

    _together: list[Variant] = field(default_factory=list)


class Search:
    """Tries changes of one config for one model."""

    def __init__(self, text: str, model: Model, planner: Planner, gpu: Gpu | None, speeds: Speeds) -> None:
        self.text, self.model, self.planner = text, model, planner
        self.gpu, self.speeds = gpu, speeds
        self.known: dict[frozenset[str], Variant | None] = {}
        config, plan = planner(text, {})
        found = estimate(model, plan)
        done = work(found)
        self.base = Variant((), (), text, {}, config, found, done, seconds(done, found, gpu, speeds))

    def run(self, goal: Goal) -> Fit:
        """Look for what makes it fit: single changes, then combinations of the most promising ones, without what they do not need."""
        fit = Fit(self.base, goal)
        fit.singles = [variant for variant in self._next(self.base) if self._helps(variant, self.base)]
        fit.lesser = [variant for variant in self._simpler() if variant.found.fits(goal.device) and goal.host_met(variant.found)]
        if not fit.fits:
            ways = {self._key(variant.changes): variant for variant in fit.singles if goal.met(variant.found)}
            front = [variant for variant in fit.singles if not goal.met(variant.found)]
            for _ in range(DEPTH - 1):
                if len(ways) >= ENOUGH or not front:
                    break
                further = [after for before in self._promising(front) for after in self._next(before)]
                fit._together += further  # noqa: SLF001 - its own class's
                needed = [self._needed(variant, goal) for variant in further if goal.met(variant.found)]
                ways |= {self._key(way.changes): way for way in needed}
                front = [variant for variant in further if not goal.met(variant.found)]
            fit.ways = sorted(ways.values(), key=lambda way: self._rank(way, goal))[:MOST]
        fit.singles.sort(key=lambda variant: variant.peak)
        fit.tried = len(self.known)
        return fit

    def _rank(self, way: Variant, goal: Goal) -> tuple[bool, bool, float]:
        """Best first: what trains the same, what surely fits, what is quick; a further change has to gain 5 %."""
        slow = way.lasts.total * (1 + 0.05 * (len(way.changes) - 1))
        return way.trains_otherwise, way.found.fits(goal.device) is not True, slow

    def _helps(self, after: Variant, before: Variant) -> bool:
        return after.peak < before.peak - 2**20 or after.found.host_of_node < before.found.host_of_node

    def _promising(self, front: list[Variant]) -> list[Variant]:
        """The variants to go on with: those that need the least, and those that save the most for what they cost."""
        cost = self.base.lasts.total

        def worth(variant: Variant) -> float:
            slower = max(0.0, variant.lasts.total - cost) / cost
            return (self.base.peak - variant.peak) / (0.05 + slower + 0.2 * variant.trains_otherwise)

        chosen = sorted(front, key=lambda variant: variant.peak)[:WIDTH] + sorted(front, key=worth, reverse=True)[:WIDTH]
        return list({self._key(variant.changes): variant for variant in chosen}.values())

    def _next(self, before: Variant) -> Iterator[Variant]:
        """Every variant that is one change further, each once."""
        tiles = max((change.tiles for change in before.changes), default=1)
        for change in possible(before.config, before.found.plan, self.model, tiles):
            key = self._key((*before.changes, change))
            if key not in self.known:
                self.known[key] = self.make((*before.changes, change))
                variant = self.known[key]
                if variant is not None:
                    yield variant

    def _needed(self, way: Variant, goal: Goal) -> Variant:
        """The way without those of its changes that it fits without."""
        for change in way.changes:
            rest = tuple(other for other in way.changes if other is not change)
            if not rest:
                break
            key = self._key(rest)
            if key not in self.known:
                self.known[key] = self.make(rest)
            shorter = self.known[key]
            if shorter is not None and goal.met(shorter.found):
                return self._needed(shorter, goal)
        return way

    @staticmethod
    def _key(changes: tuple[Change, ...]) -> frozenset[str]:
        return frozenset(change.name for change in changes)

    def make(self, changes: tuple[Change, ...]) -> Variant | None:
        """The config with these changes; None where they cannot be made, or change the samples of a step."""
        tiles = max((change.tiles for change in changes), default=1)
        try:
            text, said = self._applied(changes)
            config, plan = self.planner(text, said)
            more, rest = divmod(self.base.found.plan.samples * plan.accumulation, plan.samples)
            if rest:
                return None
            also = (accumulated(config, more),) if more != plan.accumulation else ()
            if also:
                text, said = self._applied((*changes, *also))
                config, plan = self.planner(text, said)
        except (CannotChange, PlanError):
            return None
        if plan.samples != self.base.found.plan.samples:
            return None
        found = estimate(tiled(self.model, tiles) if tiles > 1 else self.model, plan)
        done = work(found)
        return Variant(changes, also, text, said, config, found, done, seconds(done, found, self.gpu, self.speeds))

    def _applied(self, changes: tuple[Change, ...]) -> tuple[str, dict[str, Any]]:
        text = self.text
        said: dict[str, Any] = {}
        for change in changes:
            text = written(text, change.values)
            said.update(change.said)
        return text, said

    def _simpler(self) -> Iterator[Variant]:
        """The config with less: a lower stage, nothing offloaded, no checkpointing."""
        plan = self.base.found.plan
        z = "zero_optimization."
        changes = [Change(f"stage {stage}", ((z + "stage", stage), *self._without(plan, stage))) for stage in range(plan.stage)]
        if plan.parameter_device:
            changes.append(Change("no parameter offload", ((z + "offload_param.device", "none"),)))
        if plan.optimizer_device:
            changes.append(Change("no optimizer offload", ((z + "offload_optimizer.device", "none"),)))
        if plan.workload.checkpoint_every:
            changes.append(Change("no activation checkpointing", said=(("checkpoint_every", 0),)))
        for change in changes:
            variant = self.make((change,))
            if variant is not None:
                yield variant

    @staticmethod
    def _without(plan: Plan, stage: int) -> Iterator[tuple[str, Any]]:
        """What does not go with a lower stage."""
        if plan.parameter_device:
            yield "zero_optimization.offload_param.device", "none"
        if plan.optimizer_device and stage == 0:
            yield "zero_optimization.offload_optimizer.device", "none"


def written(text: str, values: tuple[tuple[str, Any], ...]) -> str:
    """The text of a config with values at paths, all else as it is.

    Raises:
        CannotChange: it is written in a way that they cannot be added to.
    """
    for path, value in values:
        document = parse(text)
        keys = tuple(path.split("."))
        there = document.lookup(keys) is not None
        change: Remove | Set | Insert
        if value is REMOVE:
            change = Remove(keys)
        elif there:
            change = Set(keys, json.dumps(value))
        else:
            change = Insert(keys[:-1], keys[-1], json.dumps(value))
        text = apply(text, edits_for(document, [change]))
    return text
