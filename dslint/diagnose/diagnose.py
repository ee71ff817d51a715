"""Diagnoses jobs from their logs: reads, reconstructs, finds the cause."""

from __future__ import annotations

from collections.abc import Iterable

from dslint.diagnose.causes import find_causes, find_notices
from dslint.diagnose.diagnosis import Diagnosis
from dslint.diagnose.events import EventReader
from dslint.diagnose.fold import jobs_of
from dslint.diagnose.job import Job
from dslint.diagnose.outcome import outcome_of
from dslint.diagnose.reading import Source


def diagnose(sources: Iterable[Source]) -> list[Diagnosis]:
    """The diagnosis of each job in some logs, in the order of their start.

    Raises:
        OSError: a log cannot be read.
    """
    return [diagnose_job(job) for job in jobs_of(EventReader().read(sources))]


def diagnose_job(job: Job) -> Diagnosis:
    """The diagnosis of one job."""
    outcome = outcome_of(job)
    return Diagnosis(job, outcome, find_causes(job, outcome), find_notices(job))
