"""The phases of a step, and ranks that are slower than others."""

from __future__ import annotations

import pytest

from dslint.diagnose.summary import rows
from tests.diagnose.logs import CONFIG, FINISHED, STARTED, diagnosed, notices

NEW = "[Rank 0] time (ms) | fwd: {0} | bwd: {1} | bwd_inner: 1.00 | bwd_allreduce: {2} | step: {3}"
OLD = "[2023-05-01 10:00:00,000] [INFO] [logging.py:75:log_dist] [Rank 0] rank=0 time (ms) | forward: {0} | backward: {1} | backward_inner: 1.00 | backward_allreduce: {2} | step: {3}"
SPREAD = "    forward-compute ................................: ({0}, {1})"


@pytest.mark.parametrize("line", [NEW, OLD])
def test_the_phases_of_a_step_are_told_without_the_first_one(line: str) -> None:
    steps = [line.format("900.0", "900.0", "5.0", "900.0"), *[line.format("10.0", "30.0", "2.0", "4.0")] * 3]
    found = diagnosed(STARTED, *steps, FINISHED)
    (row,) = [row for row in rows(found.job) if row.name == "phases"]
    assert row.value == "forward 10 ms, backward 30 ms (2 ms to reduce gradients), step 4 ms"
    assert notices(found) == []


def test_a_step_that_two_loggers_time_is_one_step() -> None:
    """DeepSpeed's engine and Megatron's loop print a line each."""
    own, megatron = (
        "steps: {0} loss: 2.1 iter time (s): {1:.3f} samples/sec: 0.5",
        "iteration {0}/ 4 | elapsed time per iteration (ms): {2}",
    )
    lines = [(own + "\n" + megatron).format(step, seconds, seconds * 1000) for step, seconds in ((1, 21.5), (2, 6.5), (3, 6.5), (4, 6.5))]
    found = diagnosed(STARTED, *lines, FINISHED)
    (row,) = [row for row in rows(found.job) if row.name == "step time"]
    assert row.value == "6.5 s; 1 of 4 steps took more than three times as long"


@pytest.mark.parametrize(
    ("reduction", "step", "title"),
    [("24.0", "5.0", "Reducing gradients takes 53% of a step"), ("1.0", "60.0", "The optimizer's step takes 60% of a step")],
)
def test_a_phase_that_takes_much_of_a_step_is_worth_a_notice(reduction: str, step: str, title: str) -> None:
    found = diagnosed(STARTED, *[NEW.format("10.0", "30.0", reduction, step)] * 3, FINISHED)
    assert [notice.title for notice in found.notices] == [title]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("100.0", "180.0")] * 3, ["slow"]),
        ([("100.0", "110.0")] * 3, []),
        ([("1.0", "40.0")] * 3, []),
        ([("100.0", "180.0"), *[("100.0", "110.0")] * 5], []),
    ],
)
def test_ranks_that_are_slower_than_others(pairs: list[tuple[str, str]], expected: list[str]) -> None:
    assert notices(diagnosed(STARTED, *[SPREAD.format(*pair) for pair in pairs], FINISHED)) == expected


def test_measured_memory_without_an_estimate_says_why() -> None:
    memory = "After initializing ZeRO optimizer\nMA 2.00 GB         Max_MA 3.00 GB         CA 4.00 GB         Max_CA 4 GB"
    found = diagnosed(STARTED, memory, FINISHED)
    assert [(one.moment.now, one.estimated) for one in found.measured] == [(2.0, None)]
    assert found.not_estimated == "Not estimated: the log does not print the config; pass --config FILE."
    assert diagnosed(STARTED, FINISHED).not_estimated == ""


def test_a_log_that_ends_as_deepspeed_starts_is_one_of_deepspeed() -> None:
    found = diagnosed(
        "[2024-05-01 10:00:00,000] [INFO] [comm.py:668:init_distributed] Initializing TorchBackend in DeepSpeed with backend nccl"
    )
    assert found.outcome.sentence.startswith("The log ends")


@pytest.mark.parametrize(
    ("stage", "overlap", "advice"),
    [
        (0, "", " Accumulate more micro batches per step."),
        (1, "", " Set overlap_comm to true. Accumulate more micro batches per step."),
        (2, "", " Set overlap_comm to true."),
        (2, "true", ""),
        (3, "", ""),  # which overlaps by default
        (3, "false", " Set overlap_comm to true."),
        (None, "", " Set overlap_comm to true. Below ZeRO stage 2, accumulate more micro batches per step."),
    ],
)
def test_slow_reductions_get_advice_that_holds_at_their_stage(stage: int | None, overlap: str, advice: str) -> None:
    config = CONFIG.format(stage=stage).replace('"stage"', f'"overlap_comm": {overlap},\n        "stage"' if overlap else '"stage"')
    found = diagnosed(*[config] * (stage is not None), *[NEW.format("10.0", "90.0", "70.0", "5.0")] * 4, FINISHED)
    notice = next(one for one in found.notices if one.title.startswith("Reducing gradients"))
    assert notice.advice == (f"Check that NCCL uses the fast network (NCCL_DEBUG=INFO).{advice}",)
