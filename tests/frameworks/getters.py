"""Compare what `show` says with what the getters of DeepSpeed's own engine say, for jobs of the Trainer, Accelerate and Lightning.

    python -m tests.frameworks.getters --count 500 --seed 7 [--record]

Jobs are drawn until this many of them have reached the engine: a third of each. It runs where all three are installed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from tests.frameworks.ask import answers, record
from tests.frameworks.drawn import draw
from tests.frameworks.jobs import Job, lay_out
from tests.frameworks.score import in_fork, same, warm_up

NAME = "getters"
"""The record of these jobs."""

LIBRARIES = ("transformers", "accelerate", "lightning")


class Compared(NamedTuple):
    """A job, and by the keys that a getter of the engine answers for: "equal", "unknown", or what `show` says instead."""

    job: Job
    keys: dict[str, str]


def asked(count: int, seed: int) -> Iterator[Job]:
    """Drawn jobs that have reached the engine, a third of each library."""
    for place, library in enumerate(LIBRARIES):
        wanted, number = (count + place) // len(LIBRARIES), seed
        while wanted > 0:
            jobs = [draw(library, one) for one in range(number, number + 2 * wanted)]
            number += len(jobs)
            for job in answers(library, jobs):
                if job.engine is not None and wanted > 0:
                    wanted -= 1
                    yield job._replace(config=None, error=None)


def compare(job: Job) -> Compared:
    """What `show` says of the script of a job, compared with the engine."""
    with tempfile.TemporaryDirectory() as scratch:
        lay_out(job, Path(scratch))
        text = in_fork(scratch, ["show", "run.sh", "--output-format", "json"])
    listed = json.loads(text)["keys"] if text[:1] == "{" else []
    shown = {".".join(map(str, one["path"])): (one["value"], one["known"]) for one in listed}
    said = {
        key: value for key, value in (job.engine or {}).items() if key in shown or value is not False
    }  # `show` lists no key that is off
    return Compared(job, {key: _verdict(value, *shown.get(key, (None, False))) for key, value in said.items()})


def _verdict(value: Any, shown: Any, known: bool) -> str:
    if not known:
        return "unknown"
    return "equal" if same(value, shown) else f"{shown!r} for {value!r}"


def compared(jobs: Iterable[Job], workers: int = 2) -> list[Compared]:
    """All jobs, by several processes."""
    jobs = list(jobs)
    warm_up(jobs)
    with get_context("fork").Pool(workers) as pool:
        return pool.map(compare, jobs, chunksize=4)


def table(found: list[Compared]) -> str:
    """By key and by library: how many values are equal, unknown and wrong."""
    lines = [f"{'':52} equal unknown wrong"]
    for library in LIBRARIES:
        mine = [one for one in found if one.job.framework == library]
        lines.append(_row(f"{library}, {len(mine)} jobs", chain.from_iterable(one.keys.values() for one in mine)))
    keys = dict.fromkeys(key for one in found for key in one.keys)
    lines += [_row(key, (one.keys[key] for one in found if key in one.keys)) for key in keys]
    return "\n".join(lines)


def _row(name: str, verdicts: Iterable[str]) -> str:
    counts = Counter("wrong" if one not in ("equal", "unknown") else one for one in verdicts)
    return f"{name:52} {counts['equal']:5} {counts['unknown']:7} {counts['wrong']:5}"


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6, 10**9))
    parser.add_argument("--record", action="store_true", help="record the answers that plain pytest replays")
    given = parser.parse_args()
    jobs = list(asked(given.count, given.seed))
    if given.record:
        record(NAME, jobs)
    found = compared(jobs)
    wrong = [f"{one.job.id} {key}: {text}" for one in found for key, text in one.keys.items() if text not in ("equal", "unknown")]
    print("\n".join([f"seed {given.seed}", table(found), *wrong]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
