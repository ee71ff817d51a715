"""Runs the rules on the config of a job, with the facts of its log."""

from __future__ import annotations

from dslint.config.load import Loaded
from dslint.diagnose.job import LoggedJob, state_after_init
from dslint.diagnostics import Diagnostic, Phase, Severity
from dslint.lint.document import lint_loaded
from dslint.registry.rules import default_rules

SURVIVED_INIT = frozenset({Phase.LOAD, Phase.PARSE, Phase.INITIALIZE})
LEAST = Severity.WARNING


def survived_by(job: LoggedJob) -> frozenset[Phase]:
    """The phases that a job has survived."""
    if "step" in job.counts:
        return SURVIVED_INIT | {Phase.STEP}
    return SURVIVED_INIT if state_after_init(job) or "attribute" in job.counts else frozenset()


def findings_of(loaded: Loaded, shown: str, survived: frozenset[Phase]) -> list[Diagnostic]:
    """The errors and warnings about a config, except crashes in phases that the job has survived."""
    if loaded.unusable:
        return []
    found = lint_loaded(loaded, shown, default_rules()).diagnostics
    kept = [finding for finding in found if finding.severity.rank >= LEAST.rank and finding.phase not in survived and not finding.pedantic]
    return sorted(kept, key=lambda finding: -finding.severity.rank)
