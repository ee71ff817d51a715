"""GPU memory: what the failed request was for, who held the rest, whether it was fragmentation."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from operator import itemgetter

from dslint.diagnose.causes.crash import is_cut
from dslint.diagnose.causes.requests import BEFORE_TRAINING, Purpose, purpose_of, states_of
from dslint.diagnose.diagnosis import LikelyCause, evidence
from dslint.diagnose.events import LogEvent
from dslint.diagnose.job import LoggedJob
from dslint.record import Record

GIB = 2**30
_UNITS = {"B": 1, "bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZE = r"([\d.]+) ([KMGT]?i?B|bytes)"
_PARTS = {
    "capacity": (rf"total capaci?ty of {_SIZE}", rf"{_SIZE} total capacity"),
    "free": (rf"of which {_SIZE} is free", rf"{_SIZE} free"),
    "in_use": (rf"this process has {_SIZE} memory in use",),
    "allocated": (rf"Of the allocated memory {_SIZE} is allocated by PyTorch", rf"{_SIZE} already allocated"),
    "unused": (rf"{_SIZE} is reserved by PyTorch but unallocated",),
    "reserved": (rf"{_SIZE} reserved in total", rf"{_SIZE} cached"),
    "allowed": (rf"{_SIZE} allowed;",),
}
_OTHER = re.compile(rf"Process (\d+) has {_SIZE} memory in use")
_GPU = re.compile(r"GPU (\d+)")

CONTEXT_ONLY = 700 * 2**20
"""The most bytes that another process has on a GPU if it holds only a CUDA context there."""


LEAST_CONTEXT = 100 * 2**20
"""Fewer bytes than any CUDA context has on a GPU."""

MANY_UNUSED = 0.05
"""The part of its memory from which on what the allocator keeps unused is more than the ordinary remainder between its blocks."""


class Figures(Record):
    """The bytes that an out-of-memory message states, in every wording of PyTorch since 1.9; None for what it does not state.

    `unused` is reserved by PyTorch, but free inside its segments. `others` are other processes on the GPU. `allowed` is a limit that the
    program set for its process. `ranks` are those of the others that are processes of the same job. `listed` are several processes of which
    the failed one is one, where the message does not say which.
    """

    request: int
    capacity: int | None = None
    free: int | None = None
    in_use: int | None = None
    allocated: int | None = None
    unused: int | None = None
    others: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    listed: tuple[int, ...] = ()
    gpu: int | None = None
    allowed: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether the program's own limit refused the request, and not the GPU."""
        return self.allowed is not None and self.free is not None and self.free >= self.request

    @property
    def outside(self) -> int | None:
        """What the process has on the GPU outside of PyTorch's allocator: the CUDA context, libraries, NCCL."""
        if self.in_use is None or self.allocated is None or self.unused is None:
            return None
        return max(0, self.in_use - self.allocated - self.unused)

    @property
    def unaccounted(self) -> int | None:
        """What the message counts neither as free nor as anybody's, if that is more than two CUDA contexts."""
        if self.capacity is None or self.free is None or self.allocated is None or self.outside or self.others:
            return None
        rest = self.capacity - self.free - self.allocated - (self.unused or 0)
        return rest if rest > 2 * CONTEXT_ONLY else None


def figures_of(event: LogEvent, processes: Collection[int] = ()) -> Figures:
    """The figures of an out-of-memory event of a job with these processes."""
    rest = event.values.get("rest", "")
    parts = {name: _first(patterns, rest) for name, patterns in _PARTS.items()}
    reserved = parts.pop("reserved")
    if parts["unused"] is None and reserved is not None and parts["allocated"] is not None:
        parts["unused"] = max(0, reserved - parts["allocated"])
    gpu = _GPU.search(rest)
    found = [(int(number[:10]), _bytes(*size)) for number, *size in _OTHER.findall(rest)]
    own = (parts["allocated"] or 0) + (parts["unused"] or 0)
    this = _own_process(found, own, parts["capacity"], parts["free"]) if parts["in_use"] is None else None
    if this is not None:
        parts["in_use"] = this[1]
        found.remove(this)
    listed = parts["in_use"] is None and not own and len(found) > 1 and _is_all(found, parts["capacity"], parts["free"])
    return Figures(
        _bytes(*event.values["request"].split(" ")),
        **parts,
        others=() if listed else tuple(held for _, held in found),
        ranks=tuple(held for number, held in found if number in processes and not listed),
        listed=tuple(held for _, held in found) if listed else (),
        gpu=int(gpu[1]) if gpu else None,
    )


