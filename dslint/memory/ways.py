"""What `fit` compares: a config after some changes, the limits, and the order in which ways are advised."""

from __future__ import annotations

import re
from typing import Any

from dslint.config import Config
from dslint.memory.changes import Change
from dslint.memory.costs import Seconds, Work
from dslint.memory.estimate import Estimate, Verdict
from dslint.memory.host import host_range
from dslint.memory.plan import NVME
from dslint.record import Record

ENOUGH_ROOM = (Verdict.FITS, Verdict.LIKELY)

MOST_UNSURE = 2
"""The most ways that only likely fit and are advised next to a sure one."""


class ChangedConfig(Record):
    """A config after some changes, with its estimate, and the work and duration of a step.

    `also` are the changes that follow: the gradient accumulation that keeps the samples per step. `said` are the options that belong to the
    text.
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
        """Expected peak on the device, in bytes."""
        return self.found.device.expected

    @property
    def host(self) -> int:
        """Expected host memory of a machine between steps with its processes, in bytes."""
        return host_range(self.found.plan, self.found.host, loading=False).expected

    @property
    def changes_training(self) -> bool:
        """Whether the results of training differ."""
        return any(change.changes_training for change in self.changes)

    @property
    def rebuilds(self) -> bool:
        """Whether the model must be built in another way."""
        return any(change.rebuilds for change in self.changes)

    @property
    def uses_nvme(self) -> bool:
        """Whether something is offloaded to NVMe."""
        return NVME in (self.found.plan.optimizer_device, self.found.plan.parameter_device)

    @property
    def kind(self) -> frozenset[str]:
        """The names of its changes without numbers: variants of one kind differ in degree."""
        return frozenset(re.sub(r" of every \d+\w+ block|\d+", "", change.name) for change in self.changes)


class Goal(Record):
    """The limits in bytes: memory of a GPU, and host memory of a machine (None: unknown)."""

    device: int
    host: int | None = None

    def met(self, found: Estimate) -> bool:
        """Whether what is counted fits or likely fits."""
        return found.counted_verdict(self.device) in ENOUGH_ROOM and self.host_met(found)

    def sure(self, found: Estimate) -> bool:
        """Whether even the high end of an estimate fits, if a stage-3 model is partitioned while it is built."""
        is_counted = not found.plan.images_decide and found.verdict(self.device) is not Verdict.OPEN
        return found.device.high <= self.device and is_counted and self.host_sure(found)

    def certain(self, found: Estimate) -> bool:
        """Whether even the high end of an estimate fits, however the model is built."""
        return found.verdict(self.device) is Verdict.FITS and self.host_sure(found)

    def host_met(self, found: Estimate) -> bool:
        """Whether host memory likely suffices between steps, as far as known."""
        return self.host is None or found.host_verdict(self.host, loading=False) in ENOUGH_ROOM

    def host_sure(self, found: Estimate) -> bool:
        """Whether host memory suffices between steps even at the high end, as far as known."""
        return self.host is None or found.host_verdict(self.host, loading=False) is Verdict.FITS

    def short(self, variant: ChangedConfig) -> float:
        """What a variant lacks on the device and on the host, as shares of the limits."""
        device = max(0.0, variant.found.full / self.device - 1)
        return device + (max(0.0, variant.host / self.host - 1) if self.host is not None else 0.0)


class Room(Record):
    """What free memory allows: the largest micro batch size and the longest samples that certainly fit, each on its own. Both are doubled
    from those of the config; `faster` is the gain in tokens per second of the micro batch size, as a share.
    """

    micro_batch: int
    length: int
    faster: float


def rank(way: ChangedConfig, goal: Goal) -> tuple[bool, bool, bool, float]:
    """The sort key: a sure fit first, then unchanged training, then the same model, then speed; each further change must be worth it."""
    return not goal.sure(way.found), way.changes_training, way.rebuilds, cost(way)


def cost(way: ChangedConfig) -> float:
    """Seconds of a step, with a surcharge for the effort of its changes."""
    return way.lasts.total * (1 + sum(change.effort for change in way.changes))


def distinct(ways: list[ChangedConfig], goal: Goal) -> list[ChangedConfig]:
    """The ways worth advising, best first: one of each kind, none that only adds changes to a sure way, few that are not sure, and
    NVMe only where no sure way of the same rank does without.
    """
    kept: list[ChangedConfig] = []
    for way in sorted(ways, key=lambda way: rank(way, goal)):
        names = {change.name for change in way.changes}
        sure = [one for one in kept if goal.sure(one.found)]
        more = any({change.name for change in one.changes} < names for one in sure)
        needless = way.uses_nvme and any(not one.uses_nvme and rank(one, goal)[1:3] == rank(way, goal)[1:3] for one in sure)
        unsure = not goal.sure(way.found) and sure and len(kept) - len(sure) >= MOST_UNSURE
        if not (more or needless or unsure or any(one.kind == way.kind for one in kept)):
            kept.append(way)
    return kept
