"""Host memory: processes that the kernel kills, and allocations that fail."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.diagnose.causes.crash import raised_at
from dslint.diagnose.diagnosis import Evidence, LikelyCause, evidence
from dslint.diagnose.events import LogEvent
from dslint.diagnose.job import LoggedJob
from dslint.diagnose.shares import share_of
from dslint.diagnose.texts import filled, match_line

GIB = 2**30
UNPROVEN = "A process was killed (SIGKILL), often because host memory ran out"
NOT_FULL = "A process was killed (SIGKILL)"
"""The title where the log says that much host memory was free."""

OF_SIGKILL = "Python prints no traceback for SIGKILL. The kernel, a container limit or a scheduler sends it when memory runs out; a launcher or a person can send it, too."
TO_CONFIRM = "To confirm: `dmesg -T | grep -i -E 'oom|killed process'` on the machine, or MaxRSS of the job in the scheduler."
COMMAND = "dslint estimate"
"""A command in the advice about every death for memory, which is given once."""

ESTIMATE = "Run `dslint estimate CONFIG --model MODEL --world-size N` for the host memory that a machine needs."

MOST_OF_MACHINES = 2**46
"""More bytes than any machine has."""

_OF_ENGINE = ("release", "operation", "zero", "attribute", "config", "breakdown", "resumes")
"""Lines that deepspeed.initialize prints, which gets a model that is loaded, or what loads a checkpoint into its engine."""

RESUMES = (
    "It happened while the job resumed from a checkpoint, before a step was reported. That needs more host memory than the training: each rank "
    "reads its part of the optimizer states into host memory (with Adam 12 bytes per trained weight, divided by the ranks), beside what is "
    "offloaded there. Below ZeRO stage 3 each rank also reads the whole model."
)
"""Read in deepspeed/runtime/engine.py, _load_checkpoint and _get_all_zero_checkpoint_state_dicts, of 0.6.4 and 0.19.8: all files are read to the CPU."""

_OF_RANKS = (
    "launch",
    "ranks",
    "raised",
    "return_code",
    "worker_failed",
    "failed_code",
    "worker_signal",
    "child_failed",
    "killing",
    "spawned",
)
"""Lines of a launcher that started ranks, or of a rank itself."""

_OPTIMIZERS = re.compile(r"(?:^|/)(?:ops|optim)/|adam|lion|adagrad")


_FLATTENS = re.compile(r"_?flatten")
"""Functions that copy all weights of a rank into one buffer, before ZeRO divides it: its size says nothing about the ranks."""


def out_of_host_memory(job: LoggedJob, event: LogEvent, raised: LogEvent) -> LikelyCause:
    """An allocation in host memory that failed."""
    size = event.number("bytes")
    title = f"Host memory ran out: {amount(size)} could not be allocated" if size else "Host memory ran out"
    had_room = size is not None and _free(job) * GIB > size
    if size and had_room:
        title = f"{amount(size)} of host memory could not be allocated"
    why = []
    if size and size > MOST_OF_MACHINES:
        wrong = "No machine has so much memory: the size itself is wrong. It may come from a broken file, or from a number that overflows."
        look = ("Look at what the last frame of the traceback reads or computes.",)
        shown = (evidence(raised),)
        return LikelyCause(
            "host-memory",
            f"{size / GIB:,.0f} GiB of host memory were requested",
            (wrong, *raised_at(raised.frames)),
            look,
            shown,
            raised.rank,
            raised.host,
            raised.when,
        )
    if size:
        share = share_of(job, size / 4) if not any(_FLATTENS.match(frame.function) for frame in raised.frames) else None
        if share:
            why.append(f"{size:,} bytes are {size // 4:,} fp32 values: {share}.")
    step = next((frame for frame in reversed(raised.frames) if frame.function == "step" and _OPTIMIZERS.search(frame.file)), None)
    if step:
        why.append(
            f"The optimizer asked for it in its step ({step.file.rpartition('/')[2]}:{step.line}); the first step creates its states."
        )
    else:
        why += raised_at(raised.frames)
    why += [*_machine(job), *([_LIMITED] if had_room else [])]
    return LikelyCause(
        "host-memory",
        title,
        tuple(why),
        (*_advice(job), ESTIMATE),
        (evidence(raised), *_last_reading(job)),
        raised.rank,
        raised.host,
        raised.when,
        general=(ESTIMATE,),
    )


def killed_for_memory(job: LoggedJob, event: LogEvent) -> LikelyCause:
    """A process that the kernel killed, or that was killed without a line that says by whom."""
    proven = event.kind == "host_kill"
    free = _free(job)
    title, why, advice = _proven(event) if proven else (NOT_FULL if free else UNPROVEN, [OF_SIGKILL], [])
    why += [*_when(job, finished=job.had_finished(event)), *_machine(job)]
    own = _advice(job)
    if free and not proven:
        why.append(
            f"Memory ran out only if the job took the other {free:,.0f} GiB after that line, or if its own limit (a container, Slurm) is below what the machine has."
        )
        advice += [TO_CONFIRM, ESTIMATE, *own]
    elif proven:
        advice += [*own, ESTIMATE]
    elif job.stage() is None and not job.sure_ranks():  # the log tells too little of the job for a remedy to come first
        advice += [TO_CONFIRM, ESTIMATE, *own]
    else:
        advice += [*own, ESTIMATE, TO_CONFIRM]
    shown = (evidence(event), *_last_reading(job))
    return LikelyCause(
        "host-memory", title, tuple(why), tuple(advice), shown, event.rank, event.host, event.when, certain=proven, general=(ESTIMATE,)
    )


NEARLY_FULL = 75
"""The share of the host memory, in percent, from which on a process is likely to have been killed for it."""


_LIMITED = (
    "The machine had room for it then: other processes took the rest afterwards, or a limit below that of the machine applies (ulimit -v, a "
    "container or job with its own limit, vm.overcommit_memory)."
)


def _free(job: LoggedJob) -> float:
    """The GiB of host memory that were free at the last line that tells it, if it was not nearly full there; 0 otherwise."""
    read = [(moment.host, moment.host_percent) for moment in job.moments if moment.host and moment.host_percent]
    if not read or read[-1][1] >= NEARLY_FULL:
        return 0
    used, percent = read[-1]
    return used * (100 / percent - 1)


def ended_by_launcher(job: LoggedJob, event: LogEvent) -> LikelyCause:
    """Processes that DeepSpeed's launcher ended, in a log without the reason."""
    read = [moment.host_percent for moment in job.moments if moment.host_percent]
    full = bool(read) and read[-1] >= NEARLY_FULL
    why = ["It does so when one of them ends with an error, or when it gets a signal itself (Ctrl-C, a scheduler).", *_machine(job)]
    advice = ["Pass the whole log: the last lines of the launcher say how the process ended, and its error stands above."]
    if full:
        why.append("Host memory was nearly full, and the log holds no error: the kernel may have killed a process (return code -9).")
        advice += [*_advice(job), ESTIMATE, TO_CONFIRM]
    return LikelyCause(
        "exit",
        "The launcher ended its processes",
        tuple(why),
        tuple(advice),
        (evidence(event), *(_last_reading(job) if full else ())),
        event.rank,
        event.host,
        event.when,
        certain=False,
        general=(ESTIMATE,) if full else (),
    )