def _own_process(found: list[tuple[int, int]], own: int, capacity: int | None, free: int | None) -> tuple[int, int] | None:
    """The process among those that a message lists which is the one that failed, where it names none as "this process".

    In a container the driver knows a process by another number, and PyTorch then lists its own among the others. `own` are the bytes of its
    allocator. The only process that is listed is this one, if it accounts for all that is not free: the one that failed has a context there.
    """
    if own:
        return min((one for one in found if one[1] >= own), key=itemgetter(1), default=None)
    return found[0] if len(found) == 1 and _is_all(found, capacity, free) else None


def _is_all(found: list[tuple[int, int]], capacity: int | None, free: int | None) -> bool:
    """Whether the processes that a message lists account for all that is not free, so that the failed one is among them."""
    return capacity is not None and free is not None and capacity - free - sum(held for _, held in found) < LEAST_CONTEXT


def _first(patterns: tuple[str, ...], text: str) -> int | None:
    for pattern in patterns:
        match = re.search(pattern, text)
        if match:
            return _bytes(match[1], match[2])
    return None


def _bytes(number: str, unit: str) -> int:
    try:
        return int(float(number) * _UNITS.get(unit, 1))
    except (ValueError, OverflowError):
        return 0


def out_of_gpu_memory(job: LoggedJob, event: LogEvent, raised: LogEvent) -> LikelyCause:
    """A request for GPU memory that failed."""
    figures = figures_of(event, job.processes)
    raised = _with_traceback_below(job, raised)
    purpose = purpose_of(job, raised, figures.request)
    where = f"GPU {figures.gpu}" if figures.gpu is not None else "The GPU"
    during = f" {purpose.phase}" if purpose.phase else ""
    title = (
        f"{where} ran out of memory{during}: {size(figures.request)} {'for ' + purpose.what if purpose.what else 'could not be allocated'}"
    )
    why = [*_balance(figures), *purpose.why]
    limit = ["Raise or remove the limit: torch.cuda.set_per_process_memory_fraction."] if figures.is_limited else []
    states = states_of(job)
    if states is not None and figures.capacity and states.bytes > figures.capacity and not purpose.is_inference:
        why.append(f"{states.sentence}: more than it has.")
        advice = [*limit, *_of_others(figures), *dict.fromkeys([*states.advice, *purpose.advice])]
    elif purpose.phase in BEFORE_TRAINING and _holds_most(figures):  # more must fit than contexts of other ranks take
        advice = [*limit, *purpose.advice, *_of_others(figures)]
    else:
        advice = [*limit, *_of_fragments(figures), *_of_others(figures), *purpose.advice]
    if not purpose.what and not raised.frames and not job.steps and _is_copy(figures):
        why.append("The request is as large as all that tensors held, as one for a copy of all weights is.")
        advice = [*limit, _LESS_OF_WEIGHTS, *_of_others(figures), *(one for one in purpose.advice if "dslint fit" in one)]
    shown = (evidence(event),)
    return LikelyCause("oom", title, tuple(why), tuple(advice), shown, raised.rank, raised.host, raised.when, general=purpose.general)


LEAST_COPY = 2 * GIB
"""A copy of weights for which a GPU has no room is larger: activations of one layer rarely are."""

_LESS_OF_WEIGHTS = (
    "Use ZeRO stage 3, load the model in 16 bits, or offload the optimizer: a smaller batch and activation checkpointing do not change what "
    "a copy of the weights takes."
)


def _is_copy(figures: Figures) -> bool:
    """Whether a request is for as much as all tensors of the process held, but for small ones such as buffers: a flat copy of the weights,
    in the same precision, before anything is trained.
    """
    return (
        figures.allocated is not None and figures.request >= LEAST_COPY and 0.97 * figures.allocated <= figures.request <= figures.allocated
    )


def _with_traceback_below(job: LoggedJob, raised: LogEvent) -> LogEvent:
    """An error without frames, with those of a traceback directly below that lacks its error: people paste the error first."""
    if raised.frames:
        return raised
    for event in job.of("raised"):
        lines = event.place.line - raised.place.line
        if is_cut(event) and event.place.file == raised.place.file and 0 < lines <= 2 * len(event.frames) + 2:
            return replace(raised, frames=event.frames)
    return raised


MOST_OF_A_GPU = 0.8


def _holds_most(figures: Figures) -> bool:
    """Whether the tensors of the process have most of the GPU, and other processes have no more than a CUDA context there."""
    if figures.allocated is None or not figures.capacity:
        return False
    return figures.allocated > MOST_OF_A_GPU * figures.capacity and all(other < CONTEXT_ONLY for other in figures.others)


