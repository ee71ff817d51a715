"""Models and options that the estimate was not made with: what it says of them, and how wrong that is."""

from __future__ import annotations

import statistics
from collections import defaultdict

import pytest

from dslint.memory.activations import operations
from dslint.memory.engine import optimizer_bytes
from dslint.memory.estimate import estimate
from dslint.memory.host import host_memory
from tests.cases import table
from tests.memory.fresh import Fresh, fresh

ROWS = fresh()


def of_set(name: str) -> list[Fresh]:
    return [row for row in ROWS if row.data["set"] == name]


def test_the_table_of_errors() -> None:
    sets: dict[str, list[Fresh]] = defaultdict(list)
    for row in ROWS:
        sets[row.data["set"]].append(row)
    print(f"\n{'set':<16} rows  peak: mean |error|  median  worst")
    for name, rows in sets.items():
        errors = [row.peak_error for row in rows]
        sizes = list(map(abs, errors))
        print(f"{name:<16} {len(rows):>4}  {statistics.mean(sizes):>18.2f} {statistics.median(sizes):>7.2f} {max(errors, key=abs):>6.2f}")


MISSED = "drawn-7-s3"
"""Fetched ahead and let go at once (a reuse distance of 0), its parameters are gathered again before the loss: 12 % more than is said."""


@table("row", ROWS, ids=lambda row: row.data["name"])
def test_a_row(row: Fresh) -> None:
    assert row.model.size == row.data["P"]
    assert abs(row.steady_error) < 0.1
    found = estimate(row.model, row.plan, ranks=[row.data["rank"]])
    low, high = found.device.low - found.allowance.low, found.device.high - found.allowance.high
    if row.data["name"] == MISSED:
        assert row.peak_error == pytest.approx(-11.6, abs=0.1)
    elif found.phase != "init" and not row.plan.torch_adam and row.plan.optimizer != "muon":
        # the device takes torch's Adam a tensor at a time, a GPU lists of them; the groups of Muon are stepped one after the other
        assert low <= row.measured <= high
    if row.plan.optimizer_device:
        ours = host_memory(row.plan, row.run.layout, optimizer_bytes(row.model, row.plan), operations(row.model, row.plan))
        assert ours.total == pytest.approx(row.data["steady_host"], rel=0.01)


@pytest.mark.parametrize("name", ["architectures", "options", "sealed", "further", "drawn"])
def test_mean_error_of_the_peak(name: str) -> None:
    errors = [abs(row.peak_error) for row in of_set(name)]
    assert len(errors) >= 12
    assert statistics.mean(errors) < 3
