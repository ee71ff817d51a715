"""Runs a command and ends it when standard input closes: the process that started this one has ended it, or is gone.

    guard.py MARK VALUE COMMAND...

A program of its own, without imports of dslint, so that it starts at once. Its exit code is that of the command.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

GRACE = 5.0
"""Seconds between asking the command to end and killing it."""

POLL = 0.1


def main() -> int:
    """Run the command; 127 if it cannot be started."""
    _, _, *command = sys.argv[1:]
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(f"{command[0]}: {error.strerror or error}", flush=True)
        return 127
    while child.poll() is None:
        readable, _, _ = select.select([0], [], [], POLL)
        if readable and not os.read(0, 1):
            _end(child)
            break
    code = child.wait()
    _kill_marked()  # what the command left: a rank in a session of its own
    return code


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask the command's process group to end, then kill it. A launcher ends its ranks, also those on other machines, when it is asked."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGTERM)
    last = time.monotonic() + GRACE
    while child.poll() is None and time.monotonic() < last:
        time.sleep(POLL / 2)
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)


def _kill_marked() -> None:
    """Kill the other processes of the trial."""
    for _ in range(100):
        left = _marked(sys.argv[1], sys.argv[2])
        for number in left:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
        if not left:
            return
        time.sleep(0.02)


def _marked(name: str, value: str) -> list[int]:
    """Other processes with the mark in their environment."""
    found = []
    for entry in os.listdir("/proc") if os.path.exists("/proc") else ():
        with contextlib.suppress(OSError):
            if entry.isdecimal() and int(entry) not in (os.getpid(), os.getppid()):
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if f"{name}={value}".encode() in file.read().split(b"\0"):
                        found.append(int(entry))
    return found


if __name__ == "__main__":
    sys.exit(main())
