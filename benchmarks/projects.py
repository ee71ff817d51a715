"""Measure what `dslint check .` costs on whole projects, next to what Python needs to parse their programs.

    python benchmarks/projects.py FOLDER [FOLDER ...]

Each folder is the source of a project, such as an unpacked source distribution. The allowance is three times the CPU time of `ast.parse`
for the files that mention DeepSpeed, and 0.1 ms for each other file. CPU time is that of the whole process (user and system), one worker.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

TIMES = 3
EACH_OTHER = 0.1e-3


def allowance(folder: Path) -> tuple[int, float, float]:
    """The number of files, the CPU seconds of parsing those that mention DeepSpeed, and the seconds that a check may take."""
    files = [file for file in folder.rglob("*") if file.is_file() and ".git" not in file.parts]
    parsed, seconds = 0, 0.0
    for file in files:
        data = file.read_bytes()
        if file.suffix != ".py" or b"deepspeed" not in data.lower():
            continue
        parsed += 1
        start = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(data)
        except (SyntaxError, ValueError):
            continue
        finally:
            seconds += time.process_time() - start
    return len(files), seconds, TIMES * seconds + EACH_OTHER * (len(files) - parsed)


def checked(folder: Path) -> float:
    """The CPU seconds of `dslint check .` in a folder. The first of two checks may compile dslint, as the installer of a package does."""
    return min(_checked(folder), _checked(folder))


def _checked(folder: Path) -> float:
    command = [sys.executable, "-m", "dslint", "check", ".", "--isolated", "--jobs", "1"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"the check of {folder} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    print(f"{'project':24}{'files':>8}{'parse s':>10}{'allowed s':>11}{'check s':>10}{'ratio':>8}")
    for folder in parser.parse_args().folders:
        count, parse, allowed = allowance(folder)
        took = checked(folder)
        print(f"{folder.name:24}{count:8,}{parse:10.2f}{allowed:11.2f}{took:10.2f}{took / allowed:8.1f}")


if __name__ == "__main__":
    main()
