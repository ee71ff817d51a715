"""Measure what `dslint check` costs, next to what it is compared with.

    python benchmarks/run.py [--runs N] [--files N] [--json]

Cold: whole processes in turn, so that other load on the machine falls on all of them alike: one file that lies alone, and one launch
behind `dslint run`. CPU time (user and system) and peak memory are those that the operating system reports for the finished process. Warm:
many files in one call, and one file again in a process that has checked it before.

The targets: a cold check costs at most 1.7 times the CPU time of `import click`, and at most 0.30 of check-jsonschema with a schema of one
key. A warm check takes at most 1 ms a file. The rows of check-jsonschema need it installed (the extra `bench`).
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
ONE_KEY = '{"type": "object", "properties": {"train_micro_batch_size_per_gpu": {"type": "integer"}}}'

PROGRAM = """\
import argparse, deepspeed, torch
parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
model = torch.nn.Linear(4, 4)
engine, *_ = deepspeed.initialize(args=parser.parse_args(), model=model, model_parameters=model.parameters())
"""

PYTHON, CLICK, DSLINT, GATE = "python -c pass", "python -c 'import click'", "dslint check", "dslint run"
SMALL, WHOLE = "check-jsonschema, schema of one key", "check-jsonschema, schema of dslint"

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""An installed package has its bytecode beside it; the first turn writes it."""


class Measured:
    """CPU milliseconds and peak MiB of the runs of one command."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.command = list(command)
        self.cpu: list[float] = []
        self.memory: list[float] = []

    def run(self) -> None:
        """Run the command once and note its cost. A command that fails to run is an error; one with findings is not."""
        process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env=ENVIRONMENT)
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


def cold(runs: int, folder: Path) -> dict[str, Measured]:
    """One file in a process of its own, and the processes it is compared with, in turn."""
    python = sys.executable
    alone = str(shutil.copy(CONFIG, folder))
    commands = {
        PYTHON: [python, "-c", "pass"],
        CLICK: [python, "-c", "import click"],
        DSLINT: [python, "-m", "dslint", "check", alone],
        GATE: [python, "-m", "dslint", "run", "--", *launch(folder)],
    }
    other = shutil.which("check-jsonschema", path=str(Path(python).parent)) or shutil.which("check-jsonschema")
    if other:
        schema = folder / "one_key.schema.json"
        schema.write_text(ONE_KEY, encoding="utf-8")
        commands[SMALL] = [other, "--schemafile", str(schema), alone]
        commands[WHOLE] = [other, "--schemafile", str(SCHEMA), alone]
    rows = {name: Measured(name, command) for name, command in commands.items()}
    for turn in range(runs + 1):
        for row in rows.values():
            row.run()
            if turn == 0:  # the first turn fills the caches
                row.cpu.clear()
                row.memory.clear()
    return rows


def launch(folder: Path) -> list[str]:
    """A training in `folder` that ends at once: what it costs more than `dslint check` is the command and the program that are read."""
    launcher, program = folder / "launch/deepspeed", folder / "launch/train.py"
    launcher.parent.mkdir()
    launcher.write_text("#!/bin/sh\n", encoding="utf-8")
    launcher.chmod(0o755)
    program.write_text(PROGRAM, encoding="utf-8")
    return [str(launcher), "--num_gpus", "2", str(program), "--deepspeed", "--deepspeed_config", str(CONFIG)]


def many(count: int, folder: Path) -> tuple[float, float, float]:
    """CPU milliseconds a file of `count` files in one call (start-up taken off), the peak in MiB, and wall seconds."""
    alone = folder / "ds_config_0.json"
    for number in range(count):
        shutil.copy(CONFIG, folder / f"ds_config_{number}.json")
    one = Measured("one", [sys.executable, "-m", "dslint", "check", str(alone)])
    all_of_them = Measured("all", [sys.executable, "-m", "dslint", "check", str(folder)])
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

    with tempfile.TemporaryDirectory() as schemas, tempfile.TemporaryDirectory() as files:
        rows = cold(arguments.runs, Path(schemas))
        each, peak, wall = many(arguments.files, Path(files))

    # Only now: a child's peak memory counts that of the process it was forked from.
    from dslint.facts import Facts
    from dslint.lint.document import lint_text
    from dslint.registry.rules import default_rules

    text = CONFIG.read_text(encoding="utf-8")
    in_process = warm(lambda: lint_text(text, "c.json", Facts(), default_rules()))
    if arguments.json:
        of = {name: round(rows[DSLINT].median / row.median, 3) for name, row in rows.items()}
        cold_rows = {name: {"cpu_ms": row.cpu, "peak_mib": max(row.memory), "dslint_over_it": of[name]} for name, row in rows.items()}
        whole = {"count": arguments.files, "ms_each": each, "peak_mib": peak}
        print(json.dumps({"cold": cold_rows, "warm_ms": in_process, "files": whole}))
        return
    print_cold(rows, arguments.runs)
    print(f"warm, one file again in one process: {in_process:.2f} ms")
    print(f"{arguments.files} files in one call: {each:.2f} ms of CPU a file, {wall:.1f} s in all, peak {peak:.0f} MiB")


def print_cold(rows: dict[str, Measured], runs: int) -> None:
    """The table of the cold processes: CPU time, memory, and what dslint costs compared with each."""
    columns = f"{'median':>8}{'min':>7}{'max':>7}{'peak MiB':>10}{'dslint / it':>13}{'target':>8}"
    print(f"{f'cold, one file, CPU ms over {runs} runs':40}{columns}")
    targets = {CLICK: "1.70", SMALL: "0.30"}
    for row in rows.values():
        ratio = "" if row.name == DSLINT else f"{rows[DSLINT].median / row.median:.2f}"
        times = f"{row.median:8.0f}{min(row.cpu):7.0f}{max(row.cpu):7.0f}{max(row.memory):10.0f}"
        print(f"  {row.name:38}{times}{ratio:>13}{targets.get(row.name, ''):>8}")


if __name__ == "__main__":
    main()
