"""Submits a job to Slurm and cancels it when standard input closes: the process that started this one has ended the trial, or is gone.

    guard_batch.py SBATCH...

A program of its own, like `guard.py`. It prints a line of JSON with the job's number, or with what sbatch said and its exit code.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import suppress

LONGEST = 60.0
"""Seconds that a cancelled job may take to end."""

POLL = 0.2
"""Seconds between two looks at the job."""


def main() -> int:
    """Submit, wait, cancel; 1 if there is no job."""
    try:
        done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        _say({"number": None, "code": 127, "output": f"{sys.argv[1]}: {error.strerror or error}"})
        return 1
    found = re.search(r"^(\d+)(?:;\S+)?\s*$", done.stdout, re.MULTILINE)
    number = found[1] if found and not done.returncode else None
    _say({"number": number, "code": done.returncode, "output": done.stdout + done.stderr})
    if number is None:
        return 1
    while os.read(0, 1):
        pass
    subprocess.run(["scancel", number], capture_output=True, check=False)
    last = time.monotonic() + LONGEST
    while time.monotonic() < last and _is_known(number):
        time.sleep(POLL)
    return 0


def _say(answer: dict[str, object]) -> None:
    """Answer in a line. Nobody reads it if tune was killed while sbatch ran: the job is then still to be cancelled."""
    with suppress(OSError):
        os.write(1, json.dumps(answer).encode() + b"\n")


def _is_known(number: str) -> bool:
    """Whether the job waits, runs or ends."""
    found = subprocess.run(["squeue", "--noheader", "--job", number, "--format=%T"], capture_output=True, text=True, check=False)
    return bool(found.stdout.strip())


if __name__ == "__main__":
    sys.exit(main())
