"""What is read of configs that Hydra composes agrees with Hydra; `python -m tests.judges hydra` asks it with a fresh seed."""

from __future__ import annotations

import json

from tests.judges import hydra

READ = 0.7
"""The least part of the values that are known; `~key`, `+key=1` and nested packages leave all of a config open."""


def test_recorded_answers() -> None:
    """`python -m tests.judges hydra --record` asks Hydra again, after a change of the generator."""
    recorded = json.loads(hydra.RECORDED.read_text(encoding="utf-8"))
    verdicts = {seed: hydra.compare(hydra.Case(int(seed)), answer) for seed, answer in recorded.items()}
    assert {seed: wrong for seed, (_, _, wrong) in verdicts.items() if wrong} == {}
    found, read = (sum(one[index] for one in verdicts.values()) for index in (0, 1))
    assert found > 1_000
    assert read > READ * found
