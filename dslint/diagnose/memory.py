"""Measured memory next to the estimate, and changes that would have made a job fit."""

from __future__ import annotations

from difflib import unified_diff
from typing import Any

from dslint.config import Config, resolve
from dslint.config.context import Context
from dslint.config.load import Loaded
from dslint.diagnose.diagnosis import MeasuredMemory
from dslint.diagnose.job import LoggedJob, MemoryMoment, peak_gib, state_after_init
from dslint.errors import UserError
from dslint.facts.gpus import GIB
from dslint.memory.changes import AS_FACTS
from dslint.memory.estimate import Estimate, estimate
from dslint.memory.fit import FitSearch
from dslint.memory.ledger import BUCKETS, GRADIENTS, INIT, OPTIMIZER, PARTS
from dslint.memory.plan import Plan, Workload
from dslint.memory.planning import make_plan
from dslint.memory.shapes import Model
from dslint.memory.ways import ChangedConfig, Goal
from dslint.record import Record
from dslint.source.parse import parse
from dslint.speed.planned import seconds_of

LENGTH = 2048
"""The tokens of a sample, if the log does not tell them."""


FAR = 2.0
"""From this factor on an estimate and what was measured are not of the same job: of five public logs of one repository, whose programs
train adapters (LoRA), full training was estimated at 2.3 to 7 times what they measured.
"""

LEAST = 0.5
"""The GiB below which what was measured is too little to compare."""


class Workshop(Record):
    """What an estimate of a job needs."""

    job: LoggedJob
    context: Context
    loaded: Loaded
    model: Model
    loads_partitioned: bool = False

    def plan(self, text: str, otherwise: dict[str, Any]) -> tuple[Config, Plan]:
        """The config of a text, and its plan; raises `UserError`."""
        facts = {name: otherwise[name] for name in AS_FACTS if name in otherwise}
        config = resolve(parse(text), self.context.but(**facts))
        job = self.job
        length = otherwise.get("length") or job.get("length") or min(LENGTH, self.model.positions or LENGTH)
        every = otherwise["checkpoint_every"] if "checkpoint_every" in otherwise else int(bool(job.get("checkpointing")))
        workload = Workload(
            length,
            checkpoint_every=every or 0,
            loss_chunk=otherwise.get("loss_chunk") or 0,
            expandable=bool(otherwise.get("expandable") or job.get("expandable")),
            zero_init=self.loads_partitioned or job.get("built_params") is not None or job.get("integration") == "transformers",
        )
        micro, accumulation = otherwise.get("micro_batch"), otherwise.get("accumulation")
        return config, make_plan(config, workload, self.model.hidden, micro_batch=micro, accumulation=accumulation)


def estimated(shop: Workshop) -> Estimate:
    """The estimate of a job; raises `UserError` if its config or facts do not suffice."""
    _, plan = shop.plan(shop.loaded.document.text, {})
    return estimate(shop.model, plan)


def measured_only(job: LoggedJob) -> list[MeasuredMemory]:
    """What the log measured after initialization and at the peak, for a job that cannot be estimated."""
    return [MeasuredMemory(moment, None) for moment in (state_after_init(job), _peak(job)) if moment is not None]


def measured(job: LoggedJob, found: Estimate) -> list[MeasuredMemory]:
    """What the log measured next to what the estimate says: after initialization, and at the peak."""
    rows = []
    state = state_after_init(job)
    if state is not None:
        left_out = {OPTIMIZER} if found.plan.stage == 3 else {OPTIMIZER, GRADIENTS, BUCKETS}
        rows.append(MeasuredMemory(state, sum(found.steady.parts[part] for part in PARTS if part not in left_out) / GIB))
    peak = _peak(job)
    if peak is not None:
        rows.append(MeasuredMemory(peak, max(moment.total for phase, moment in found.peaks.items() if phase != INIT) / GIB))
    return rows


def is_of_another_job(one: MeasuredMemory) -> bool:
    """Whether an estimate is so far above what was measured that it is one of something else than the program trains."""
    return one.estimated is not None and one.moment.now > LEAST and one.estimated > FAR * one.moment.now


def _peak(job: LoggedJob) -> MemoryMoment | None:
    """The highest peak that was measured once training had begun."""
    tops = [(peak_gib(event), event) for event in job.of("peak")]
    top, event = max(tops, key=lambda pair: pair[0], default=(0.0, None))
    if event is not None and top > 0:
        return MemoryMoment("peak of tensors", top, top, top, event.place)
    late = [moment for moment in job.moments if moment.label.startswith("after the first") or "Engine after" in moment.label]
    most = max(late, key=lambda moment: moment.most, default=None)
    return MemoryMoment("peak of tensors", most.most, most.most, most.reserved, most.place) if most else None


class Way(Record):
    """A change that makes the job fit: its name, the diff of the config, what to do in the program, the peak in GiB."""

    name: str
    diff: str
    program: str
    peak: float


def ways_to_fit(shop: Workshop, needed: float, capacity: float, most: int = 2) -> list[Way]:
    """The best changes with which a job that ran out of memory would have fitted, by the estimate, corrected by what the job needed.

    Args:
        shop: the job.
        needed: the GiB that the failed request would have led to.
        capacity: the GiB of the GPU.
        most: the most changes to return.
    """
    text = shop.loaded.document.text
    try:
        search = FitSearch(text, shop.model, shop.plan, seconds_of)
        short = max(1.0, needed * GIB / search.base.found.device.expected)
        goal = Goal(int(capacity * GIB / short), shop.context.facts.host_memory)
        while goal.met(search.base.found):  # the job did not fit, whatever the estimate says
            goal = Goal(int(goal.device * 0.97), goal.host)
        fit = search.run(goal)
    except UserError:
        return []
    return [_way(text, way, short) for way in fit.ways[:most]]


def _way(text: str, way: ChangedConfig, short: float) -> Way:
    name = " and ".join(change.name for change in (*way.changes, *way.also))
    program = " ".join(change.program for change in (*way.changes, *way.also) if change.program)
    lines = list(unified_diff(text.splitlines(), way.text.splitlines(), n=1, lineterm=""))[2:]
    return Way(name, "\n".join(line for line in lines if not line.startswith("@@")), program, way.peak * short / GIB)
