"""The output of `dslint probe --output-format json`: one object, all sizes in bytes, every key always present.

    {"version": 1, "kind": "probe", "config", "exit_code",
     "starts": true | false | null,      null if nothing could run: "unable" has the reason
     "unable", "raised": {"phase", "kind", "text", "where"}, "out_of_memory",
     "explained": [{"code", "name", "message", "help", "pointer"}],
     "device", "hardware", "world_size", "rank", "ranks", "model", "parameters", "layers", "versions", "engine",
     "memory": {"device" | "host" | "both": {"initialized", "steady", "peaks", "peak", "peak_phase", "at_peak", "kept", "parts", ...}},
     "steps", "skipped", "states", "step_seconds", "seconds",
     "limit": {"size", "source"}, "fits",
     "predicted": [{"what", "predicted", "measured"}],
     "depths": {"measured", "full", "error", "where", "holds"},
     "redirected": {key: its value in the config}, "notes", "timeline", "summary"}

    {"version": 1, "kind": "comparison", "config", "exit_code", "variants": [{"name", "peak", "time", "result": {...}}]}
    {"version": 1, "kind": "search", "config", "exit_code", "largest", "tried": [{"micro_batch", "result": {...}}]}

A variant's "peak" (bytes) and "time" (factor) are relative to the first variant; null if either did not finish.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from dslint.probe.answer import Memory
from dslint.probe.result import ComparedVariants, ProbeResult, SearchResult
from dslint.probe.variants import relative_cost

VERSION = 1


def as_json(result: ProbeResult | ComparedVariants | SearchResult) -> str:
    """The result as JSON."""
    head = {"version": VERSION, "kind": _KINDS[type(result)], "config": result.path, "exit_code": result.exit_code}
    return json.dumps({**head, **_payload(result)}, indent=2)


_KINDS: dict[type, str] = {ProbeResult: "probe", ComparedVariants: "comparison", SearchResult: "search"}


def _payload(result: ProbeResult | ComparedVariants | SearchResult) -> dict[str, Any]:
    if isinstance(result, ProbeResult):
        return _one(result)
    if isinstance(result, SearchResult):
        return {"largest": result.largest, "tried": [{"micro_batch": size, "result": _one(one)} for size, one in result.tried]}
    first = result.results[0][1].answer
    variants = []
    for variant, one in result.results:
        cost = relative_cost(first, one.answer)
        variants.append({"name": variant.name, "peak": cost and cost.peak, "time": cost and cost.time, "result": _one(one)})
    return {"variants": variants}


def _one(result: ProbeResult) -> dict[str, Any]:
    answer, line = result.answer, result.line
    data = asdict(answer)
    data["memory"] = {place: _memory(memory) for place, memory in answer.memory.items()}
    data["redirected"] = dict(answer.redirected)
    data["notes"] = [*result.notes, *answer.notes]
    data["starts"] = None if answer.unable is not None else answer.raised is None
    data["explained"] = [
        {"code": d.code, "name": d.name, "message": d.message, "help": d.help, "pointer": d.pointer} for d in result.explained
    ]
    data["limit"] = result.limit and result.limit._asdict()
    data["fits"] = result.fits
    data["predicted"] = [row._asdict() for row in result.predicted]
    data["depths"] = line and {
        "measured": line.depths,
        "full": line.answer.layers,
        "error": line.error,
        "where": line.where,
        "holds": line.holds,
    }
    return data


def _memory(memory: Memory) -> dict[str, Any]:
    return {**asdict(memory), "peak": memory.peak, "peak_phase": memory.peak_phase}
