"""One trial: runs a launch command until enough steps were seen, and says how long they took."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from enum import StrEnum

from dslint.record import Record
from dslint.tune.launch import followed, is_batch
from dslint.tune.processes import end, start, submit
from dslint.tune.timing import Timing

POLL = 0.2
"""Seconds between two looks at the log of a trial."""

CANCELLED = 90.0
"""Seconds that the guard of a job of Slurm may take to cancel it."""


class Status(StrEnum):
    """How a trial ended."""

    OK = "ok"
    OOM = "out of memory"
    HUNG = "no steps within the time limit"
    FAILED = "failed"


class TrialOutcome(Record):
    """How a trial ended: seconds of a step (median, shortest, longest), the number of measured steps, and the last lines of its output
    where it did not work.
    """

    status: Status
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    steps: int = 0
    tail: tuple[str, ...] = ()


def run(
    command: Sequence[str],
    mark: str,
    samples: int,
    limit: float,
    log: str,
    folder: str | None = None,
    submitted: Callable[[str], object] = str,
) -> TrialOutcome:
    """Run a command until enough steps were measured, it ends, or the time limit is over. All its processes have ended on return.

    Args:
        command: the launch command.
        mark: identifies its processes.
        samples: samples of an optimizer step.
        limit: seconds that it may take.
        log: the file that gets its output.
        folder: its working directory.
        submitted: gets the number of a job of Slurm.

    Raises:
        KeyboardInterrupt: after its processes have ended.
    """
    timing = Timing(samples)
    if is_batch(command):
        ended, code = _batch(command, timing, limit, log, folder, submitted)
    else:
        ended, code = _direct(command, mark, timing, limit, log, folder)
    return _outcome(timing, code, ended=ended)


def _outcome(timing: Timing, code: int | None, *, ended: bool) -> TrialOutcome:
    seconds, spread = timing.seconds, timing.spread
    if seconds is not None and spread is not None and (timing.is_done or code == 0):
        return TrialOutcome(Status.OK, seconds, *spread, len(timing.steps))
    tail = tuple(timing.last)
    if timing.ran_out:
        return TrialOutcome(Status.OOM, tail=tail)
    return TrialOutcome(Status.FAILED if ended else Status.HUNG, tail=tail)


def _direct(command: Sequence[str], mark: str, timing: Timing, limit: float, log: str, folder: str | None) -> tuple[bool, int | None]:
    """Whether the command ended by itself, and its exit code."""
    process = start(command, mark, folder)
    assert process.stdout is not None
    number, rest, last = process.stdout.fileno(), b"", time.monotonic() + limit
    try:
        with open(log, "wb") as file:
            while not timing.is_done:
                left = last - time.monotonic()
                if left <= 0:
                    return False, None
                readable, _, _ = select.select([number], [], [], min(left, POLL))
                if not readable:
                    continue
                data = os.read(number, 1 << 16)
                if not data:
                    return True, process.wait(max(1.0, left))
                file.write(data)
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    timing.read(line.decode("utf-8", "replace"), time.monotonic())
        return False, None
    except subprocess.TimeoutExpired:
        return False, None
    finally:
        end(process, mark)
        process.stdout.close()


def _batch(
    command: Sequence[str], timing: Timing, limit: float, log: str, folder: str | None, submitted: Callable[[str], object]
) -> tuple[bool, int | None]:
    """The same for a job of Slurm. The limit counts from the moment at which the job writes its first line: it may wait in the queue."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(log)
    guard = submit(followed(command, log), folder)
    assert guard.stdin is not None
    assert guard.stdout is not None
    try:
        if not select.select([guard.stdout], [], [], limit)[0]:
            timing.last = [f"{command[0]} does not answer"]
            return False, None
        answer = json.loads(guard.stdout.readline())
        if answer["number"] is None:
            timing.last = answer["output"].splitlines()[-20:]
            return True, answer["code"] or 1
        submitted(answer["number"])
        return _follow(answer["number"], timing, limit, log)
    finally:
        guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.wait(CANCELLED)
        guard.stdout.close()


def _follow(number: str, timing: Timing, limit: float, log: str) -> tuple[bool, int | None]:
    last, place, rest = None, 0, b""
    while not timing.is_done:
        if last is not None and time.monotonic() > last:
            return False, None
        known = _is_known(number)
        data = b""
        with contextlib.suppress(FileNotFoundError), open(log, "rb") as file:
            file.seek(place)
            data = file.read()
        place += len(data)
        if data and last is None:
            last = time.monotonic() + limit
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            timing.read(line.decode("utf-8", "replace"), time.monotonic())
        if not known and not data:
            return True, 0 if timing.seconds is not None else 1
        time.sleep(POLL)
    return False, None


def _is_known(number: str) -> bool:
    """Whether a job waits, runs or ends."""
    found = subprocess.run(["squeue", "--noheader", "--job", number, "--format=%T"], capture_output=True, text=True, check=False)
    return bool(found.stdout.strip())


def cancel(number: str) -> bool:
    """Cancel a job of Slurm; returns whether it was still there."""
    try:
        there = _is_known(number)
        if there:
            subprocess.run(["scancel", number], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return there