def _balance(figures: Figures) -> list[str]:
    """Who held the memory of the GPU."""
    told = []
    if figures.capacity and figures.free is not None:
        short = figures.request - figures.free
        told.append(f"Of {size(figures.capacity)} {size(figures.free)} were free{f': {size(short)} too little' if short > 0 else ''}.")
        if figures.is_limited and figures.allowed is not None:
            told.append(f"The program itself allows this process {size(figures.allowed)} (torch.cuda.set_per_process_memory_fraction).")
    parts = []
    if figures.allocated is not None:
        parts.append(f"tensors held {size(figures.allocated)}")
    if figures.unused:
        parts.append(f"PyTorch's allocator kept {size(figures.unused)} that no tensor used")
    if figures.in_use is not None and figures.allocated is None:
        parts.append(f"this process held {size(figures.in_use)}")
    if figures.outside:
        parts.append(f"CUDA context, libraries and NCCL took {size(figures.outside)}")
    if figures.others:
        noun = "another process" if len(figures.others) == 1 else f"{len(figures.others)} other processes"
        if figures.ranks == figures.others:
            noun = "another rank of this job" if len(figures.others) == 1 else f"{len(figures.others)} other ranks of this job"
        parts.append(f"{noun} held {size(sum(figures.others))}")
    if figures.listed:
        parts.append(f"{len(figures.listed)} processes held {size(sum(figures.listed))}, this one among them")
    if parts:
        text = "; ".join(parts)
        told.append(text[0].upper() + text[1:] + ".")
    if figures.unaccounted:
        told.append(
            f"The message does not say who held the other {size(figures.unaccounted)}: other processes on this GPU, or this one outside of PyTorch's allocator (CUDA context, NCCL)."
        )
    return told


def _of_fragments(figures: Figures) -> list[str]:
    """Whether the allocator's unused memory would have been enough, and is more than what is always left over."""
    if not figures.unused or figures.free is None or not figures.free < figures.request <= figures.free + figures.unused:
        return []
    if figures.unused < figures.request or figures.unused < MANY_UNUSED * ((figures.allocated or 0) + figures.unused):
        return []
    return [
        f"The allocator's {size(figures.unused)} that no tensor used {ENOUGH_IN_PIECES}: most likely fragmentation. Set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.9)."
    ]


ENOUGH_IN_PIECES = "were enough in total, but in pieces"
"""What the advice about fragmentation says."""


def _of_others(figures: Figures) -> list[str]:
    if figures.listed:
        return [f"Look at nvidia-smi for who else uses this GPU. End it if an earlier job left it. {SHARED}"]
    if not figures.others:
        much = figures.unaccounted is not None and figures.capacity is not None and figures.unaccounted > MUCH * figures.capacity
        return [f"Look at nvidia-smi for who holds the other {size(figures.unaccounted or 0)}. {SHARED}"] if much else []
    is_context = all(other < CONTEXT_ONLY for other in figures.others)
    if figures.ranks and is_context:
        others = "Another rank of this job has" if len(figures.others) == 1 else "Other ranks of this job have"
        return [f"{others} a CUDA context on this GPU: call torch.cuda.set_device(local_rank) before anything uses a GPU."]
    if figures.ranks:
        return [
            'Give each rank a GPU of its own: call torch.cuda.set_device(local_rank) before anything uses the GPU, and load the model without device_map="cuda" and .to("cuda"), which mean GPU 0 in every process.'
        ]
    if is_context:
        one = len(figures.others) == 1
        who = (
            f"The other process holds {size(figures.others[0])}"
            if one
            else f"The other processes hold at most {size(max(figures.others))} each"
        )
        ranks = "another rank" if one else "other ranks"
        return [
            f"{who}, as much as a CUDA context: probably {ranks} of this job, on this GPU before torch.cuda.set_device(local_rank). Call it first."
        ]
    return [f"Another process uses this GPU: look at nvidia-smi. End it if an earlier job left it. {SHARED}"]


SHARED = "If it is one of this job, such as another model or an engine for generation (vLLM), let it reserve less memory, or give it a GPU of its own."
MUCH = 0.1
"""The share of a GPU from which on memory that the message counts as nobody's is most likely not what CUDA and NCCL take."""


def size(number: int) -> str:
    """Bytes in GiB or MiB."""
    return f"{number / GIB:.2f} GiB" if number >= GIB // 10 else f"{number / 2**20:.0f} MiB"


__all__ = ["ENOUGH_IN_PIECES", "Figures", "Purpose", "figures_of", "out_of_gpu_memory", "size"]
