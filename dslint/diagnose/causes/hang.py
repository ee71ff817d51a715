"""Hangs: a collective operation that did not complete, and which rank the others waited for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.diagnose.diagnosis import Evidence, LikelyCause, evidence
from dslint.diagnose.events import LogEvent
from dslint.diagnose.job import LoggedJob
from dslint.record import Record

MOST_NAMES = 8
"""The most ranks that are named."""

MOST_RANKS = 4096
"""The most ranks that are compared with those that report."""

EARLY = 20
"""Operations with smaller numbers belong to the first steps."""

SAME_ORDER = (
    "Make every rank run the same collective operations in the same order: the same number of batches on every rank, and no code that only"
    " rank 0 runs between them."
)
TRACE = "Set TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 to see where each rank was."
NETWORK = (
    "Look for a machine or link that fails: `dmesg` and `nvidia-smi -q` for Xid and ECC errors, NCCL_DEBUG=INFO for the path that NCCL uses,"
    " and a run of nccl-tests; leave a suspect machine out (sbatch --exclude=HOST)."
)
FIRST_PATH = (
    "Set NCCL_DEBUG=INFO and NCCL_SOCKET_IFNAME to the interface that connects the machines; try NCCL_P2P_DISABLE=1 and NCCL_IB_DISABLE=1 to"
    " find the faulty path."
)
SLOW_START = (
    "If a rank still compiled kernels or tokenized the dataset, the others only waited too short: raise the timeout (ddp_timeout of the"
    " Trainer, timeout of init_process_group or deepspeed.init_distributed), or prepare the data before the job."
)

_GROUP = re.compile(r"PG (?:ID )?(\d+)|PG GUID (\d+)")
_RANK = re.compile(r"\bRank (\d+)\]")


class Waiting(Record):
    """What a rank waited for: the number and the name of the operation, its elements, and the line that says so."""

    rank: int
    number: int | None
    operation: str
    elements: int | None
    event: LogEvent


def hang(job: LoggedJob, event: LogEvent) -> LikelyCause:
    """A collective operation that timed out, with no earlier error of another rank in the log."""
    operation = event.values["operation"]
    minutes = (event.number("timeout") or 0) / 60_000
    elements = event.number("into")
    size = f" of {_counted(elements)}" if elements is not None else ""
    title = f"{'An' if operation[:1] in 'AEIOU' else 'A'} {operation}{size} did not complete within {minutes:.3g} minutes"
    last = job.first_of("last_work")
    if last is not None and last.values["completed"] == "-1":
        why = [
            "No operation of this process group has completed: a rank did not get this far, or the ranks could not communicate (network interface, firewall, P2P, InfiniBand)."
        ]
        return _cause(event, title, why, [SLOW_START, FIRST_PATH])
    waiting = list(_waiting(job, event))
    suspect = _behind(waiting)
    if suspect is not None:
        return _of_one(job, event, waiting, suspect, title)
    if len({(one.number, one.operation) for one in waiting}) > 1:
        each = ", ".join(f"rank {one.rank} {one.operation}{_at(one)}" for one in sorted(waiting, key=lambda one: one.rank)[:MOST_NAMES])
        return _cause(event, title, [f"The ranks wait in different operations: {each}.", *_which(job, event)], [SAME_ORDER, TRACE])
    why, names = [], sorted({one.rank for one in waiting} | _reported(job, event))
    ranks = job.sure_ranks()
    seen = ranks or job.get("ranks_at_least")
    missing = sorted(set(range(seen)) - set(names)) if names and seen and seen <= MOST_RANKS else []
    if missing:
        number = f"{ranks}" if ranks else f"at least {seen}"
        why.append(f"{len(names)} of {number} ranks report that they waited. These do not: {_named(missing)}. Look at their logs first.")
    elif len(names) > 1:
        number = f" {waiting[0].number}" if waiting[0].number is not None else ""
        who = f"{ranks} ranks" if ranks else f"{len(names)} ranks that the log names"
        why.append(
            f"All {who} waited in the same operation{number} ({operation}): no rank is behind, the operation itself did not get through."
        )
        return _cause(event, title, [*why, *_which(job, event)], [NETWORK, TRACE])
    return _cause(event, title, [*why, *_which(job, event)], [SAME_ORDER, *_of_start(event), TRACE])


def _cause(
    event: LogEvent, title: str, why: list[str], advice: list[str], shown: tuple[Evidence, ...] = (), rank: int | None = None
) -> LikelyCause:
    rank = event.rank if rank is None else rank
    return LikelyCause("hang", title, tuple(why), tuple(advice), (evidence(event), *shown), rank, event.host, event.when, certain=False)


def _waiting(job: LoggedJob, event: LogEvent) -> Iterator[Waiting]:
    """What each rank waited for in the process group of an event: the first line of each rank counts."""
    group, seen = _group(event), set[int]()
    for other in job.of("watchdog"):
        match = _RANK.search(other.text)
        rank = other.rank if other.rank is not None else int(match[1]) if match else None
        if rank is None or rank in seen or _group(other) != group:
            continue
        seen.add(rank)
        yield Waiting(rank, other.number("number"), other.values["operation"], other.number("into"), other)


_OF_WATCHDOG = re.compile(r"detected by watchdog|Timeout at NCCL work")
"""What else the watchdog of a rank prints whose operation timed out: a log that is cut holds only these lines of some ranks."""


def _reported(job: LoggedJob, event: LogEvent) -> set[int]:
    """The ranks whose watchdog says that an operation of the process group of an event did not complete, without its name."""
    group = _group(event)
    return {
        other.rank
        for other in job.of("last_work")
        if other.rank is not None and _OF_WATCHDOG.search(other.text) and (not group or _group(other) in ("", group))
    }


def _group(event: LogEvent) -> str:
    match = _GROUP.search(event.text)
    return match[0] if match else ""


def _behind(waiting: list[Waiting]) -> Waiting | None:
    """The only rank that is at an earlier operation than all others, or in another one at the same place; None if no single one is."""
    if len(waiting) < 2 or any(one.number is None for one in waiting):
        return None
    first = min(waiting, key=lambda one: one.number or 0)
    if sum(one.number == first.number for one in waiting) == 1:
        return first
    shapes = [(one.number, one.operation, one.elements) for one in waiting]
    odd = [one for one, shape in zip(waiting, shapes, strict=True) if shapes.count(shape) == 1]
    return odd[0] if len(odd) == 1 and len(set(shapes)) == 2 and len(waiting) > 2 else None


def _of_one(job: LoggedJob, event: LogEvent, waiting: list[Waiting], suspect: Waiting, title: str) -> LikelyCause:
    """A hang in which one rank is elsewhere."""
    others = next(one for one in waiting if one.rank != suspect.rank)
    if suspect.number == others.number:
        there = f"At operation {suspect.number} rank {suspect.rank} runs {_shape(suspect)}, the others run {_shape(others)}."
        title = f"Rank {suspect.rank} runs another collective operation than the others: {title[0].lower()}{title[1:]}"
    else:
        there = f"Rank {suspect.rank} is at operation {suspect.number} ({_shape(suspect)}), the others are at {others.number} ({_shape(others)})."
        title = f"Rank {suspect.rank} is behind the others: {title[0].lower()}{title[1:]}"
    look = f"Look at what rank {suspect.rank} did: its own log, its data, its machine{f' ({suspect.event.host})' if suspect.event.host else ''}."
    shown = (evidence(suspect.event),) if suspect.event.place != event.place else ()
    return _cause(event, title, [there, *_which(job, event)], [look, SAME_ORDER, TRACE], shown, suspect.rank)


def _at(one: Waiting) -> str:
    return f" (number {one.number})" if one.number is not None else ""


def _shape(one: Waiting) -> str:
    return f"{one.operation} of {_counted(one.elements)}" if one.elements is not None else one.operation


def _counted(elements: int) -> str:
    return f"{elements:,} element{'s' if elements != 1 else ''}"


def _named(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:MOST_NAMES])) + (" …" if len(ranks) > MOST_NAMES else "")


def _of_start(event: LogEvent) -> list[str]:
    number = event.number("number")
    return [SLOW_START] if number is not None and number < EARLY else []


def _which(job: LoggedJob, event: LogEvent) -> list[str]:
    """What the operation was, as its size and position tell."""
    elements, number = event.number("into"), event.number("number")
    told = []
    if elements == 1:
        told.append("One element is a barrier, a flag or a norm, not a part of the model: probably a rank left, or waits elsewhere.")
    if elements and job.get("vocabulary") and job.get("hidden") and elements == job.get("vocabulary") * job.get("hidden"):
        told.append("Its size is that of the embedding.")
    if job.get("stage") == 3 and event.values["operation"] in ("_ALLGATHER_BASE", "ALLGATHER", "ALLGATHER_coalesced", "COALESCED"):
        told.append(
            "At ZeRO stage 3 every rank gathers each layer: ranks that run different layers (mixture of experts, inputs without images, fewer batches) wait for each other forever."
        )
    if number is not None and number < EARLY and not told:
        told.append(f"It was operation {number}: the job had hardly begun.")
    return told
