"""Schedules of transformers that require arguments of their own."""

from __future__ import annotations

import pytest

from tests.diagnose.logs import diagnosed, traceback

INIT = ("/env/site-packages/transformers/integrations/deepspeed.py", 437, "deepspeed_init", "deepspeed_optim_sched(")
MAKE = ("/env/site-packages/transformers/optimization.py", 560, "get_scheduler", "return schedule_func(optimizer)")


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (
            "TypeError: get_wsd_schedule() missing 2 required positional arguments: 'num_stable_steps' and 'num_decay_steps'",
            '{"num_decay_steps": 200}',
        ),
        ("TypeError: get_wsd_schedule() missing 1 required positional argument: 'num_decay_steps'", '{"num_decay_steps": 200}'),
        ("ValueError: One of min_lr or min_lr_rate should be set through the `lr_scheduler_kwargs`", '{"min_lr_rate": 0.1}'),
    ],
)
def test_the_argument_that_is_missing_is_named(error: str, kept: str) -> None:
    """The frames lead through the function of the Trainer that compares its arguments with the config."""
    (cause,) = diagnosed(traceback(error, ("train.py", 14, "main", "trainer.train()"), INIT, MAKE)).causes
    assert kept in " ".join(cause.advice)
    assert "auto" not in str(cause)
