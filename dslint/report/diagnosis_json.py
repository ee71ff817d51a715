"""The JSON format of `dslint diagnose`: one object with the jobs of the logs, as docs/diagnosis.schema.json describes it.

Figures are numbers with their unit in the name, what the log does not tell is null, and a place is a file and a line of it. Later releases
may add keys; `version` changes when a key changes its meaning.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dslint import __version__
from dslint.diagnose import typed_facts as facts
from dslint.diagnose.diagnosis import Diagnosis, Evidence, LikelyCause
from dslint.diagnose.prefixes import LogPlace
from dslint.diagnose.summary import rows
from dslint.diagnostics import Diagnostic
from dslint.report.json_format import portable

VERSION = 2


def as_json(found: Sequence[Diagnosis]) -> str:
    """The diagnoses as JSON."""
    return json.dumps(as_data(found), indent=2)


def as_data(found: Sequence[Diagnosis]) -> dict[str, Any]:
    """The diagnoses as data."""
    return {"version": VERSION, "dslint": __version__, "jobs": [portable(_job(one)) for one in found]}


def _job(found: Diagnosis) -> dict[str, Any]:
    shown = found.outcome.evidence
    return {
        "outcome": {
            "end": found.outcome.end.value,
            "sentence": found.outcome.sentence,
            "evidence": _evidence(shown) if shown else None,
        },
        "causes": [_cause(cause) for cause in found.causes],
        "notices": [_cause(cause) for cause in found.notices],
        "facts": {**dict.fromkeys(facts.NAMES), **{fact.name: fact.value for fact in facts.typed(found.job)}},
        "places": {fact.name: _place(fact.place) for fact in facts.typed(found.job) if fact.place},
        "ran": [{"name": row.name, "value": row.value, **_place(row.place)} for row in rows(found.job)],
        "config": _finite(found.job.get("config")),
        "memory": _memory(found),
        "checked_as": found.checked_as or None,
        "not_estimated": found.not_estimated or None,
        "unread": list(found.unread),
        "findings": [_finding(finding) for finding in found.findings],
    }


def _place(place: LogPlace | None) -> dict[str, Any]:
    return {"file": place.file if place else None, "line": place.line if place else None}


def _evidence(shown: Evidence) -> dict[str, Any]:
    return {**_place(shown.place), "text": shown.text}


def _cause(cause: LikelyCause) -> dict[str, Any]:
    return {
        "kind": cause.kind,
        "title": cause.title,
        "why": list(cause.why),
        "advice": list(cause.all_advice),
        "changes": cause.changes or None,
        "changed_by": cause.changed_by or None,
        "certain": cause.certain,
        "rank": cause.rank,
        "host": cause.host,
        "when": cause.when,
        "where": cause.where or None,
        "rules": list(cause.rules),
        "evidence": [_evidence(shown) for shown in cause.evidence],
    }


def _memory(found: Diagnosis) -> list[dict[str, Any]]:
    estimated = {measured.moment.place: measured.estimated for measured in found.measured}
    moments = [*found.job.moments, *(one.moment for one in found.measured if one.moment not in found.job.moments)]
    return [
        {
            "label": moment.label,
            "allocated_gib": moment.now,
            "peak_gib": moment.most,
            "reserved_gib": moment.reserved,
            "host_gib": moment.host,
            "estimated_gib": estimated.get(moment.place),
            **_place(moment.place),
        }
        for moment in moments
    ]


def _finding(finding: Diagnostic) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "message": finding.message,
        "help": finding.help,
        "pointer": finding.pointer,
    }


def _finite(value: Any) -> Any:
    """The config without infinite numbers, which JSON has not: they become text."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return str(value) if isinstance(value, float) and value in (float("inf"), float("-inf")) else value
