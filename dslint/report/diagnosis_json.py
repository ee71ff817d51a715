"""The JSON format of `dslint diagnose`.

    {
      "version": 1,
      "dslint": "0.1.0",
      "jobs": [{
        "outcome": {"end", "sentence", "evidence"},   end: "finished", "failed", "killed", "hung", "unfinished", "unknown"
        "facts": [{"name", "value", "file", "line"}], what ran; file and line are those of the log
        "config": {...},                              the config that the log prints, or null
        "causes": [{"kind", "title", "why", "advice", "changes", "certain", "rank", "host", "when", "rules", "evidence"}],
                                                      `when` is the last time stamp before the evidence, or the time itself
        "notices": [...],                             what else the log shows, like causes
        "memory": [{"label", "allocated", "peak", "reserved", "host", "estimated", "file", "line"}],   GiB; null is unknown
        "not_estimated": "Not estimated: ...",        why memory has no estimate, or ""
        "findings": [{"code", "name", "severity", "message", "help", "pointer"}]
      }]
    }

`evidence` is a list of {"file", "line", "text"}, except in `outcome`, where it is one or null. Later releases may add keys.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dslint import __version__
from dslint.diagnose.diagnosis import Cause, Diagnosis, Evidence
from dslint.diagnose.prefixes import Place
from dslint.diagnose.summary import rows
from dslint.diagnostics import Diagnostic
from dslint.report.json_format import portable

VERSION = 1


def as_json(found: Sequence[Diagnosis]) -> str:
    """The diagnoses as JSON."""
    return json.dumps(portable({"version": VERSION, "dslint": __version__, "jobs": [_job(one) for one in found]}), indent=2)


def _job(found: Diagnosis) -> dict[str, Any]:
    shown = found.outcome.evidence
    return {
        "outcome": {"end": found.outcome.end.value, "sentence": found.outcome.sentence, "evidence": _evidence(shown) if shown else None},
        "facts": [{"name": row.name, "value": row.value, **_place(row.place)} for row in rows(found.job)],
        "config": _finite(found.job.get("config")),
        "causes": [_cause(cause) for cause in found.causes],
        "notices": [_cause(cause) for cause in found.notices],
        "memory": _memory(found),
        "not_estimated": found.not_estimated,
        "findings": [_finding(finding) for finding in found.findings],
    }


def _place(place: Place | None) -> dict[str, Any]:
    return {"file": place.file if place else None, "line": place.line if place else None}


def _evidence(shown: Evidence) -> dict[str, Any]:
    return {**_place(shown.place), "text": shown.text}


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "kind": cause.kind,
        "title": cause.title,
        "why": list(cause.why),
        "advice": list(cause.advice),
        "changes": cause.changes or None,
        "certain": cause.certain,
        "rank": cause.rank,
        "host": cause.host,
        "when": cause.when,
        "rules": list(cause.rules),
        "evidence": [_evidence(shown) for shown in cause.evidence],
    }


def _memory(found: Diagnosis) -> list[dict[str, Any]]:
    estimated = {measured.moment.place: measured.estimated for measured in found.measured}
    moments = [*found.job.moments, *(one.moment for one in found.measured if one.moment not in found.job.moments)]
    return [
        {
            "label": moment.label,
            "allocated": moment.now,
            "peak": moment.most,
            "reserved": moment.reserved,
            "host": moment.host,
            "estimated": estimated.get(moment.place),
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
