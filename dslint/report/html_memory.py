"""The memory of the checked configs, for the page of a repository: an estimate for each config of which model and ranks are known."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from dslint.config import resolve
from dslint.facts.gpus import GIB, in_words
from dslint.lint.results import FileResult, Results
from dslint.memory.estimate import Estimate, estimate
from dslint.memory.families import read_shape
from dslint.memory.plan import PlanError, Workload
from dslint.memory.planning import make_plan
from dslint.memory.reader import ShapeError
from dslint.report.speed_words import spread
from dslint.report.style import visible
from dslint.speed.planned import step_of
from dslint.speed.step import StepTime

LENGTH = 2048
"""The tokens of a sample: what a page assumes, since no config says it."""


def memory_table(results: Results) -> Iterator[str]:
    """The lines of a table with a row per estimate; none if nothing can be estimated."""
    found = [(file, *of_file) for file in results.files if (of_file := _estimate(file)) is not None]
    if not found:
        return
    yield "<h2>Memory of one GPU</h2>"
    yield f"<p>Estimates for samples of {LENGTH:,} tokens, all parameters trained. <code>dslint estimate</code> says more.</p>"
    heads = "".join(
        f"<th>{head}</th>" for head in ("Config", "Model", "Ranks", "ZeRO", "Between steps", "Peak", "Verdict", "Time of a step")
    )
    yield f'<div class="wide"><table>\n<tr>{heads}</tr>'
    yield from (_row(file, of_file, step) for file, of_file, step in found)
    yield "</table></div>"


def _row(file: FileResult, found: Estimate, step: StepTime | None) -> str:
    memory = file.facts.gpu_memory
    fits = f"{found.verdict(memory)} in {in_words(memory)}" if memory else ""
    cells = [
        f"{found.plan.world:,}",
        f"stage {found.plan.stage}",
        f"{found.steady.total / GIB:,.1f} GiB",
        f"{found.device.low / GIB:,.1f} to {found.device.high / GIB:,.1f} GiB",
    ]
    numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
    time = spread(step) if step else ""
    size = f"{found.model.size / 1e9:.3g} B"
    return f"<tr><td>{escape(visible(file.path))}</td><td>{size}</td>{numbers}<td>{fits}</td><td>{time}</td></tr>"


def _estimate(file: FileResult) -> tuple[Estimate, StepTime | None] | None:
    """The estimate for a config, and its step if the GPU is known; None if the file is none, or model, ranks or a setting that matters are
    unknown.
    """
    facts = file.facts
    if not file.is_judged or file.kind != "ds_config" or file.document is None or facts.model is None or facts.world_size is None:
        return None
    config = resolve(file.document, file.context)
    try:
        model = read_shape(facts.model.data, facts.model.path)
        found = estimate(model, make_plan(config, Workload(LENGTH), model.hidden))
        return found, step_of(config, found)
    except (ShapeError, PlanError, ValueError, TypeError):
        return None