def amount(number: int) -> str:
    """Bytes in GiB or, if they are few, in MiB or KiB."""
    if number >= GIB // 10:
        return f"{number / GIB:.2f} GiB"
    return f"{number / 2**20:.3g} MiB" if number >= 2**20 else f"{number / 2**10:.3g} KiB"


def _proven(event: LogEvent) -> tuple[str, list[str], list[str]]:
    """What the line of the kernel, of Slurm or of a container says: a title, sentences, and what to do about the limit that it names."""
    known = match_line(event.text)
    if known is None or known[0].kind != "host-memory":
        return "The kernel killed a process because host memory ran out", [], []
    entry, values = known
    limit = [] if COMMAND in entry.advice else [filled(entry.advice, values)]
    return filled(entry.cause, values).rstrip("."), [], limit


def _when(job: LoggedJob, *, finished: bool) -> Iterator[str]:
    """In which phase the process was killed."""
    if finished:
        yield "It happened after the training: a model that is gathered, merged or saved there takes host memory."
    elif "resumes" in job.counts and not job.steps:
        yield RESUMES
    elif job.steps:
        yield "It happened during training. Host memory can grow there, in data loader workers for example; the first step creates the optimizer's states."
    elif "attribute" in job.counts or "config" in job.counts:  # the engine prints its config last
        yield "It happened after initialization, before the first step was reported."
    elif job.moments or "zero" in job.counts:
        yield "It happened while DeepSpeed initialized."
    elif job.get("optimizer_op"):
        yield f"It happened after DeepSpeed had loaded the op {job.get('optimizer_op')}: it creates the optimizer states next."
    elif "launch" in job.counts or "ranks" in job.counts:
        yield "No line of DeepSpeed's initialization stands before it. While the model is loaded, each rank of a machine holds its own copy."


