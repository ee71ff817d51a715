"""What the real DeepSpeed prints is diagnosed: jobs that finish, crash, overflow, run out of memory, or wait for a rank."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from dslint.diagnose.diagnose import diagnose
from dslint.diagnose.diagnosis import Diagnosis, End
from dslint.diagnose.reading import LogSource
from tests.diagnose.logs import notices
from tests.releases.test_old_release import environment

pytestmark = [pytest.mark.deepspeed, pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")]

JOB = Path(__file__).parent / "own_job.py"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def job(end: str, ranks: int = 1, python: str = sys.executable, source: str = "") -> Diagnosis:
    """The diagnosis of what rank 0 of a job prints, on the installed DeepSpeed or on that of a source folder."""
    world = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    done = subprocess.run(
        [python, JOB, end],
        env={**os.environ, **world, "PYTHONUNBUFFERED": "1", **({"PYTHONPATH": source} if source else {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=280,
    )
    (found,) = diagnose([LogSource("job.log", io.BytesIO(done.stdout))])
    return found


def test_a_job_that_finishes() -> None:
    found = job("finished")
    assert (found.outcome.end, found.causes, found.notices) == (End.FINISHED, [], [])
    facts = found.job
    known = facts.ranks(), facts.stage()
    assert [value.value for value in known if value] == [1, 2]
    assert (facts.get("optimizer"), facts.get("dtype"), facts.get("params")) == ("AdamW", "bfloat16", 16897)
    assert facts.setting("zero_optimization", "stage") == 2
    assert [event.values["step"] for event in facts.steps if "loss" in event.values] == ["0", "1", "2", "3"]


def test_a_job_that_crashes() -> None:
    found = job("crash")
    assert found.outcome.end is End.FAILED
    (cause,) = found.causes
    assert (cause.kind, cause.rank) == ("training", 0)
    assert "mat1 and mat2 shapes cannot be multiplied" in cause.title
    assert any("own_job.py" in sentence for sentence in cause.why)


def test_a_job_that_overflows() -> None:
    found = job("overflow")
    assert found.outcome.end is End.FINISHED
    assert notices(found) == ["overflow"]
    assert "DS302" in [finding.code for finding in found.findings]


def test_a_job_without_enough_host_memory() -> None:
    found = job("memory")
    assert (found.outcome.end, [cause.kind for cause in found.causes]) == (End.FAILED, ["host-memory"])
    assert "262,144 GiB" in found.causes[0].title


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are those of Linux")
def test_a_job_under_a_memory_limit() -> None:
    found = job("limit")
    assert (found.outcome.end, [cause.kind for cause in found.causes]) == (End.FAILED, ["host-memory"])


@pytest.mark.release_sources
def test_jobs_of_an_older_release(tmp_path: Path) -> None:
    python, source = environment("0.16.9", tmp_path / "env")
    ends = {end: job(end, python=python, source=source) for end in ("finished", "crash", "memory")}
    assert {found.job.get("release") for found in ends.values()} == {"0.16.9"}
    assert ends["finished"].outcome.end is End.FINISHED
    assert (ends["finished"].job.get("dtype"), ends["finished"].job.setting("zero_optimization", "stage")) == ("bfloat16", 2)
    assert [[cause.kind for cause in ends[end].causes] for end in ("crash", "memory")] == [["training"], ["host-memory"]]


def test_a_job_with_a_missing_rank() -> None:
    found = job("finished", ranks=2)
    assert found.outcome.end is End.FAILED
    assert any("1 of 2" in sentence for sentence in found.causes[0].why)
