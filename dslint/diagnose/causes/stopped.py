"""Jobs that something else stopped: a scheduler, a person, a signal."""

from __future__ import annotations

from statistics import median

from dslint.diagnose.causes.crash import OTHER_RANKS
from dslint.diagnose.diagnosis import LikelyCause, evidence
from dslint.diagnose.events import LogEvent
from dslint.diagnose.job import LoggedJob, step_times

SIGNALS = {
    6: ("SIGABRT", "The process aborted itself: a C++ error, such as the NCCL watchdog or an assertion in a library."),
    7: ("SIGBUS", "Often shared memory ran out (/dev/shm), or a mapped file was truncated."),
    4: (
        "SIGILL",
        "The CPU does not know an instruction. Often that is in compiled ops, which are built for the CPU of the machine that builds them (-march=native).",
    ),
    8: ("SIGFPE", "Compiled code divided an integer by zero. On H20 GPUs the cuBLAS of CUDA 12.1 does that."),
    11: ("SIGSEGV", "A library accessed invalid memory: often extensions built for another release of PyTorch or CUDA."),
    15: ("SIGTERM", "Something asked the process to end: a scheduler, a launcher after another rank failed, or a person."),
    2: ("SIGINT", "The job was interrupted: with Ctrl-C, or by a scheduler or another program."),
}
"""What a return code of minus this number means."""

OF_SHELL = {"Aborted": 6, "Segmentation fault": 11, "Bus error": 7}
"""The numbers of signals as srun names them."""

OF_CODES = {
    2: "Programs end with code 2 when they refuse their command line, and Python when it does not find the program.",
    126: "A shell ends with code 126 when it may not execute a file.",
    127: "A shell ends with code 127 when it does not find a command.",
}
"""What codes mean that programs agree on."""

ERRORS = ("raised", "error", "oom", "host_allocation", "hardware", "srun")

AFTER = {
    7: "Give the container more shared memory (docker run --shm-size=16g, or --ipc=host; in Kubernetes an emptyDir of medium Memory at /dev/shm).",
    4: "Delete ~/.cache/torch_extensions, or set TORCH_EXTENSIONS_DIR to a folder of this machine; build wheels of the ops on the oldest CPU.",
    8: "On H20 GPUs install torch for CUDA 12.4, or nvidia-cublas-cu12==12.4.5.8. Otherwise run with PYTHONFAULTHANDLER=1, which prints where each thread was.",
    11: "Run with PYTHONFAULTHANDLER=1, which prints where each thread was; delete ~/.cache/torch_extensions, so that the ops are built again.",
}
"""What to do about a signal."""


def cancelled(job: LoggedJob, event: LogEvent) -> LikelyCause:
    """A job that Slurm stopped."""
    reason = event.values.get("reason", "")
    who, when = (evidence(event),), event.values.get("when")
    waits, unlock = building(job)
    if "TIME LIMIT" in reason:
        return LikelyCause(
            "time-limit",
            "The job ran into the time limit of Slurm",
            waits or _pace(job),
            (*unlock, "Request more time (sbatch --time), or save checkpoints often enough and resume from the last one."),
            who,
            when=when,
        )
    if reason:
        return LikelyCause(
            "cancelled",
            f"Slurm cancelled the job: {reason.lower()}",
            (),
            ("Submit the job again; the config is not at fault.",),
            who,
            when=when,
        )
    advice = "If you did not cancel it, ask `sacct -j JOB --format=State,ExitCode,Comment`."
    is_step = "." in event.values.get("job", "")
    by = (
        "Slurm cancelled a step of the job: scancel, or srun after a task had ended"
        if is_step
        else "A person or a script cancelled the job (scancel)"
    )
    why = () if job.before(event, *ERRORS) else ("The log shows no error before it.",)
    signal = (f"Slurm sent the signal {event.values['signal']}.",) if "signal" in event.values else ()
    return LikelyCause("cancelled", by, (*signal, *why, *waits), (*unlock, advice), who, when=when)


def killed_by_lsf(event: LogEvent) -> LikelyCause:
    """A job that LSF killed, with the reason that its report gives."""
    reason = event.values["reason"].removeprefix("job killed").strip()
    advice: tuple[str, ...] = ()
    if "run time limit" in reason:
        advice = ("Request more time (bsub -W), or save checkpoints often enough and resume from the last one.",)
    return LikelyCause("cancelled", f"LSF killed the job{f' {reason}' if reason else ''}", (), advice, (evidence(event),), when=event.when)


