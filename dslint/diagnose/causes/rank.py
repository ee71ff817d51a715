"""Finds the first cause among the errors of a log: not the last error, and not the one that most ranks print."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from dslint.diagnose.causes.crash import crash
from dslint.diagnose.causes.gpu_memory import out_of_gpu_memory
from dslint.diagnose.causes.hang import hang
from dslint.diagnose.causes.host_memory import ended_by_launcher, killed_for_memory, out_of_host_memory
from dslint.diagnose.causes.stopped import cancelled, ended_by_lsf, exited, interrupted, killed, killed_by_lsf, unread
from dslint.diagnose.diagnosis import End, JobOutcome, LikelyCause
from dslint.diagnose.events import HOOK, LogEvent
from dslint.diagnose.fitting import fitted
from dslint.diagnose.job import LoggedJob
from dslint.diagnose.parse_log import normal
from dslint.diagnose.places import is_launcher
from dslint.diagnose.prefixes import LogPlace
from dslint.diagnose.situation import in_replicas, situation_of
from dslint.diagnose.texts import CAUSE, FOLLOW_UP, GENERAL, NOISE, SYMPTOM, match_line

MOST = 3
"""The most causes that are reported."""

LAUNCHERS = ("ChildFailedError", "CalledProcessError", "SystemExit", "KeyboardInterrupt", "SignalException", "ProcessRaisedException")
"""What launchers raise when a process that they started has failed."""

PASSED_ON = re.compile(r"Caught \w+ in (?:replica \d+ on device|DataLoader worker process|pin memory thread)")
"""How PyTorch passes on an error of a thread or a worker process: the original traceback follows as text."""

BUILDS = re.compile(r"torch/utils/cpp_extension\.py$|op_builder/")
"""Files in which a compiler is started, not a process of the job."""

OF_PEERS = ("DistBackendError", "DistNetworkError", "DistStoreError", "BrokenPipeError", "ConnectionResetError", "EOFError")
"""What a process raises when another one has gone."""

WHOLE_ERRORS = ("config", "checkpoint")
"""Kinds of texts that are the heading of a list of mistakes: a line that names none, but with its traceback it is the error itself."""

RUN_OUT = ("oom", "host_allocation", "host_kill", "disk_full", "hardware")
"""Kinds of events after which the other ranks lose their connection, and may print so first."""

STARTED = ("launch", "ranks", "machines", "spawned", "process_started")
"""Kinds of lines of a launcher that starts ranks."""

OF_RANKS = ("communication", "network", "hang")
"""Kinds of known texts about the connection between ranks."""

SAY_MORE = ("return_code", "worker_failed", "failed_code", "worker_signal", "srun", "shell_killed", "signal_received", "interrupted", "lsf")
"""Kinds of lines that say how a process ended, and so more than that the launcher then ended the others."""

ONCE = ("oom", "host-memory", "hang", "exit", "killed", "cancelled", "time-limit")
"""Kinds of causes that ranks report with other figures each: the first one stands for all."""


REPLICAS = "The model runs under torch.nn.DataParallel: one process drives all GPUs, and DeepSpeed divides nothing among them."

LONGEST_BEGINNING = 80
"""The most characters of an exception by which it is known on other ranks."""

FIRST_OF_CHAIN = "It followed from another exception, which stands above it: dslint could not read that one, or it was cut off."

PRINTED_LATE = (
    "The log shows steps after it: they were printed late (buffered output), or the job survived this error and failed of another one."
)

LONGEST_LINK = 160
"""The most characters of an exception that followed from another one."""


class Suspect(NamedTuple):
    """An event that may be the cause: how close to a cause its kind is (0: a cause, 2: a consequence), and its position."""

    level: int
    position: int
    event: LogEvent


def find_causes(job: LoggedJob, outcome: JobOutcome) -> list[LikelyCause]:
    """The causes of the outcome, most likely first; none for a job that finished or still runs."""
    if outcome.end in (End.FINISHED, End.UNKNOWN, End.UNFINISHED):
        return []
    suspects = sorted(_or_survived(list(_suspects(job))))
    figures = {event.place: event for event in reversed(job.of("oom", "host_allocation"))}
    chains = _chains(job)
    traced = {(event.rank, normal(_line(event))): event for event in reversed(job.of("raised")) if event.frames and not _is_aside(event)}
    causes: dict[tuple[str, str], tuple[LikelyCause, LogEvent]] = {}
    explained: set[LogPlace] = set()
    messages: set[tuple[str, str]] = set()
    for suspect in (_with_traceback(one, traced) for one in suspects):
        if len(causes) == MOST or (causes and suspect.level > suspects[0].level):
            break
        message = (suspect.event.kind, normal(_line(suspect.event)))
        if suspect.event.place in explained or (suspect.event.kind in ("raised", "error") and message in messages):
            continue
        chain = chains.get(suspect.event.place, [suspect.event])
        messages |= {(event.kind, normal(_line(event))) for event in chain}
        event = _teller(chain, suspect.event)
        cause = _cause(job, event, figures)
        if cause is None:
            continue
        explained |= {event.place for event in chain}
        if event.kind in ("raised", "error") and (level_of(event) or CAUSE) > CAUSE:
            cause = replace(cause, certain=False)  # it shows that something failed, not what failed first
        if event.kind in ("raised", "oom") and job.survived(event):
            cause = replace(cause, certain=False, why=(*cause.why, PRINTED_LATE))
        if "follows" in chain[0].values:
            cause = replace(cause, certain=False, why=(*cause.why, FIRST_OF_CHAIN))
        key = (cause.kind, "" if cause.kind in ONCE else normal(cause.title))
        same = any(cause.advice and (one.why[:1], one.advice) == (cause.why[:1], cause.advice) for one, _ in causes.values())
        if key not in causes and not same:
            causes[key] = (_with_chain(cause, chain, event), event)
    told = list(causes.values())
    if any(cause.kind == "exit" for cause, _ in told):  # what a launcher raises after that says less
        told = [(cause, event) for cause, event in told if event.values.get("kind", "").rpartition(".")[2] not in LAUNCHERS]
    return [fitted(_with_company(job, cause), situation_of(job, event.frames)) for cause, event in told]


def _with_traceback(suspect: Suspect, traced: Mapping[tuple[int | None, str], LogEvent]) -> Suspect:
    """A suspect; of an error that is printed with and without its traceback the one with it."""
    if suspect.event.kind != "error":
        return suspect
    return suspect._replace(event=traced.get((suspect.event.rank, normal(_line(suspect.event))), suspect.event))


def _is_aside(event: LogEvent) -> bool:
    """Whether an exception did not end its program."""
    return "ignored" in event.values or HOOK in event.values


def _chains(job: LoggedJob) -> dict[LogPlace, list[LogEvent]]:
    """The exceptions that were raised while others were handled, or because of them: each with all of its chain."""
    chains: dict[LogPlace, list[LogEvent]] = {}
    last: dict[str, list[LogEvent]] = {}
    for event in job.of("raised"):
        chain = last.get(event.source, []) if "follows" in event.values else []
        chain.append(event)
        chains[event.place] = last[event.source] = chain
    return chains


def _teller(chain: list[LogEvent], first: LogEvent) -> LogEvent:
    """The exception of a chain that says most: of those with a known text of their own the first, or one that was raised while it was
    handled, and so instead of it; or else the first of all.
    """
    best: LogEvent | None = None
    for event in chain:
        hit = match_line(_line(event), [frame.place for frame in event.frames])
        if level_of(event) == CAUSE and hit is not None and hit[0].kind != GENERAL:
            best = event if best is None or event.values.get("follows") == "handled" else best
    return best or first


def _with_chain(cause: LikelyCause, chain: list[LogEvent], event: LogEvent) -> LikelyCause:
    """The cause, with the last exception that followed from it."""
    last = next((one for one in reversed(chain) if one.values.get("kind")), event)  # without one whose error was cut off
    if last.place == event.place or normal(_line(last)) == normal(_line(event)):
        return cause
    kind = last.values.get("kind", "").rpartition(".")[2]
    message = last.values.get("message", "").split("\n")[0][:LONGEST_LINK].strip()
    return replace(cause, why=(*cause.why, f"It led to {kind}: {message.rstrip('.')} (line {last.place.line})."))


def follows(job: LoggedJob, cause: LikelyCause) -> bool:
    """Whether a cause only shows that something failed before: a process that ended, a launcher, a traceback that is cut, a failed build."""
    if cause.kind == "exit":
        return True
    shown = [event for event in job.of("raised", "error") if cause.evidence and event.place == cause.evidence[0].place]
    return bool(shown) and all((level_of(event) or CAUSE) >= SYMPTOM for event in shown)


def _suspects(job: LoggedJob) -> Iterator[Suspect]:
    """The events that may be the cause. Where a rank ran out of something, an error of communication before it is only how others saw that."""
    found = list(_ranked(job))
    if any(suspect.level == CAUSE and suspect.event.kind in RUN_OUT for suspect in found):
        found = [suspect._replace(level=max(suspect.level, SYMPTOM)) if _is_of_peers(suspect.event) else suspect for suspect in found]
    yield from found


def _or_survived(found: list[Suspect]) -> list[Suspect]:
    """The suspects. Where a job failed and none but what followed is left, the last traceback counts after which steps are printed: a
    process prints them late if its output is buffered.
    """
    if any(suspect.level < FOLLOW_UP for suspect in found) or not any(suspect.level == FOLLOW_UP for suspect in found):
        return found
    late = [one for one in found if one.level == NOISE and one.event.kind in ("raised", "oom") and level_of(one.event) == CAUSE]
    return [one._replace(level=SYMPTOM) if late and one is late[-1] else one for one in found]


def _is_of_peers(event: LogEvent) -> bool:
    """Whether an error is one of the communication between ranks."""
    if event.kind not in ("raised", "error"):
        return False
    known = match_line(_line(event), [frame.place for frame in event.frames])
    return known is not None and known[0].kind in OF_RANKS


def _ranked(job: LoggedJob) -> Iterator[Suspect]:
    started = next((i for i, event in enumerate(job.events) if event.kind == "launch"), 0)
    figures = {event.place for event in job.events if event.kind in ("oom", "host_allocation", "minimum_scale")}
    for position, event in enumerate(job.events):
        if "ignored" in event.values:
            continue
        level = level_of(event)
        if level is None or (event.kind == "error" and event.place in figures):
            continue
        if position < started and event.rank is None:
            level = FOLLOW_UP
        if event.kind == "cancelled" and ended_before(job, event):
            continue
        if event.kind == "killing" and any(kind in job.counts for kind in SAY_MORE):
            continue
        if event.kind == "cancelled" and not event.values.get("reason") and "host_kill" in job.counts:
            level = FOLLOW_UP
        if event.kind in ("raised", "error", "oom", "host_allocation", "hardware") and job.survived(event):
            level = NOISE
        yield Suspect(level, position, event)


def ended_before(job: LoggedJob, event: LogEvent) -> bool:
    """Whether srun said that a task had failed before a step was cancelled: it ends the others then."""
    is_step = "." in event.values.get("job", "") and not event.values.get("reason")
    return is_step and any(one.values.get("code") != "0" for one in job.before(event, "srun"))


_LEVELS = {
    "oom": CAUSE,
    "refused": CAUSE,
    "host_allocation": CAUSE,
    "host_kill": CAUSE,
    "minimum_scale": CAUSE,
    "disk_full": CAUSE,
    "cancelled": CAUSE,
    "lsf_killed": CAUSE,
    "unread": SYMPTOM,
    "pinned": SYMPTOM,
    "worker_signal": SYMPTOM,
    "watchdog": SYMPTOM,
    "interrupted": SYMPTOM,
    "signal_received": FOLLOW_UP,
    "shell_killed": FOLLOW_UP,
    "return_code": FOLLOW_UP,
    "worker_failed": FOLLOW_UP,
    "failed_code": FOLLOW_UP,
    "killing": FOLLOW_UP,
    "lsf": FOLLOW_UP,
    "srun": FOLLOW_UP,
    "ssh": NOISE,
}


def level_of(event: LogEvent) -> int | None:
    """How close to a cause an event is; None for what does not belong to a failure."""
    if event.kind in ("raised", "error"):
        return _level_of_error(event)
    if event.kind in ("return_code", "worker_failed", "failed_code") and event.values.get("code") in ("-9", "137"):
        return SYMPTOM
    if event.kind == "srun" and event.values.get("signal") == "Killed":
        return SYMPTOM
    if event.kind == "worker_signal" and event.values.get("signal") == "SIGTERM":
        return FOLLOW_UP  # torchrun sends it after another process has failed
    if event.kind == "hardware":
        known = match_line(event.text)
        return CAUSE if known is None else known[0].rank
    if (event.kind in ("return_code", "srun") and event.values.get("code") == "0") or event.values.get("how") == "Done":
        return None
    return _LEVELS.get(event.kind)


def _level_of_error(event: LogEvent) -> int:
    kind = event.values.get("kind", "").rpartition(".")[2]
    if HOOK in event.values or PASSED_ON.match(event.values.get("message", "")):
        return FOLLOW_UP
    if kind in LAUNCHERS:
        return SYMPTOM if any(BUILDS.search(frame.file) for frame in event.frames) else FOLLOW_UP
    if not kind and event.frames and is_launcher(event.frames[-1]):
        return NOISE  # cut before its error, which names the process that failed
    known = match_line(_line(event), [frame.place for frame in event.frames])
    if known is not None:
        if known[0].rank == SYMPTOM and known[0].kind in WHOLE_ERRORS and event.kind == "raised" and event.frames:
            return CAUSE
        if known[0].kind == GENERAL and event.kind == "error":  # what Python says of anything: a program may have gone on after it
            return max(known[0].rank, SYMPTOM)
        return min(known[0].rank, FOLLOW_UP)
    if kind in OF_PEERS:
        return SYMPTOM
    return CAUSE if event.kind == "raised" and event.values.get("kind") else SYMPTOM


def _line(event: LogEvent) -> str:
    """The exception in one line."""
    return f"{event.values.get('kind', '')}: {' '.join(event.values.get('message', '').split())}"[:2000]


def _cause(job: LoggedJob, event: LogEvent, figures: Mapping[LogPlace, LogEvent]) -> LikelyCause | None:
    """The explanation of an event. An out-of-memory message is both an exception and, in `figures`, a line of its own."""
    told = figures.get(event.place, event) if event.kind in ("raised", "error") else event
    match told.kind:
        case "oom":
            return out_of_gpu_memory(job, told, event)
        case "host_allocation" | "pinned":
            return out_of_host_memory(job, told, event)
        case "host_kill":
            return killed_for_memory(job, event)
        case "unread":
            return unread(event)
        case "worker_signal" | "return_code" | "worker_failed" | "failed_code" | "srun":
            killing = event.values.get("code") in ("-9", "137") or event.values.get("signal") in ("SIGKILL", "Killed")
            return killed_for_memory(job, event) if killing else exited(job, event)
        case "watchdog":
            return hang(job, event)
        case "cancelled":
            return cancelled(job, event)
        case "lsf_killed":
            return killed_by_lsf(event)
        case "lsf":
            return ended_by_lsf(job, event)
        case "shell_killed" | "signal_received" | "killing":
            return _stopped(job, event)
        case "interrupted":
            return interrupted(job, event)
        case "raised" | "error" | "refused" | "minimum_scale" | "disk_full" | "hardware":
            return crash(job, event)
    return None


def _stopped(job: LoggedJob, event: LogEvent) -> LikelyCause:
    """The explanation of a signal. What a shell reports as killed is the launcher, or the program itself where none is seen."""
    if event.kind == "killing":
        return ended_by_launcher(job, event)
    is_program = event.kind == "shell_killed" and not any(kind in job.counts for kind in STARTED)
    return killed_for_memory(job, event) if is_program else killed(event)


def _beginning(event: LogEvent) -> str:
    """How an exception begins, without its numbers, which differ from rank to rank."""
    return normal(_line(event))[:LONGEST_BEGINNING]


def _with_company(job: LoggedJob, cause: LikelyCause) -> LikelyCause:
    """The cause, with which other ranks report the same, and how several GPUs run it."""
    if in_replicas(job):
        started = "Start one process per GPU with a launcher (deepspeed, torchrun, accelerate launch)."
        cause = replace(cause, why=(*cause.why, REPLICAS), advice=(started, *cause.advice))
    first = next(
        (event for event in job.events if cause.evidence and event.place == cause.evidence[0].place and event.kind == "raised"), None
    )
    if first is None or cause.rank is None:
        return cause
    begins = _beginning(first)
    same = [event for event in job.of("raised") if event.rank is not None and _beginning(event) == begins]
    ranks, hosts = {event.rank for event in same}, {event.host for event in same}
    why = [*cause.why]
    if len(ranks) > 1:
        why.append(f"{len(ranks)} ranks report this error; rank {cause.rank} is the first in the log.")
    if len(hosts) == 1 and first.host and (job.get("nodes") or 1) > 1:
        why.append(f"Only ranks on {first.host} report it: look first at what differs on this machine.")
        if first.values["kind"] in ("FileNotFoundError", "ModuleNotFoundError", "ImportError", "PermissionError"):
            advice = f"Put what is missing on {first.host}, too, or on a file system that all machines share."
            return replace(cause, why=tuple(why), advice=(advice, *cause.advice))
    return replace(cause, why=tuple(why))
