#!/usr/bin/env python3
"""Write the tables of docs/memory.md: measurements, compared with dslint, DeepSpeed's estimators and the ZeRO paper.

    python scripts/memory_table.py [--check]

The measurements are in the test suite (tests/memory/). With --check nothing is written; the exit code is 1 if the tables are stale.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dslint.memory.plan import Plan  # noqa: E402 - the project's folder must be on the path first
from dslint.memory.shapes import Model  # noqa: E402
from tests.memory.fresh import fresh  # noqa: E402
from tests.memory.measurements import measured  # noqa: E402

PAGE = ROOT / "docs" / "memory.md"
SETS = {
    "architectures": "other architectures",
    "options": "other options",
    "sealed": "random sample, used for corrections",
    "further": "adapters, every k-th layer, fp32, Muon, NVMe",
    "drawn": "random sample, unseen",
}


class Case(NamedTuple):
    """A measured peak in bytes, with the steady state, and the estimates of both."""

    plan: Plan
    model: Model
    peak: int
    steady: int
    ours: int
    ours_steady: int


def deepspeed(case: Case) -> float | None:
    """DeepSpeed's own estimate: `estimate_zero2_model_states_mem_needs` for stages 1 and 2, `estimate_zero3_...` for 3."""
    plan, parameters = case.plan, case.model.size
    if plan.stage == 0:
        return None
    if plan.stage < 3:
        return 2.0 * parameters + (0.0 if plan.optimizer_device else 18.0 * parameters / plan.world)
    largest = 4.0 * case.model.largest.size
    if plan.parameter_device:
        return largest
    return largest + (2.0 if plan.optimizer_device else 18.0) * parameters / plan.world


def paper(case: Case) -> float:
    """Model states as in the ZeRO paper: 2 bytes per parameter for weights and for gradients, 12 for the optimizer."""
    plan, parameters = case.plan, case.model.size
    optimizer = 0.0 if plan.optimizer_device else 12.0
    if plan.stage == 0:
        return 16.0 * parameters
    if plan.stage == 1:
        return (4.0 + optimizer / plan.world) * parameters
    if plan.stage == 2:
        return (2.0 + (2.0 + optimizer) / plan.world) * parameters
    return (4.0 + optimizer) * parameters / plan.world


def cases() -> dict[str, list[Case]]:
    """All measurements by kind."""
    found: dict[str, list[Case]] = defaultdict(list)
    for row in measured():
        plan = row.plan
        kind = "offload" if plan.optimizer_device else f"stage {plan.stage}"
        kind += ", long samples" if row.data["set"] == "activations" and not plan.optimizer_device else ""
        found[kind].append(Case(plan, row.model, row.data["peak_dev"], row.data["steady_dev"], row.peak, row.run.steady.total))
    for other in fresh():
        case = Case(other.plan, other.model, other.measured, other.data["steady_dev"], other.peak, other.run.steady.total)
        found[SETS[other.data["set"]]].append(case)
    last = list(SETS.values())
    return dict(sorted(found.items(), key=lambda item: (last.index(item[0]) if item[0] in last else -1, item[0])))


def errors(of: Iterable[Case], say: Callable[[Case], float | None]) -> list[float]:
    """Errors of the peak in percent, where there is an estimate."""
    return [100 * (said / case.peak - 1) for case in of if (said := say(case)) is not None]


def _mean(found: list[float]) -> str:
    return f"{statistics.mean(map(abs, found)):.1f}" if found else "-"


def _worst(found: list[float]) -> str:
    return f"{max(found, key=abs):+.1f}" if found else "-"


def errors_table() -> str:
    """Errors by kind."""
    lines = [
        "| measured | runs | steady: worst | peak: dslint, mean | worst | DeepSpeed's estimator, mean | worst | ZeRO paper, mean | worst |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for kind, found in cases().items():
        steady = [100 * (case.ours_steady / case.steady - 1) for case in found]
        columns = [f"{max(map(abs, steady)):.1f}"]
        for say in (lambda case: float(case.ours), deepspeed, paper):
            percent = errors(found, say)
            columns += [_mean(percent), _worst(percent)]
        lines.append(f"| {kind} | {len(found)} | {' | '.join(columns)} |")
    return "\n".join(lines)


def bytes_table() -> str:
    """Bytes per parameter of the runs that compare stages."""
    lines = [
        "| stage | ranks | steady | peak | phase | dslint | DeepSpeed's estimator | ZeRO paper |",
        "|--:|--:|--:|--:|---|--:|--:|--:|",
    ]
    chosen = [row for row in measured() if row.data["set"] == "main" and "bf16" in row.data["config"] and row.plan.accumulation == 1]
    seen: set[tuple[int, int]] = set()
    for row in sorted(chosen, key=lambda row: (row.plan.stage, row.plan.world)):
        key = (row.plan.stage, row.plan.world)
        if key in seen or row.plan.gradient_bytes != 2:
            continue
        seen.add(key)
        case = Case(row.plan, row.model, row.data["peak_dev"], row.data["steady_dev"], row.peak, row.run.steady.total)
        size, theirs = row.model.size, deepspeed(case)
        phase = {"fwd": "forward", "bwd": "backward"}.get(row.data["peak_phase"], row.data["peak_phase"])
        cells = [case.steady / size, case.peak / size]
        said = [f"{case.ours / size:.2f}", "-" if theirs is None else f"{theirs / size:.2f}", f"{paper(case) / size:.2f}"]
        lines.append(f"| {key[0]} | {key[1]} | {cells[0]:.2f} | {cells[1]:.2f} | {phase} | {' | '.join(said)} |")
    return "\n".join(lines)


TABLES = {"errors": errors_table, "bytes": bytes_table}


def filled(text: str) -> str:
    """The page with updated tables: each is between `<!-- table NAME -->` and `<!-- end -->`."""
    for name, make in TABLES.items():
        pattern = re.compile(rf"(<!-- table {name} -->\n)(.*?)(<!-- end -->)", re.DOTALL)
        assert pattern.search(text), name
        text = pattern.sub(lambda match, make=make: f"{match[1]}\n{make()}\n\n{match[3]}", text)  # type: ignore[misc]
    return text


def main(arguments: list[str]) -> int:
    """Write the tables, or compare them with those on disk."""
    before = PAGE.read_text(encoding="utf-8")
    after = filled(before)
    if "--check" in arguments:
        if before != after:
            print(f"{PAGE.relative_to(ROOT)} is stale: run python scripts/generate.py memory")
        return int(before != after)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