def ended_by_lsf(job: LoggedJob, event: LogEvent) -> LikelyCause:
    """A job that exited by the report of LSF, and whose output holds no error."""
    other = job.first_of("lsf_errors")
    where = f"{other.values['path']}, where the report says that stderr is" if other else "the file of bsub -e"
    return LikelyCause(
        "exit",
        "LSF reports that the job exited",
        ("This output holds no error.",),
        (f"Pass the output of stderr, too: {where}.",),
        (evidence(event),),
        when=event.when,
        certain=False,
    )


def _pace(job: LoggedJob) -> tuple[str, ...]:
    timed, whole = step_times(job), job.get("steps")
    if not timed or not whole:
        return ()
    usual = median(seconds for _, seconds in timed)
    return (f"A step took {usual:.3g} s: all {whole:,} steps need {usual * whole / 3600:.1f} hours.",)


def killed(event: LogEvent) -> LikelyCause:
    """A launcher that was ended from outside. A signal that it could receive, and report, is not SIGKILL."""
    number = event.number("number")
    name = OF_NUMBER.get(number, f"signal {number}") if number is not None else event.values.get("signal", "SIGKILL")
    why, advice = ["No rank reports an error before."], [NOT_BY_A_PERSON]
    if name == "SIGHUP":
        why.append("A terminal or a connection that is closed sends it to what was started there.")
        advice = ["Start the job so that it outlives the terminal: in tmux or screen, with nohup, or as a job of a scheduler."]
    elif name == "SIGINT":
        why.append("Ctrl-C sends it.")
        advice = []
    elif name != "SIGKILL":
        advice = ["If no person ended it, look at the events of the job in the scheduler, and at the logs of the other machines."]
    title = f"Something {'killed' if name == 'SIGKILL' else 'ended'} the launcher with {name}"
    return LikelyCause("killed", title, tuple(why), tuple(advice), (evidence(event),), when=event.when, certain=False)


OF_NUMBER = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 15: "SIGTERM"}
"""The signals that torchrun passes on to its workers."""

NOT_BY_A_PERSON = "If no person killed it, look for the out-of-memory killer of the kernel: `dmesg -T | grep -i oom`, or the events of the job in the scheduler."


def interrupted(job: LoggedJob, event: LogEvent) -> LikelyCause:
    """A job that a person interrupted."""
    waits, unlock = building(job)
    return LikelyCause(
        "interrupted", "The job was interrupted (Ctrl-C)", waits, unlock, (evidence(event),), event.rank, event.host, event.when
    )


def building(job: LoggedJob) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Why a job that ends while an op is built may have waited, and what to do; both empty for other jobs."""
    folder = job.get("building")
    if folder is None or job.steps:
        return (), ()
    why = (
        f"It took no step: the log ends while torch builds or loads a compiled op of DeepSpeed in {folder}. A process that is killed during a build "
        "leaves a file named lock there, and every later job waits for it silently."
    )
    return (why,), (f"If no other process is building there, delete {folder}/*/lock and start again.",)


NO_TRACEBACK = "The log holds no traceback: it was printed elsewhere, or cut off."


def exited(job: LoggedJob, event: LogEvent) -> LikelyCause:
    """A process that ended with a code, and left no error in the log."""
    code = event.number("code") or 0
    signal = (
        event.number("number")
        or OF_SHELL.get(event.values.get("signal", ""), 0)
        or (-code if code < 0 else code - 128 if code > 128 else 0)
    )
    name, meaning = SIGNALS.get(signal, ("", ""))
    title = f"A process ended with {name}" if name else f"A process ended with return code {code}"
    follows = job.before(event, "raised")
    first = "the one of the process that failed first was printed elsewhere, or cut off."
    of_code = (OF_CODES[code],) if code in OF_CODES and not follows else ()
    why = (
        (meaning,)
        if meaning
        else (
            *of_code,
            f"The tracebacks before it only follow from a failure: {first}" if follows else NO_TRACEBACK,
        )
    )
    others = OTHER_RANKS
    whole = "If these are the last lines of a longer log, pass the whole log, or the lines from the first traceback on."
    own = (AFTER[signal],) if signal in AFTER else ()
    advice = (*own, others) if job.has_run() or meaning else (whole, others)
    return LikelyCause("exit", title, why, advice, (evidence(event),), event.rank, event.host, event.when, certain=False)


def unread(event: LogEvent) -> LikelyCause:
    """A traceback that begins here, and of which the next lines could not be read."""
    return LikelyCause(
        "unread",
        "A traceback begins here, and its lines could not be read",
        ("The lines after it do not look like frames: they are cut, or stand behind a prefix that dslint does not recognise.",),
        ("Read it yourself: its last line names the error. What else is reported here may only follow from it.",),
        (evidence(event),),
        event.rank,
        event.host,
        event.when,
        certain=False,
    )
