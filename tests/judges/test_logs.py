"""Causes that are put into logs are found again: some of the cases of `python -m tests.judges logs`."""

from __future__ import annotations

from tests.cases import table
from tests.judges.logs import made, wrong

KNOWN = 120
"""The number of cases that are diagnosed here. `python -m tests.judges logs` asks for more."""


@table("seed", range(KNOWN))
def test_a_cause_is_found_in_any_log(seed: int) -> None:
    case = made(seed)
    assert wrong(case) == "", f"{case.how}\n{case.text}"
