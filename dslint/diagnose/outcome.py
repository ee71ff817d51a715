"""How a job ended."""

from __future__ import annotations

from dslint.diagnose.causes.crash import is_cut
from dslint.diagnose.causes.rank import ended_before, level_of
from dslint.diagnose.diagnosis import End, Evidence, JobOutcome, evidence
from dslint.diagnose.events import AT_EXIT, LogEvent
from dslint.diagnose.job import LoggedJob
from dslint.diagnose.texts import CAUSE, FOLLOW_UP

FATAL = frozenset(
    {
        "worker_failed",
        "worker_signal",
        "child_failed",
        "cancelled",
        "host_kill",
        "shell_killed",
        "interrupted",
        "signal_received",
        "lsf_killed",
    }
)
ERRORS = frozenset({"raised", "error", "refused", "oom", "host_allocation", "watchdog", "minimum_scale", "disk_full", "hardware", "unread"})
ALIVE = (
    "launch",
    "ranks",
    "release",
    "allocated",
    "label",
    "config",
    "attribute",
    "zero",
    "overflow",
    "step",
    "throughput",
    "parallel",
    "trainer",
    "spawned",
    "machines",
    "process_started",
    "backend",
    "accumulation_differs",
    "accumulation_replaced",
    "not_finite",
)
"""The kinds of lines that only a job of DeepSpeed, or a training, prints."""

KILLING_CODES, KILLING = frozenset({"-9", "137"}), frozenset({"SIGKILL", "Killed"})
TERMINATING_CODES, TERMINATING = frozenset({"-15", "143"}), "SIGTERM"
"""How launchers name the signals that end a process from outside."""

LOG_ENDS = "The log ends"
TELLS_NO_FAILURE = "no line tells a failure or how the job ended"


def is_fatal(event: LogEvent) -> bool:
    """Whether an event says that a process ended badly."""
    if event.kind == "lsf":
        return event.values["how"] == "Exited"
    return event.kind in FATAL or (event.kind in ("return_code", "srun", "failed_code") and event.values.get("code") != "0")


def is_error(event: LogEvent) -> bool:
    """Whether an event is an error that a process reports, which may have survived it."""
    return event.kind in ERRORS and "ignored" not in event.values


def outcome_of(job: LoggedJob) -> JobOutcome:
    """How the job ended, judged by its last lines: a job that finished after an error has survived it."""
    ends = [event for event in job.events if event.kind in ("finished", "exited_well")]
    after = job.events[job.events.index(ends[-1]) + 1 :] if ends else job.events
    fatal = [event for event in job.events if is_fatal(event) and (event in after or _is_left_by_others(job, event))]
    late = [event for event in after if is_error(event) and level_of(event) == CAUSE] if ends else []
    if late and (not fatal or ends[-1].kind == "finished"):
        return JobOutcome(
            End.FAILED, f"The training finished{_progress(job, ended=True)}, and the job failed afterwards.", evidence(late[0])
        )
    if ends and not fatal:
        return JobOutcome(End.FINISHED, f"The job finished{_progress(job, ended=True)}.", evidence(ends[-1]))
    errors = [event for event in after if is_error(event) and not job.survived(event)]
    if fatal or errors:
        return _bad(job, fatal, errors)
    ended = [event for event in after if event.kind == "killing"]
    if ended:
        return JobOutcome(End.FAILED, f"The launcher ended the job{_progress(job)}; no line says why.", evidence(ended[0]))
    if _reached_the_end(job):
        return JobOutcome(End.FINISHED, f"The job finished{_progress(job)}.", evidence(job.steps[-1]))
    ignored = [event for event in job.events if "ignored" in event.values]
    if ignored and not job.has_run():
        return JobOutcome(
            End.UNFINISHED, "The log holds only an error that Python ignored; what happened before is missing.", evidence(ignored[0])
        )
    left = job.of("left") or [event for event in ignored if event.values["ignored"] == AT_EXIT] or job.of("lsf")
    if left:
        return JobOutcome(End.FINISHED, f"The processes ended by themselves{_progress(job)}, and report no failure.", evidence(left[0]))
    if any(kind in job.counts for kind in ALIVE):
        return JobOutcome(End.UNFINISHED, f"{LOG_ENDS}{_progress(job)}; {TELLS_NO_FAILURE}.", _last(job))
    return JobOutcome(End.UNKNOWN, "No line of the log tells how a DeepSpeed job went.")


def _is_left_by_others(job: LoggedJob, event: LogEvent) -> bool:
    """Whether a launcher says that a process failed, after which only processes ended: those that exit well do not make up for it."""
    return event.kind == "return_code" and not any(
        step.place.file == event.place.file and step.place.line > event.place.line for step in (job.steps[-1:] or [])
    )


