"""What `dslint check` costs, side by side with what it is measured against.

    python benchmarks/run.py [--runs N] [--json]

Cold: whole processes, one file each, taking turns so that a noisy machine is noisy to all of them; CPU time (user + system) and peak
memory as the operating system counts them for the finished process. Warm: many files in one call, and one file in this process after
a first.
Needs check-jsonschema (the extra `bench`) for its row.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "examples/zero3.json"
SCHEMA = ROOT / "schemas/ds_config.schema.json"


class Measured:
    """CPU milliseconds and peak MiB of the runs of one command."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.command = list(command)
        self.cpu: list[float] = []
        self.memory: list[float] = []

    def run(self) -> None:
        """Run the command once and account for it. A command that fails to run is an error; one with findings is not."""
        process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1):
            raise SystemExit(f"{' '.join(self.command)} ended with {process.returncode}")
        self.cpu.append((usage.ru_utime + usage.ru_stime) * 1e3)
        self.memory.append(usage.ru_maxrss / 1024)

    @property
    def median(self) -> float:
        """The median CPU time, in ms."""
        return statistics.median(self.cpu)


def cold(runs: int) -> list[Measured]:
    """One file in a process of its own, and the processes it is measured against, in turn."""
    python = sys.executable
    rows = [
        Measured("python -c pass", [python, "-c", "pass"]),
        Measured("python -c 'import click'", [python, "-c", "import click"]),
        Measured("dslint check", [python, "-m", "dslint", "check", str(CONFIG)]),
    ]
    other = shutil.which("check-jsonschema", path=str(Path(python).parent)) or shutil.which("check-jsonschema")
    if other:
        rows.append(Measured("check-jsonschema", [other, "--schemafile", str(SCHEMA), str(CONFIG)]))
    for turn in range(runs + 1):
        for row in rows:
            row.run()
            if turn == 0:  # the first turn fills the caches
                row.cpu.clear()
                row.memory.clear()
    return rows


def many(count: int) -> tuple[float, float, float]:
    """CPU milliseconds a file of `count` files in one call (start-up taken off), the peak in MiB, and wall seconds."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            shutil.copy(CONFIG, Path(folder) / f"ds_config_{number}.json")
        one = Measured("one", [sys.executable, "-m", "dslint", "check", str(CONFIG)])
        all_of_them = Measured("all", [sys.executable, "-m", "dslint", "check", folder])
        one.run()
        start = time.perf_counter()
        all_of_them.run()
        wall = time.perf_counter() - start
    return (all_of_them.cpu[0] - one.cpu[0]) / count, all_of_them.memory[0], wall


def warm(lint: Callable[[], object], times: int = 300) -> float:
    """CPU milliseconds of linting one text in a process that has done it before."""
    lint()
    start = time.process_time()
    for _ in range(times):
        lint()
    return (time.process_time() - start) / times * 1e3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    rows = cold(arguments.runs)
    each, peak, wall = many(arguments.files)

    # Only now: a child's peak memory counts that of the process it was forked from.
    from dslint.facts import Facts
    from dslint.lint.document import lint_text
    from dslint.registry.rules import default_rules

    text = CONFIG.read_text(encoding="utf-8")
    in_process = warm(lambda: lint_text(text, "c.json", Facts(), default_rules()))
    yardstick = rows[-1] if rows[-1].name == "check-jsonschema" else None
    if arguments.json:
        cold_rows = {row.name: {"cpu_ms": row.cpu, "peak_mib": max(row.memory)} for row in rows}
        print(
            json.dumps({"cold": cold_rows, "warm_ms": in_process, "files": {"count": arguments.files, "ms_each": each, "peak_mib": peak}})
        )
        return
    print(f"cold, one file, CPU ms over {arguments.runs} runs       median    min    max   peak MiB   of check-jsonschema")
    for row in rows:
        ratio = f"{row.median / yardstick.median:18.2f}" if yardstick else ""
        print(f"  {row.name:40}{row.median:10.0f}{min(row.cpu):7.0f}{max(row.cpu):7.0f}{max(row.memory):11.0f}{ratio}")
    print(f"warm, one file in a running process: {in_process:.2f} ms")
    print(f"{arguments.files} files in one call: {each:.2f} ms of CPU a file, {wall:.1f} s in all, peak {peak:.0f} MiB")


if __name__ == "__main__":
    main()
