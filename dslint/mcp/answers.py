"""What a tool answers: the short answer, which a model reads, and the data, which a program reads."""

from __future__ import annotations

import json
from typing import Any

from dslint.mcp.run import Done, Failed

SHOWN = 10
"""How many findings a short answer has; the data has more."""

KEPT = 100
"""How many findings the data has, the most severe ones."""

LINES = 60
"""How many lines of a report a short answer has. Reports answer first and explain then."""

UNUSABLE = 2

_RANKS = {"error": 0, "warning": 1, "info": 2}


def data_of(name: str, done: Done) -> dict[str, Any]:
    """The data that a command printed.

    Raises:
        Failed: it printed none: its message says why.
    """
    if name == "init":
        if not done.out.strip():
            raise Failed(_reason(done))
        return {"version": 1, "config": json.loads(done.out), "fits": done.code == 0, "reasons": done.err.strip()}
    try:
        data = json.loads(done.out)
    except ValueError:
        raise Failed(_reason(done)) from None
    if not isinstance(data, dict):
        raise Failed(_reason(done))
    if name == "check":
        if done.code >= UNUSABLE and not data["summary"]["judged"] and not data["diagnostics"]:
            raise Failed(_reason(done) if done.err.strip() else _findings(data))
        return _most_severe(data)
    return data


def _reason(done: Done) -> str:
    """What a command that did not answer said, without its usage line."""
    lines = [line for line in done.err.strip().splitlines() if not line.startswith(("Usage: ", "Try '"))]
    return "\n".join(lines).strip() or f"the command ended with exit code {done.code} and without an answer"


def _most_severe(data: dict[str, Any]) -> dict[str, Any]:
    found = data["diagnostics"]
    if len(found) <= KEPT:
        return data
    kept = {id(one) for one in sorted(found, key=lambda one: _RANKS[one["severity"]])[:KEPT]}
    return {**data, "diagnostics": [one for one in found if id(one) in kept]}


def short_answer(name: str, data: dict[str, Any], report: str | None) -> str:
    """The answer in few lines: the verdict first."""
    if report is not None:
        lines = report.strip().splitlines()
        more = len(lines) - LINES
        return "\n".join(lines[:LINES] + ([f"({more} more lines are left out; the data has everything.)"] if more > 0 else []))
    if name == "init":
        return f"{json.dumps(data['config'], indent=2)}\n\n{data['reasons']}"
    return _findings(data)


def _findings(data: dict[str, Any]) -> str:
    summary, found = data["summary"], sorted(data["diagnostics"], key=lambda one: _RANKS[one["severity"]])
    counts = [f"{summary[one]} {one}{'s' if summary[one] > 1 and one != 'info' else ''}" for one in _RANKS if summary[one]]
    where = f"{summary['judged']} file{'s' if summary['judged'] != 1 else ''} checked"
    lines = [f"{', '.join(counts) or 'no findings'}; {where}."]
    for one in found[:SHOWN]:
        start = one["range"] and one["range"]["start"]
        place = f"{one['path']}:{start['line']}:{start['column']}" if start else one["path"]
        sure = "" if one["certain"] else " (not certain)"
        lines += ["", f"{place}: {one['severity']} {one['code']}{sure}: {one['message']}"]
        lines += [f"  help: {one['help']}"] if one["help"] else []
        lines += [f"  fix ({one['fix']['applicability']}): {one['fix']['title']}"] if one["fix"] else []
    if len(found) > SHOWN:
        lines += ["", f"{sum(summary[one] for one in _RANKS) - SHOWN} more findings, less severe: see diagnostics."]
    lines += [f"not checked: {file['path']}: {reason['reason']}" for file in data["files"] for reason in file["not_judged"]]
    lines += [f"not read: {file['path']}: {file['error']}" for file in data["files"] if file["error"]]
    needs = sorted({skipped["needs"] for skipped in data["skipped"]})
    if needs:
        lines.append(f"{len({one['code'] for one in data['skipped']})} rules were skipped; to run them, pass {', '.join(needs)}.")
    return "\n".join(lines)