def _machine(job: LoggedJob) -> list[str]:
    """What the log says of the memory of the machine."""
    read = [moment for moment in job.moments if moment.host is not None and moment.host_percent]
    if not read:
        return []
    last = read[-1]
    assert last.host is not None
    assert last.host_percent
    whole = last.host / last.host_percent * 100
    return [
        f"Of about {whole:,.0f} GiB of host memory {last.host:,.0f} GiB were in use ({last.label[:1].lower()}{last.label[1:]}, line {last.place.line})."
    ]


def _last_reading(job: LoggedJob) -> tuple[Evidence, ...]:
    read = [moment for moment in job.moments if moment.host is not None]
    return (Evidence(read[-1].place, f"host memory: {read[-1].host} GiB, {read[-1].host_percent} %"),) if read else ()


def _is_in_engine(job: LoggedJob) -> bool:
    """Whether a traceback of the job stands in DeepSpeed's engine, which gets a model that is loaded."""
    return any("deepspeed/runtime/engine.py" in frame.file for event in job.events for frame in event.frames)


def _advice(job: LoggedJob) -> list[str]:
    advice = []
    alone = job.sure_ranks() == 1
    if alone and "ranks" not in job.facts:
        advice.append("Start every rank: DeepSpeed sees only one. Use the launcher (deepspeed, torchrun --nproc-per-node N, srun).")
    is_loaded = job.moments or job.steps or any(kind in job.counts for kind in _OF_ENGINE)
    is_shown = job.get("stage") == 3 or any(kind in job.counts for kind in _OF_RANKS)  # a line of Slurm alone shows no phase
    if not alone and not is_loaded and is_shown and job.get("stage") in (3, None) and not _is_in_engine(job):
        known = job.get("stage") == 3 and (job.sure_ranks() or 0) > 1
        where = "with ZeRO stage 3" if known else "if several ranks run there and the ZeRO stage is 3,"
        advice.append(
            f"Load the model only once per machine: {where} create the TrainingArguments (or HfDeepSpeedConfig) before from_pretrained, so that each rank keeps only its part."
        )
    if "resumes" in job.counts and not job.steps:
        divided = "the same number of ranks on more machines divides what is read."
        if alone:
            advice.append("Resume with more host memory, or with a larger limit of it: the only rank reads the whole checkpoint.")
        elif job.sure_ranks() is None:
            advice.append(f"Resume with more host memory, or with a larger limit of it. If several ranks run on this machine: {divided}")
        else:
            advice.append(f"Resume on more machines, or with a larger limit of memory: {divided}")
    if job.get("offloads_optimizer"):
        advice.append(
            "Offload less: the optimizer states need 12 to 16 bytes per parameter of host memory; more ranks or machines divide them."
        )
    return advice
