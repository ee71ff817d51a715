"""What dslint says of drawn jobs agrees with what the real frameworks did; `python -m tests.frameworks.ask NAME --record` asks them again."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.frameworks.ask import RECORDS, recorded
from tests.frameworks.getters import LIBRARIES, NAME, compared
from tests.frameworks.score import verdicts

NAMED = 0.97
"""The least part of what raises that an error names as a crash: 54 of 55 for TRL, 63 of 64 for axolotl, all for the others. The aim is 0.95."""

FIRST = 0.97
"""The least part of it where the first error is the one that the framework raises: as many. The aim is 0.95."""

KNOWN = 0.95
"""The least part of the keys of the final config that are known."""


@pytest.mark.parametrize("framework", sorted({path.name.partition(".")[0] for path in RECORDS.glob("*.jsonl.gz")} - {NAME}))
def test_recorded_answers(framework: str) -> None:
    found = verdicts(recorded(framework))
    raising, running = [one for one in found if one.job.raises], [one for one in found if not one.job.raises]
    assert len(raising) > 10
    assert len(running) > 10
    assert {one.job.id: [finding["message"] for finding in one.said.findings] for one in running if one.named == "error"} == {}
    assert {one.job.id: one.different for one in running if one.different} == {}
    assert sum(one.named == "error" for one in raising) >= NAMED * len(raising)
    assert sum(one.right for one in raising) >= FIRST * len(raising)
    known = sum(len(one.equal) for one in running)
    assert known >= KNOWN * (known + sum(len(one.unknown) + len(one.lost) for one in running))


def test_the_getters_of_the_engine_say_the_same() -> None:
    found = compared(recorded(NAME))
    assert Counter(one.job.framework for one in found).keys() == {*LIBRARIES}
    verdicts = [(one.job.id, key, text) for one in found for key, text in one.keys.items()]
    assert [one for one in verdicts if one[2] not in ("equal", "unknown")] == []
    assert sum(text == "equal" for *_, text in verdicts) >= 0.97 * len(verdicts)
