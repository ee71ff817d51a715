"""Kills `dslint tune --measure` at each line of its code, and lets it go on: `killed.py FOLDER PART PARTS`.

A child of this program is killed where it is about to run a line of `dslint/tune` for the first time. Then nothing of it may run any more,
and the next run must end with the same result. It prints the number of places that were tried.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import dslint.tune
from dslint.tune.measure import ResultsFile, remove_configs, summary
from dslint.tune.processes import marked
from tests.tune.test_measure import CONFIG, measured

CODE = str(Path(dslint.tune.__file__).parent)
LONGEST = 20.0

TRIES = 3
"""Runs that may miss a line before it counts as one that this machine does not reach today: a busy one waits for output where another does
not."""

Place = tuple[str, int]


def run(folder: Path) -> str:
    """What the command does: measure, say which config is best, remove the configs of the trials."""
    out = folder / "out.jsonl"
    results = ResultsFile(str(out))
    found, _ = measured(folder / "ds.json", out)
    sentence = summary(found, results)
    remove_configs(results)
    return sentence


def traced(folder: Path, at: Callable[[Place], object]) -> None:
    """Run it, with a call of `at` before each line of its code."""

    def lines(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            at((frame.f_code.co_filename, frame.f_lineno))
        return lines

    sys.settrace(lambda frame, event, _: lines if frame.f_code.co_filename.startswith(CODE) else None)
    try:
        run(folder)
    finally:
        sys.settrace(None)


def places(folder: Path) -> list[Place]:
    """The lines that a run without disturbance runs."""
    found: dict[Place, None] = {}
    traced(prepared(folder), found.setdefault)
    return list(found)


def prepared(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return folder


def killed_at(folder: Path, place: Place) -> bool:
    """Run it in a child that is killed before a line. False if it does not come there: it waits for output only where there is none yet."""
    child = os.fork()
    if not child:
        traced(folder, lambda here: os.kill(os.getpid(), signal.SIGKILL) if here == place else None)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def marks(folder: Path) -> set[str]:
    """The marks of all trials that were started."""
    try:
        text = (folder / "out.jsonl").read_text(encoding="utf-8")
    except FileNotFoundError:
        return set()
    return {json.loads(line)["mark"] for line in text.splitlines() if '"mark"' in line}


def ended(folder: Path) -> bool:
    """Whether all processes of the trials end by themselves."""
    last = time.monotonic() + LONGEST
    while any(list(marked(mark)) for mark in marks(folder)):
        if time.monotonic() > last:
            return False
        time.sleep(0.05)
    return True


def main() -> None:
    """Try a part of the places."""
    folder, part, parts = Path(sys.argv[1]) / "run", int(sys.argv[2]), int(sys.argv[3])
    tried, missed = places(folder)[part::parts], []
    for place in tried:
        if not any(killed_at(prepared(folder), place) for _ in range(TRIES)):
            missed.append(place)
            continue
        assert ended(folder), f"killed at {place}: processes are left"
        sentence = run(folder)
        assert sentence.startswith("Fastest: config 1, 0.02 s per step"), f"killed at {place}: {sentence}"
        assert ended(folder), place
        left = sorted(path.name for path in folder.iterdir())
        assert left == ["ds.json", "out.jsonl"], f"killed at {place}: {left}"
    assert len(missed) <= len(tried) / 10, f"not reached: {missed}"
    print(len(tried) - len(missed))


if __name__ == "__main__":
    main()
