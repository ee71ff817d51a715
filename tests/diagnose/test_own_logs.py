"""What the real DeepSpeed prints is diagnosed: jobs that finish, crash, overflow, run out of memory, or wait for a rank."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dslint.diagnose.diagnose import diagnose
from dslint.diagnose.diagnosis import Diagnosis, End
from dslint.diagnose.reading import Source
from tests.diagnose.logs import notices

pytest.importorskip("deepspeed")
pytestmark = pytest.mark.deepspeed

JOB = Path(__file__).parent / "own_job.py"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def job(end: str, ranks: int = 1) -> Diagnosis:
    """The diagnosis of what rank 0 of a job prints."""
    world = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    done = subprocess.run(
        [sys.executable, JOB, end],
        env={**os.environ, **world, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=280,
    )
    (found,) = diagnose([Source("job.log", io.BytesIO(done.stdout))])
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
    assert (cause.kind, cause.rank) == ("crash", 0)
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
    assert "262144.00 GiB" in found.causes[0].title


def test_a_job_with_a_missing_rank() -> None:
    found = job("finished", ranks=2)
    assert found.outcome.end is End.FAILED
    assert any("1 of 2" in sentence for sentence in found.causes[0].why)
