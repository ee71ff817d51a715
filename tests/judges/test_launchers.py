"""What is read of generated launch commands agrees with what the launchers start; `python -m tests.judges` asks them with a fresh seed."""

from __future__ import annotations

import json

import pytest

from tests.judges import launchers
from tests.judges.commands import case

READ = 0.88
"""The least part of ranks, machines and programs that is read; what a launcher takes from the machine is not known."""


@pytest.mark.parametrize("step", [pytest.param(4, id="every fourth"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_recorded_answers(step: int) -> None:
    """`python -m tests.judges launchers --record` asks the launchers again, after a change of the generator."""
    recorded = dict([*json.loads(launchers.RECORDED.read_text(encoding="utf-8")).items()][::step])
    verdicts = {seed: launchers.compare(case(int(seed)), answer) for seed, answer in recorded.items()}
    assert {seed: wrong for seed, (_, _, wrong) in verdicts.items() if wrong} == {}
    found, read = (sum(one[index] for one in verdicts.values()) for index in (0, 1))
    assert found > 300 / step
    assert read > READ * found


@pytest.mark.integrations
@pytest.mark.skipif(bool(launchers.missing()), reason=launchers.missing())
def test_the_launchers_still_say_so() -> None:
    recorded = json.loads(launchers.RECORDED.read_text(encoding="utf-8"))
    seeds = list(recorded)[:40]
    assert launchers.answers([case(int(seed)) for seed in seeds]) == [recorded[seed] for seed in seeds]
