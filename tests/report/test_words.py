"""What a report says that DeepSpeed does about a finding."""

from __future__ import annotations

import pytest

from dslint.diagnostics import Effect, Phase
from dslint.report.words import consequence


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("DS706", "The job runs out of GPU memory"),
        ("DS708", "The job runs out of host memory"),
        ("DS701", "DeepSpeed uses more memory than necessary"),
    ],
)
def test_a_job_that_does_not_fit_is_not_called_wasteful(code: str, said: str) -> None:
    assert consequence(Effect.MEMORY, None, code=code) == said


@pytest.mark.parametrize("code", ["DS964", "DS985"])
@pytest.mark.parametrize("phase", [Phase.SAVE, Phase.STEP, Phase.LATER])
def test_what_waits_for_ever_does_not_crash(code: str, phase: Phase) -> None:
    assert consequence(Effect.CRASH, phase, code=code) == "The run hangs"
    assert consequence(Effect.CRASH, phase, certain=False, code=code) == "The run may hang"
