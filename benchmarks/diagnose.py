"""Measure `dslint diagnose` on made logs.

    python benchmarks/diagnose.py [--mb N]

"Quiet" has nothing of interest. "Errors" is dense in tracebacks and out-of-memory errors with other numbers each. "Restarts" is a job that
runs out of memory, started again and again.

CPU time should grow linearly: twice the log takes about twice the time.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable
from pathlib import Path

from dslint.diagnose.diagnose import diagnose
from dslint.diagnose.reading import LogSource

JOB = (Path(__file__).resolve().parent.parent / "examples/logs/out-of-memory.log").read_text(encoding="utf-8")

FRAMES = "".join(
    f'[rank3]:   File "/usr/lib/python3/site-packages/deepspeed/runtime/engine.py", line {line}, in step\n[rank3]:     return run(x)\n'
    for line in range(12)
)
ERRORS = (
    f"[rank3]: Traceback (most recent call last):\n{FRAMES}"
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {number}.91 GiB. GPU 2 has a total capacity of 79.15 GiB"
    " of which 1.32 GiB is free. Including non-PyTorch memory, this process has 77.82 GiB memory in use.\n"
    f"[rank3]: Traceback (most recent call last):\n{FRAMES}"
    "[rank3]: ValueError: sample {number} is not valid\n"
)

KINDS: dict[str, Callable[[int], str]] = {
    "quiet": lambda number: f"tokens of sample {number}: 128 29 3382 and more of what a program prints\n",
    "errors": lambda number: ERRORS.replace("{number}", str(number)),
    "restarts": lambda _: JOB,
}


def made(part: Callable[[int], str], size: int) -> bytes:
    """A log of about `size` bytes."""
    return "".join(part(number) for number in range(size // len(part(0)) + 1)).encode()


def cpu_seconds(log: bytes) -> float:
    """The CPU seconds of a diagnosis."""
    start = time.process_time()
    diagnose([LogSource("job.log", io.BytesIO(log))])
    return time.process_time() - start


def main() -> None:
    """Print the CPU seconds per kind of log, for some MB and for twice as many, and what the difference makes of 1 GB."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=5)
    size = parser.parse_args().mb
    cpu_seconds(JOB.encode())  # reads the tables
    for name, part in KINDS.items():
        one, two = (cpu_seconds(made(part, megabytes * 10**6)) for megabytes in (size, 2 * size))
        print(f"{name:10}{size} MB: {one:.1f} s, {2 * size} MB: {two:.1f} s, 1 GB: about {one + (two - one) / size * (1000 - size):.0f} s")


if __name__ == "__main__":
    main()
