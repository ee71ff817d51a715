"""The time of the phases of a step, as wall_clock_breakdown prints it, and ranks that are slower than others, as Megatron's timers do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median

from dslint.diagnose.diagnosis import LikelyCause, evidence
from dslint.diagnose.events import LogEvent
from dslint.diagnose.job import LoggedJob
from dslint.record import Record

NAMES = {
    "fwd": "forward",
    "forward": "forward",
    "bwd": "backward",
    "backward": "backward",
    "bwd_allreduce": "reduction",
    "backward_allreduce": "reduction",
    "step": "step",
}
"""The timers of a whole step, in all releases, and the phase that each measures. The reduction is a part of the backward pass."""

MANY = 0.4
"""The share of a step from which on a phase is worth a notice."""

UNEVEN = 1.3
"""How many times longer than the fastest rank the slowest one may take."""

NOTICEABLE_MS = 50.0
"""The milliseconds by which the ranks may differ."""

_PART = re.compile(r"(\w+): (\d+(?:\.\d+)?)")


class Phases(Record):
    """The median milliseconds of each phase, and the first line that tells them."""

    ms: dict[str, float]
    event: LogEvent

    @property
    def total(self) -> float:
        """The milliseconds of a step without loading data."""
        return sum(self.ms.get(name, 0.0) for name in ("forward", "backward", "step"))


def phases_of(job: LoggedJob) -> Phases | None:
    """The phases of a step; None without wall_clock_breakdown. The first step counts only if there is no other: it is slower."""
    told = [(event, parts) for event in job.of("breakdown") if (parts := dict(_parts(event)))]
    if not told:
        return None
    steps = [parts for _, parts in told[1:]] or [told[0][1]]
    ms = {name: median(values) for name in dict.fromkeys(NAMES.values()) if (values := [step[name] for step in steps if name in step])}
    return Phases(ms, told[0][0]) if {"forward", "backward"} <= ms.keys() else None


def _parts(event: LogEvent) -> Iterator[tuple[str, float]]:
    for name, value in _PART.findall(event.values["parts"]):
        if name in NAMES:
            yield NAMES[name], float(value)


def slow_phase(job: LoggedJob) -> LikelyCause | None:
    """A phase besides the model's own work that takes much of a step."""
    found = phases_of(job)
    if found is None or found.total <= 0:
        return None
    reduction, step = found.ms.get("reduction", 0.0) / found.total, found.ms.get("step", 0.0) / found.total
    if max(reduction, step) < MANY:
        return None
    if reduction >= step:
        known, overlap = job.stage(), job.setting("zero_optimization", "overlap_comm")
        stage = known.value if known is not None else None
        title = f"Reducing gradients takes {reduction:.0%} of a step"
        why = "The ranks wait for each other or for the network in the backward pass."
        advice = "Check that NCCL uses the fast network (NCCL_DEBUG=INFO)."
        waits = overlap is False if stage == 3 else overlap is not True and stage != 0  # stage 3 overlaps by default
        if waits:
            advice += " Set overlap_comm to true."
        if stage in (0, 1):  # stages 2 and 3 reduce in every micro batch
            advice += " Accumulate more micro batches per step."
        elif stage is None:
            advice += " Below ZeRO stage 2, accumulate more micro batches per step."
    else:
        title = f"The optimizer's step takes {step:.0%} of a step"
        why = "With an offloaded optimizer the CPU updates the parameters; otherwise ZeRO gathers them after the update."
        advice = (
            "Keep the optimizer on the GPU if it fits; raise gradient_accumulation_steps, which makes the batch larger and the steps fewer."
        )
    return LikelyCause("slow", title, (why,), (advice,), (evidence(found.event),), found.event.rank, certain=False)


def stragglers(job: LoggedJob) -> LikelyCause | None:
    """Ranks that compute slower than others: the timers of Megatron, with the least and the most of all ranks."""
    uneven = [event for event in job.of("spread") if _is_uneven(event)]
    if len(uneven) < 2 or 2 * len(uneven) < len(job.of("spread")):
        return None
    event = uneven[-1]
    return LikelyCause(
        "slow",
        f"The ranks differ: {event.values['timer']} takes {event.real('least'):,.0f} to {event.real('most'):,.0f} ms",
        ("All ranks wait for the slowest one in every step.",),
        (
            "Compare clocks, temperatures and other processes of the GPUs (nvidia-smi), and the sizes of pipeline stages and batches.",
        ),
        (evidence(event),),
        certain=False,
    )  # fmt: skip


def _is_uneven(event: LogEvent) -> bool:
    least, most = event.real("least") or 0.0, event.real("most") or 0.0
    return most > UNEVEN * least and most - least > NOTICEABLE_MS
