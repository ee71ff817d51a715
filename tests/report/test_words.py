"""What a report says: what DeepSpeed does about a finding, and what was not judged."""

from __future__ import annotations

import pytest

from dslint.config.context import Context
from dslint.diagnostics import Effect, Phase
from dslint.lint.results import FileResult, Results
from dslint.not_judged import NotJudged, Why
from dslint.report.words import consequence
from dslint.settings.table import FORMATS

from .scenes import written


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


@pytest.mark.parametrize("output_format", FORMATS)
def test_why_something_was_not_judged_is_said(output_format: str) -> None:
    """The report that GitLab reads has room for problems only."""
    reason = NotJudged(Why.NO_CONFIG)
    results = Results(Context(), (FileResult("train.py", "python", None, not_judged=(reason,)),))
    said = " ".join(written(results, output_format).split())
    assert (reason.reason in said) == (output_format != "gitlab"), said