def _bad(job: LoggedJob, fatal: list[LogEvent], errors: list[LogEvent]) -> JobOutcome:
    """The outcome of a job that did not finish."""
    signs = {event.kind for event in fatal}
    first = (errors or fatal)[0]
    progress = " after the training had finished" if job.had_finished(first) else _progress(job)
    cancelled = next((event for event in fatal if event.kind == "cancelled" and not ended_before(job, event)), None)
    own = [event for event in errors if event.kind != "watchdog"]
    of_ranks = [event for event in own if level_of(event) != FOLLOW_UP]  # not of a launcher that got the signal
    if cancelled and not of_ranks and not ("host_kill" in signs and not cancelled.values.get("reason")):
        limit = "TIME LIMIT" in cancelled.values.get("reason", "")
        how = "Slurm stopped the job at its time limit" if limit else "Slurm cancelled the job"
        return JobOutcome(End.KILLED, f"{how}{progress}.", evidence(cancelled))
    if not errors and signs <= {"lsf", "lsf_killed"}:
        if "lsf_killed" in signs:
            return JobOutcome(End.KILLED, f"LSF killed the job{progress}.", evidence(first))
        return JobOutcome(End.FAILED, f"LSF reports that the job exited{progress}; no line of this log says why.", evidence(first))
    if (not of_ranks and signs & {"shell_killed", "host_kill", "signal_received", "interrupted"}) or (not of_ranks and _killed(fatal)):
        return JobOutcome(End.KILLED, f"The job was killed{progress}.", evidence(first))
    well = job.counts.get("exited_well", 0)
    if well and not errors and first.kind == "return_code":
        others = "another exited" if well == 1 else f"{well:,} others exited"
        return JobOutcome(End.FAILED, f"A process failed{progress}, while {others} successfully.", evidence(first))
    if first.kind == "refused" and not job.steps:
        if "missing" in first.values:
            return JobOutcome(End.FAILED, "Python did not find the program.", evidence(first))
        if "interpreter" in first.values:
            return JobOutcome(End.FAILED, "The shell of a machine did not find Python.", evidence(first))
        return JobOutcome(End.FAILED, "The program refused its command line, and ended before it did anything.", evidence(first))
    if errors and not own:
        return JobOutcome(End.HUNG, f"The job hung: a collective operation did not complete{progress}.", evidence(first))
    if not fatal and all(is_cut(event) for event in errors):
        return JobOutcome(End.FAILED, f"The job failed{progress}: the log holds a traceback without its error.", evidence(first))
    return JobOutcome(End.FAILED, f"The job failed{progress}.", evidence(first))


def _killed(fatal: list[LogEvent]) -> bool:
    """Whether something outside ended the processes. A launcher that sends SIGTERM does so because another process has ended by itself."""
    codes = {event.values.get("code") for event in fatal} - {None}
    signals = {event.values.get("signal") for event in fatal}
    ended = codes - KILLING_CODES - TERMINATING_CODES
    return bool(codes & KILLING_CODES or signals & KILLING) or (not ended and bool(codes & TERMINATING_CODES or TERMINATING in signals))


def _reached_the_end(job: LoggedJob) -> bool:
    steps = [(event.number("step"), event.number("steps")) for event in job.steps if event.kind == "step"]
    last, most = next(((step, whole) for step, whole in reversed(steps) if step is not None and whole), (None, None))
    return last is not None and most is not None and last >= most > 1


def of_ended_cells(job: LoggedJob) -> JobOutcome:
    """The outcome of a job in a notebook whose cells ended, and that reports neither a failure nor its end."""
    step, whole = _reached(job)
    if step and whole and step < whole:
        return JobOutcome(End.UNFINISHED, f"The cells of the notebook ended{_progress(job)}; no line says how the job ended.", _last(job))
    return JobOutcome(End.FINISHED, f"The cells of the notebook ended{_progress(job)}, and report no failure.", _last(job))


def _progress(job: LoggedJob, *, ended: bool = False) -> str:
    """How far the job came, as far as the log shows it. A job that `ended` well may have printed its last steps unread."""
    step, whole = _reached(job)
    if not step or (ended and whole and step < whole):
        return ""
    return f" after step {step:,}" + (f" of {whole:,}" if whole and whole >= step else "")


def _reached(job: LoggedJob) -> tuple[int, int | None]:
    """The last step that the log shows, and all of them. Of progress bars only those over all steps count."""
    whole = job.get("steps")
    counted = [event for event in job.steps if event.kind == "step" or (event.kind == "bar" and whole and event.number("steps") == whole)]
    step = max((event.number("step") or 0 for event in counted), default=0)
    return step, next((steps for event in reversed(counted) if (steps := event.number("steps"))), whole)


def _last(job: LoggedJob) -> Evidence | None:
    return Evidence(job.last, "") if job.last else None
