"""Processes of a trial: a command is started in a session of its own, and everything that it started is ended with it.

A launcher may put its ranks into sessions of their own, so that ending its process group leaves them running. Every process of a trial
therefore carries a mark in its environment, by which it is found again, also after dslint itself was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

MARK = "DSLINT_TUNE_TRIAL"
"""The variable of the environment that marks the processes of a trial."""

QUIET = 5
"""How often in a row no process is found before there is none: one that is executing a new program has no environment for a moment."""

GRACE = 5.0
"""Seconds between asking processes to end and killing them."""


def start(command: Sequence[str], mark: str, folder: str | None = None) -> subprocess.Popen[bytes]:
    """Start a command under a guard, which ends it as soon as this process closes the guard's standard input, or ends in any way."""
    guard = [sys.executable, "-I", str(Path(__file__).with_name("guard.py")), MARK, mark, str(GRACE), *command]
    environment = {**os.environ, MARK: mark}
    return subprocess.Popen(
        guard, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, cwd=folder, start_new_session=True
    )


def submit(command: Sequence[str], folder: str | None = None) -> subprocess.Popen[bytes]:
    """Submit a job to Slurm under a guard, which cancels it as soon as this process closes the guard's standard input, or ends in any
    way. The guard prints a line of JSON with the job's number.
    """
    guard = [sys.executable, "-I", str(Path(__file__).with_name("guard_batch.py")), *command]
    return subprocess.Popen(guard, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, start_new_session=True)


def end(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a guard and all processes of its trial."""
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(2 * GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
    kill_marked(mark)
    process.wait()


def marked(mark: str) -> Iterator[int]:
    """The processes of this user that carry a mark. On systems without /proc there are none to be found."""
    needle = f"{MARK}={mark}".encode()
    for entry in Path("/proc").glob("[0-9]*") if Path("/proc/self/environ").exists() else ():
        try:
            if (
                needle in (entry / "environ").read_bytes().split(b"\0")
                and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            ):
                yield int(entry.name)
        except (OSError, ValueError):
            continue  # it ended, or belongs to somebody else


def kill_marked(mark: str) -> int:
    """Kill the processes that carry a mark; returns how many there were. This process is left alone."""
    found: set[int] = set()
    quiet = 0
    for _ in range(100):
        running = [number for number in marked(mark) if number != os.getpid()]
        quiet = 0 if running else quiet + 1
        if quiet == QUIET:
            break
        found.update(running)
        for number in running:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.02)
    return len(found)
