"""Random trainings on the fake device, compared with the estimate phase by phase. `python -m tests.probe.matrix 300 SEED` runs more of them."""

from __future__ import annotations

import os

import pytest

from tests.probe import real
from tests.probe.matrix import compared, drawn, measured, recorded, shares
from tests.probe.running import needs_engine

COUNT = int(os.environ.get("DSLINT_MATRIX", "24"))
SEED = 7


def test_a_seed_gives_the_same_trainings() -> None:
    assert drawn(1, 2) == drawn(1, 2) != drawn(1, 3)
    assert len({drawn(3, number).question.text for number in range(40)}) > 30


def test_recorded_trainings_are_within_3_percent_in_every_phase() -> None:
    results = [compared(training, answer) for _, training, answer in recorded()]
    assert len(results) > 80
    far = [(one.name, one.errors, one.why) for one in results if not one.errors or abs(one.worst) > 0.03]
    assert shares(results)[0.03] >= 0.95, far
    assert shares(results)[0.1] == 1, far


def test_trainings_on_a_gpu_took_what_the_estimate_says() -> None:
    """docs/probe.md states these limits."""
    results = [(one, compared(one, answer)) for one, answer in real.recorded()]
    assert len(results) == 26
    for training, one in results:
        experts = any("experts" in key for key in training.question.model.data or {})
        training_only = {name: error for name, error in one.errors.items() if name != "initialize"}
        assert one.errors, (one.name, one.why)
        assert all(abs(error) <= (0.022 if experts else 0.003) for error in training_only.values()), (one.name, one.errors)
        assert abs(one.errors["initialize"]) <= 0.012, (one.name, one.errors)


@pytest.mark.slow
@needs_engine
def test_trainings_are_within_3_percent_in_most_phases() -> None:
    trainings = [drawn(SEED, number) for number in range(COUNT)]
    results = [compared(training, measured(training)) for training in trainings]
    assert sum(bool(one.errors) for one in results) >= 0.9 * COUNT, [one for one in results if not one.errors]
    far = [(one.name, one.errors) for one in results if abs(one.worst) > 0.1]
    assert shares(results)[0.03] >= 0.85, far
    assert shares(results)[0.1] >= 0.95, far
