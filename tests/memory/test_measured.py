"""What dslint says is what was measured on the real engine: every row, within the errors that are stated here."""

from __future__ import annotations

import statistics
from collections import defaultdict

import pytest

from dslint.memory.activations import operations
from dslint.memory.engine import optimizer_bytes
from dslint.memory.estimate import estimate
from dslint.memory.host import host_memory
from tests.memory.measurements import Row, kind, measured

WORST_STEADY, WORST_PEAK, WORST_HOST = 0.1, 2.0, 0.1
"""Percent, in any row."""

ROWS = measured()


def table(rows: tuple[Row, ...]) -> str:
    """Errors in percent by kind: steady and peak, median of their sizes and the worst."""
    kinds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        kinds[kind(row)].append((row.error(row.run.steady.total, "steady_dev"), row.error(row.peak, "peak_dev")))
    lines = [f"{'kind':<36} rows  steady: median  worst  peak: median  worst"]
    for name, errors in sorted(kinds.items()):
        steady, peak = ([e[i] for e in errors] for i in (0, 1))
        figures = [statistics.median(map(abs, steady)), max(steady, key=abs), statistics.median(map(abs, peak)), max(peak, key=abs)]
        lines.append(f"{name:<36} {len(errors):>4}  {figures[0]:>14.2f} {figures[1]:>6.2f}  {figures[2]:>12.2f} {figures[3]:>6.2f}")
    return "\n".join(lines)


def test_all_rows_are_there() -> None:
    assert len(ROWS) == 188
    print("\n" + table(ROWS))


def test_parameters() -> None:
    assert all(row.model.size == row.data["P"] for row in ROWS)


def test_steady_state_of_every_row() -> None:
    assert [row.data for row in ROWS if abs(row.error(row.run.steady.total, "steady_dev")) > WORST_STEADY] == []


def test_peak_of_every_row() -> None:
    errors = [row.error(row.peak, "peak_dev") for row in ROWS]
    assert max(map(abs, errors)) < WORST_PEAK
    assert statistics.mean(map(abs, errors)) < 0.1


def test_the_phase_that_peaks() -> None:
    """The phase is the measured one, or its peak is within the error of the measured one's."""
    names = {"fwd": "forward", "bwd": "backward", "step": "step"}
    for row in ROWS:
        phase = names[row.data["peak_phase"]]
        assert abs(row.error(row.run.peaks[phase].total, "peak_dev")) < WORST_PEAK


@pytest.mark.parametrize(("phase", "ours", "worst"), [("fwd", "forward", 9.0), ("bwd", "backward", 6.0), ("step", "step", 4.0)])
def test_peaks_of_phases(phase: str, ours: str, worst: float) -> None:
    rows = [row for row in ROWS if phase in row.data["phase_peak_dev"]]
    if phase == "step":  # here without the calls of step between micro batches, where stage 1 still has all gradients
        rows = [row for row in rows if row.plan.stage != 1 or row.plan.accumulation == 1 or row.plan.optimizer_device]
    errors = [row.error(row.run.peaks[ours].total, row.data["phase_peak_dev"][phase]) for row in rows]
    assert max(map(abs, errors)) < worst
    assert statistics.mean(map(abs, errors)) < 0.5


def test_init() -> None:
    errors = [row.error(row.run.peaks["init"].total, "init_peak_dev") for row in ROWS]
    assert max(map(abs, errors)) < 2
    assert statistics.mean(map(abs, errors)) < 0.1


def test_host_memory() -> None:
    rows = [row for row in ROWS if row.plan.optimizer_device]
    assert len(rows) == 12
    for row in rows:
        states = optimizer_bytes(row.model, row.plan)
        ours = host_memory(row.plan, row.run.layout, states, operations(row.model, row.plan))
        assert abs(row.error(ours.total, "steady_host")) < WORST_HOST, row.data


def test_every_row_lies_within_the_printed_range() -> None:
    """The range without its allowance, which stands for what is no tensor and was not measured."""
    for row in ROWS:
        found = estimate(row.model, row.plan, ranks=[0])
        low, high = found.device.low - found.allowance.low, found.device.high - found.allowance.high
        if found.phase != "init":
            assert low <= row.data["peak_dev"] <= high, row.data
