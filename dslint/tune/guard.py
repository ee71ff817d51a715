"""Runs a command and ends it when standard input closes: the process that started this one has ended it, or is gone.

    guard.py MARK VALUE GRACE COMMAND...

A program of its own, without imports of dslint, so that it starts at once. Its exit code is that of the command. GRACE is the number of
seconds between asking the command to end and killing it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

POLL = 0.1
"""Seconds between two looks at the processes."""

QUIET = 5
"""How often in a row no process is found before there is none: one that is executing a new program has no environment for a moment."""


def main() -> int:
    """Run the command; 127 if it cannot be started."""
    _, _, grace, *command = sys.argv[1:]
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(f"{command[0]}: {error.strerror or error}", flush=True)
        return 127
    while child.poll() is None:
        readable, _, _ = select.select([0], [], [], POLL)
        if readable and not os.read(0, 1):
            _end(child, float(grace))
            break
    code = child.wait()
    _kill_marked()  # what the command left: a rank in a session of its own
    return code


def _end(child: subprocess.Popen[bytes], grace: float) -> None:
    """Ask the command's process group to end, then kill it. A launcher ends its ranks, also those on other machines, when it is asked.

    A rank that is ended while torch compiles an op of DeepSpeed leaves the file that torch holds as a lock, and every later DeepSpeed of
    this user waits for it: it is removed.
    """
    locks = _locks()
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGTERM)
    last = time.monotonic() + grace
    while child.poll() is None and time.monotonic() < last:
        time.sleep(POLL / 2)
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    _kill_marked()
    for path in locks:
        with contextlib.suppress(OSError):
            os.remove(path)


def _locks() -> set[str]:
    """The locks of torch that processes of the trial hold: `lock` in the folder of an extension, open as long as it is held."""
    found = set()
    for number in _marked(sys.argv[1], sys.argv[2]):
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{number}/fd"):
                with contextlib.suppress(OSError):
                    path = os.readlink(f"/proc/{number}/fd/{name}")
                    if os.path.basename(path) == "lock" and _of_extensions(path):
                        found.add(path)
    return found


def _of_extensions(path: str) -> bool:
    """Whether torch builds extensions there: its folder is named in the environment, or torch_extensions in the cache of the user."""
    named = os.environ.get("TORCH_EXTENSIONS_DIR")
    return "/torch_extensions/" in path or bool(named and path.startswith(os.path.realpath(named) + os.sep))


def _kill_marked() -> None:
    """Kill the other processes of the trial."""
    quiet = 0
    for _ in range(100):
        left = _marked(sys.argv[1], sys.argv[2])
        for number in left:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
        quiet = 0 if left else quiet + 1
        if quiet == QUIET:
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
