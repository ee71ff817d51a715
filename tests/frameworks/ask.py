"""Ask a real framework about drawn jobs, and compare dslint with it.

    python -m tests.frameworks.ask transformers --count 300 --seed 7 [--python ENV/bin/python] [--list] [--record]

The environment needs the framework, deepspeed and a CPU build of torch, in the releases that the jobs of `tests/frameworks/drawn/` pin, and
neither torchvision nor torchaudio. Without `--python` it is this one.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.frameworks.drawn import FRAMEWORKS, draw
from tests.frameworks.jobs import DATA, Job
from tests.frameworks.score import listing, table, verdicts

RECORDS = Path(__file__).parent / "records"


_OF_THIS_MACHINE = ("There are currently no available devices found", "No package metadata was found for")
"""Errors that a job on GPUs does not have, or one with all packages that it asks for."""


def answers(framework: str, jobs: list[Job], python: str = sys.executable) -> Iterator[Job]:
    """The jobs with what the framework did. A job that died is left out, and one that only misses a GPU."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "data").mkdir()
        for name, text in DATA.items():
            (folder / name).write_text(text, encoding="utf-8")
        command = [python, "-W", "ignore", str(Path(__file__).parent / "run_jobs.py"), framework, str(folder)]
        with (folder / "errors").open("w+") as errors:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=scratch)
            assert process.stdin is not None
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                errors.seek(0)
                raise RuntimeError(f"{framework} did not start: {errors.read()[-3000:]}")
            for job in jobs:
                place = folder / job.id
                _lay_out(job, folder, place)
                print(json.dumps({**job._asdict(), "folder": str(place)}), file=process.stdin, flush=True)
                line = (
                    process.stdout.readline()
                    .replace(f"{place}/", "")
                    .replace(str(place), ".")
                    .replace(str(Path(python).parent.parent), "ENV")
                )
                answer = json.loads(line)
                shutil.rmtree(place)
                if answer["outcome"] != "died" and not any(text in (answer.get("error") or "") for text in _OF_THIS_MACHINE):
                    yield job._replace(**answer)
            process.kill()  # some frameworks have threads that would not end
            process.wait()


def _lay_out(job: Job, fixtures: Path, place: Path) -> None:
    for name in ("model", "data"):
        shutil.copytree(fixtures / name, place / name)
    for name, text in job.files.items():
        (place / name).write_text(text, encoding="utf-8")


def record(framework: str, jobs: list[Job]) -> None:
    """Write jobs with their answers, for `pytest` to replay."""
    RECORDS.mkdir(exist_ok=True)
    text = "".join(json.dumps(job._asdict(), separators=(",", ":")) + "\n" for job in jobs)
    (RECORDS / f"{framework}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def recorded(framework: str) -> list[Job]:
    """The jobs whose answers are in the repository."""
    text = gzip.decompress((RECORDS / f"{framework}.jsonl.gz").read_bytes()).decode()
    return [Job(**json.loads(line)) for line in text.splitlines()]


def main() -> None:
    """Print the comparison as a table, with `--list` every disagreement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=sorted(FRAMEWORKS))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6, 10**9))
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="the interpreter of the framework's environment")
    parser.add_argument("--list", action="store_true", help="list the disagreements")
    parser.add_argument("--record", action="store_true", help="record the answers that plain pytest replays")
    parser.add_argument("--out", type=Path, help="write the jobs with their answers as JSON lines")
    given = parser.parse_args()
    jobs = [draw(given.framework, number) for number in range(given.seed, given.seed + given.count)]
    done = []
    with given.out.open("w", encoding="utf-8") if given.out else contextlib.nullcontext() as out:
        for job in answers(given.framework, jobs, str(given.python.absolute())):
            done.append(job)
            if out is not None:
                print(json.dumps(job._asdict()), file=out, flush=True)  # a run that is stopped has what it asked so far
    if given.record:
        record(given.framework, done)
    found = verdicts(done)
    if given.list:
        print("\n".join(sorted(listing(found))))
    print(f"seeds {given.seed} to {given.seed + given.count - 1}, {len(jobs) - len(done)} of {len(jobs)} jobs without an answer")
    print(table(found))
    if any(one.different or (one.named == "error" and not one.job.raises) for one in found):
        raise SystemExit("A false error, or a wrong value.")


if __name__ == "__main__":
    main()
