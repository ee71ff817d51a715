"""Random trainings on the fake device, compared with the estimate phase by phase. `python -m tests.probe.matrix 300 SEED` runs more of them."""

from __future__ import annotations

import os

import pytest

from tests.probe.matrix import compared, drawn, shares
from tests.probe.running import needs_engine

COUNT = int(os.environ.get("DSLINT_MATRIX", "24"))
SEED = 7


def test_a_seed_gives_the_same_trainings() -> None:
    assert drawn(1, 2) == drawn(1, 2) != drawn(1, 3)
    assert len({drawn(3, number).question.text for number in range(40)}) > 30


@pytest.mark.slow
@needs_engine
def test_trainings_with_adam_are_within_3_percent_in_most_phases() -> None:
    results = [compared(drawn(SEED, number)) for number in range(COUNT)]
    assert sum(bool(one.errors) for one in results) >= 0.9 * COUNT, [one for one in results if not one.errors]
    far = [(one.name, one.errors) for one in results if abs(one.worst) > 0.1]
    usual = [one for one in results if "AdamW" in one.name and "fp32 gradients" not in one.name]
    assert shares(usual)[0.03] >= 0.8, far
    assert shares(usual)[0.1] == 1, far
    assert shares(results)[0.03] >= 0.5, far  # Muon and Adagrad are further off, see docs/memory.md
