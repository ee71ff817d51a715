"""Each target on mutated inputs. The scheduled job runs longer, by fresh seeds."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.fuzz.run import GROWTH, Budget, input_of, run
from tests.fuzz.targets import TARGETS

BUDGET = Budget(seconds=60, cases=400)
"""By number, not by time: a faster machine must not meet inputs that no other has met. The seconds end only what hangs."""

SEED = 15
"""The same inputs in each run: a change is judged by what it does, not by the seed that it meets."""


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_fails(target: str) -> None:
    outcome = run([target], SEED, BUDGET)
    assert not outcome.failures, "\n".join(
        f"python -m tests.fuzz --seed {SEED} --target {one.target} --case {one.number}: {one}" for one in outcome.failures[:10]
    )
    assert outcome.counts[target] >= 50
    assert outcome.growth < GROWTH


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_case_is_the_same_each_time(target: str) -> None:
    first, _ = input_of(target, SEED, 3)
    again, _ = input_of(target, SEED, 3)
    others = {input_of(target, SEED, number)[0] for number in range(20)}
    assert first == again
    assert len(others) > 5


def test_a_defect_is_found_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> None:
        raise KeyError(text[:1])

    monkeypatch.setattr("tests.fuzz.targets.read_hostfile", fail)
    said: list[str] = []
    outcome = run(["hostfiles"], SEED, Budget(cases=10), said.append)
    assert len(outcome.failures) == 10
    assert said[0].startswith("hostfiles, case 0: KeyError")
    assert len(said) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither alarms nor named pipes")
def test_an_input_that_waits_for_ever_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(text: str) -> None:
        (tmp_path / "pipe").read_text(encoding="utf-8")  # nobody writes into it

    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr("tests.fuzz.run.WAIT", 0.1)
    monkeypatch.setattr("tests.fuzz.targets.read_hostfile", wait)
    outcome = run(["hostfiles"], SEED, Budget(cases=1))
    assert [one.message for one in outcome.failures] == ["Waits: still runs after 0.1 s"]
