"""Finds changes that make a config fit: each change is applied to the text of the config, which is then read and estimated."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dslint.config import Config
from dslint.memory.changes import REMOVE, Change, accumulated, possible
from dslint.memory.costs import Seconds, work
from dslint.memory.estimate import Estimate, estimate
from dslint.memory.numbers import with_adapters, with_quantized
from dslint.memory.plan import Plan, PlanError
from dslint.memory.shapes import Model
from dslint.memory.tiles import tiled
from dslint.memory.ways import ChangedConfig, Goal, Room, cost, distinct, rank
from dslint.source.change import Insert, Remove, Set
from dslint.source.edit import CannotChange, apply, edits_for
from dslint.source.parse import parse_as

Planner = Callable[[str, dict[str, Any]], tuple[Config, Plan]]
"""Reads the text of a config with changed options, and plans it."""

Timed = Callable[[Config, Estimate], Seconds]
"""Says how long a step takes."""

MOST_GPUS = 64
"""How many times as many GPUs are tried at most."""

MOST_SAMPLES = 1024
"""The largest micro batch size that is tried."""

WIDTH, DEPTH, ENOUGH, MOST = 3, 5, 3, 8
"""Beam width, most changes per way, number of fitting ways that ends the search, and number of ways to report."""

RANK = 16
"""The rank of the adapters that are offered: the default of TRL."""

FEW = 3
"""The most changes of a way that changes training or rebuilds the model, if others fit."""

SLOW = 1.5
"""If every sure way makes a step longer than this, as a multiple, ways that change training or rebuild the model are searched, too."""

Allowed = Callable[[Change], bool]
"""Whether a way may contain a change."""


@dataclass
class Fit:
    """The result. `ways` fit, best first (surely, if the config itself likely fits); `singles` are all single changes that save memory.

    `lesser` are simpler configs that certainly fit, too: they show what is not needed.
    """

    base: ChangedConfig
    goal: Goal
    ways: list[ChangedConfig] = field(default_factory=list)
    singles: list[ChangedConfig] = field(default_factory=list)
    lesser: list[ChangedConfig] = field(default_factory=list)
    tried: int = 0
    adapters: tuple[tuple[str, Estimate], ...] = ()
    """What adapters on the same model would need, with their names; empty if it has some already."""
    divided: tuple[int, Estimate] | None = None
    """The number of GPUs on which the config surely fits unchanged, with what it needs there; None if it is not known."""
    room: Room | None = None

    @property
    def fits(self) -> bool:
        """Whether the config fits unchanged."""
        return self.goal.met(self.base.found)

    @property
    def least(self) -> ChangedConfig:
        """The variant that lacks the least memory, on the device and on the host."""
        return min([self.base, *self.singles, *self._together], key=lambda variant: (self.goal.short(variant), variant.peak))

    _together: list[ChangedConfig] = field(default_factory=list)


class FitSearch:
    """Tries changes to one config for one model."""

    def __init__(self, text: str, model: Model, planner: Planner, timed: Timed) -> None:
        self.text, self.model, self.planner, self.timed = text, model, planner, timed
        self.known: dict[frozenset[str], ChangedConfig | None] = {}
        config, plan = planner(text, {})
        found = estimate(model, plan)
        done = work(found)
        self.base = ChangedConfig((), (), text, {}, config, found, done, timed(config, found))

    def run(self, goal: Goal) -> Fit:
        """Search for changes that make it fit: single ones, then combinations of the most promising, without redundant ones. Those that
        change training or rebuild the model come last, and only if the others are slow.
        """
        fit = Fit(self.base, goal)
        fit.singles = [variant for variant in self._next(self.base, _any) if self._helps(variant, self.base)]
        fit.lesser = [variant for variant in self._simpler() if goal.certain(variant.found)]
        if not fit.fits:
            ways = self._combined(fit, [single for single in fit.singles if _plain(single.changes[0])], _plain, DEPTH)
            if not any(goal.sure(way.found) and way.lasts.total <= SLOW * self.base.lasts.total for way in ways):
                others = [single for single in fit.singles if not _plain(single.changes[0])]
                ways += self._combined(fit, others, _any, FEW if ways else DEPTH)
            fit.ways = distinct(ways, goal)[:MOST]
        elif not goal.sure(self.base.found):
            fit.ways = distinct([single for single in fit.singles if goal.sure(single.found)], goal)[:MOST]
        if not goal.sure(self.base.found):
            fit.adapters = tuple(self._adapters())
            fit.divided = self._divided(goal)
        if goal.certain(self.base.found):
            fit.room = self._room(goal)
        fit.singles.sort(key=lambda variant: (variant.peak, variant.host))
        fit.tried = len(self.known)
        return fit

    def _adapters(self) -> Iterator[tuple[str, Estimate]]:
        """Estimates with LoRA and QLoRA, where all weights are trained, as people run them: one sample at a time, checkpointed."""
        if self.model.trained != self.model.size or not self.model.vocabulary:
            return
        small = with_adapters(self.model, RANK)
        plan = self.base.found.plan.but(micro_batch=1, checkpoint_every=1, optimizer_device=None, parameter_device=None)
        yield f"LoRA of rank {RANK}", estimate(small, plan)
        yield f"QLoRA of rank {RANK} (4 bits)", estimate(with_quantized(small, 4, listed=plan.lists_experts), plan)

    def _divided(self, goal: Goal) -> tuple[int, Estimate] | None:
        """The least multiple of the GPUs on which the config surely fits, each with as many samples as before. Without ZeRO none does."""
        plan, times = self.base.found.plan, 2
        while plan.stage and times <= MOST_GPUS:
            local = plan.local if plan.world > plan.local else min(8, times * plan.local)
            found = estimate(self.model, plan.but(world=times * plan.world, replicas=times * plan.replicas, local=local))
            if goal.sure(found):
                return found.plan.world, found
            times *= 2
        return None

    def _combined(self, fit: Fit, singles: list[ChangedConfig], allowed: Allowed, depth: int) -> list[ChangedConfig]:
        """The ways that begin with some single changes, and go on with allowed ones."""
        goal = fit.goal
        ways = {self._key(variant.changes): variant for variant in singles if goal.met(variant.found)}
        front = [variant for variant in singles if not goal.met(variant.found)]
        for _ in range(depth - 1):
            if len(ways) >= ENOUGH or not front:
                break
            further = [after for before in self._promising(front, goal) for after in self._next(before, allowed)]
            fit._together += further  # noqa: SLF001 - a class of this module
            needed = [self._needed(variant, goal) for variant in further if goal.met(variant.found)]
            ways |= {self._key(way.changes): way for way in needed}
            front = [variant for variant in further if not goal.met(variant.found)]
        ways |= {self._key(way.changes): way for way in self._surer(list(ways.values()), goal, allowed)}
        return list(ways.values())

    def _surer(self, ways: list[ChangedConfig], goal: Goal, allowed: Allowed) -> Iterator[ChangedConfig]:
        """For the best ways that only likely fit, unless a sure one costs less: one more change with which they surely do."""
        cheapest = min((cost(way) for way in ways if goal.sure(way.found)), default=float("inf"))
        unsure = [way for way in ways if not goal.sure(way.found) and cost(way) < cheapest]
        for way in sorted(unsure, key=lambda way: rank(way, goal))[:ENOUGH]:
            yield from (variant for variant in self._next(way, allowed, again=True) if goal.sure(variant.found))

    def _room(self, goal: Goal) -> Room:
        """How far micro batch size and length can be doubled. A step with a larger micro batch has more samples."""
        plan = self.base.found.plan

        def doubled(name: str, value: int, most: int) -> int:
            while 2 * value <= most and goal.certain(estimate(self.model, plan.but(**{name: 2 * value}))):
                value *= 2
            return value

        micro_batch = doubled("micro_batch", plan.micro_batch, MOST_SAMPLES)
        length = plan.workload.length
        if self.model.tokens is None:
            length = doubled("length", length, self.model.positions or length)
        found = estimate(self.model, plan.but(micro_batch=micro_batch))
        lasts = self.timed(self.base.config, found).total
        return Room(micro_batch, length, micro_batch / plan.micro_batch * self.base.lasts.total / lasts - 1)

    def _helps(self, after: ChangedConfig, before: ChangedConfig) -> bool:
        return after.peak < before.peak - 2**20 or after.host < before.host

    def _promising(self, front: list[ChangedConfig], goal: Goal) -> list[ChangedConfig]:
        """The variants to extend: those that lack the least memory, and those that save the most of it for their cost."""
        usual, lack = self.base.lasts.total, goal.short(self.base)

        def worth(variant: ChangedConfig) -> float:
            slower = max(0.0, variant.lasts.total - usual) / usual
            return (lack - goal.short(variant)) / (0.05 + slower + 0.2 * variant.changes_training)

        least = sorted(front, key=lambda variant: (goal.short(variant), variant.peak))[:WIDTH]
        chosen = least + sorted(front, key=worth, reverse=True)[:WIDTH]
        return list({self._key(variant.changes): variant for variant in chosen}.values())

    def _next(self, before: ChangedConfig, allowed: Allowed, *, again: bool = False) -> Iterator[ChangedConfig]:
        """Every variant with one more change that is allowed; those that were tried before only `again`."""
        tiles = max((change.tiles for change in before.changes), default=1)
        for change in possible(before.config, before.found.plan, self.model, tiles):
            if not allowed(change) or any(_overwrites(change, other) for other in before.changes):
                continue
            key = self._key((*before.changes, change))
            new = key not in self.known
            if new:
                self.known[key] = self.make((*before.changes, change))
            variant = self.known[key]
            if variant is not None and (new or again):
                yield variant

    def _needed(self, way: ChangedConfig, goal: Goal) -> ChangedConfig:
        """The way without redundant changes."""
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

    def make(self, changes: tuple[Change, ...]) -> ChangedConfig | None:
        """The config with these changes; None if they cannot be applied, or change the samples per step."""
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
        return ChangedConfig(changes, also, text, said, config, found, done, self.timed(config, found))

    def _applied(self, changes: tuple[Change, ...]) -> tuple[str, dict[str, Any]]:
        text = self.text
        said: dict[str, Any] = {}
        for change in changes:
            text = written(text, change.values)
            said.update(change.said)
        return text, said

    def _simpler(self) -> Iterator[ChangedConfig]:
        """Simpler variants: a lower stage, no offload, no checkpointing."""
        plan = self.base.found.plan
        z = "zero_optimization."
        changes = [Change(f"stage {stage}", ((z + "stage", stage), *self._without(plan, stage))) for stage in range(plan.stage)]
        if plan.parameter_device:
            changes.append(_without("parameter offload", ((z + "offload_param.device", "none"),)))
        if plan.optimizer_device:
            changes.append(_without("optimizer offload", ((z + "offload_optimizer.device", "none"),)))
        if plan.workload.checkpoint_every:
            changes.append(_without("activation checkpointing", said=(("checkpoint_every", 0),)))
        for change in changes:
            variant = self.make((change,))
            if variant is not None:
                yield variant

    @staticmethod
    def _without(plan: Plan, stage: int) -> Iterator[tuple[str, Any]]:
        """Keys that are invalid at a lower stage."""
        if plan.parameter_device:
            yield "zero_optimization.offload_param.device", "none"
        if plan.optimizer_device and stage == 0:
            yield "zero_optimization.offload_optimizer.device", "none"


def _without(name: str, values: tuple[tuple[str, Any], ...] = (), said: tuple[tuple[str, Any], ...] = ()) -> Change:
    """The change that takes something away."""
    return Change(f"no {name}", values, said, without=name)


def _any(change: Change) -> bool:  # noqa: ARG001 - as `Allowed`
    return True


def _plain(change: Change) -> bool:
    """Whether training and model stay as they are."""
    return not (change.changes_training or change.rebuilds)


def _overwrites(change: Change, other: Change) -> bool:
    """Whether a change sets what another one has set."""
    if {name for name, _ in change.said} & {name for name, _ in other.said}:
        return True
    paths = [f"{path}." for path, _ in other.values]
    return any(f"{path}.".startswith(one) or one.startswith(f"{path}.") for path, _ in change.values for one in paths)


def written(text: str, values: tuple[tuple[str, Any], ...], language: str = "json") -> str:
    """The text of a config with new values at paths; everything else stays. `language` is "yaml" if it is not JSON or HJSON.

    Raises:
        CannotChange: the text cannot be edited in this way.
    """
    for path, value in values:
        document = parse_as(text, language)
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
