"""A log that grows is followed until its job ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.config.context import Context
from dslint.diagnose import context as context_module
from dslint.diagnose import diagnose as diagnose_module
from dslint.diagnose.context import LogContext
from dslint.diagnose.diagnosis import Diagnosis, End
from dslint.diagnose.follow import GRACE, Item, follow
from dslint.diagnose.job import LoggedJob
from dslint.facts import NEWEST, Release
from tests.diagnose.logs import OOM, RETURNED, STARTED, traceback


def followed(log: Path, pieces: list[str]) -> tuple[list[Diagnosis], list[list[str]], list[dict[str, object]]]:
    """The diagnosis, what was said before each piece was written, and the typed facts."""
    told: list[list[str]] = [[]]
    typed: list[dict[str, object]] = []
    waiting = iter(pieces)
    log.write_text("")

    def wait() -> bool:
        piece = next(waiting, None)
        if piece is None:
            return False
        with log.open("a") as stream:
            stream.write(piece)
        told.append([])
        return True

    def tell(item: Item) -> None:
        if item.sentence:
            told[-1].append(item.sentence)
        else:
            typed.append(item.data)

    with log.open("rb") as stream:
        found = follow("job.log", stream, wait, tell)
    return found, told, typed


def test_what_comes_is_said_once(tmp_path: Path) -> None:
    pieces = [
        STARTED + "\n",
        "Iteration 1: loss=2.5\n",
        "Iteration 2: loss=na",
        "n\n",
        traceback(OOM) + "\n",
        RETURNED.format(code=1) + "\n",
    ]
    found, told, typed = followed(tmp_path / "job.log", pieces)
    assert typed == [{"name": "ranks", "value": 4}, {"name": "gpu_memory_bytes", "value": 84986665369}]
    assert told == [
        [],
        ["ranks: 4"],
        ["step 1, loss 2.5"],
        [],
        ["The loss is NaN from step 2 on", "step 2, loss nan"],
        ["GPU: 79.15 GiB", *told[5][1:]],
        [],
    ]
    assert len(told[5]) == 2
    assert "ran out of memory" in told[5][1]
    assert found[-1].outcome.end is End.FAILED


def test_a_job_is_judged_again_only_when_its_log_tells_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Release] = []

    def context_of(job: LoggedJob, given: LogContext) -> Context:
        context = context_module.context_of(job, given)
        judged.append(context.facts.deepspeed)
        return context

    monkeypatch.setattr(diagnose_module, "context_of", context_of)
    pieces = [STARTED + "\n", *["tokens\n"] * 5, "DeepSpeed info: version=0.18.2\n", *["tokens\n"] * 5]
    followed(tmp_path / "job.log", pieces)
    assert judged == [NEWEST, NEWEST, Release(0, 18, 2)]


def test_it_ends_by_itself_once_the_job_has_ended(tmp_path: Path) -> None:
    pieces = [STARTED + "\n" + traceback(OOM) + "\n" + RETURNED.format(code=1) + "\n", *[""] * 100]
    _, told, _ = followed(tmp_path / "job.log", pieces)
    assert len(told) == GRACE + 2
