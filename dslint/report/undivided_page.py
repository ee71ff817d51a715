"""What `dslint estimate` prints of a training without DeepSpeed."""

from __future__ import annotations

from dslint.facts import Facts
from dslint.memory.shapes import Model
from dslint.memory.undivided import LeastBytes
from dslint.report.estimate_page import gib, room, titled
from dslint.report.style import Style, wrap


def undivided_page(model: Model, least: LeastBytes, facts: Facts, launch: str, limit: int | None, style: Style) -> str:
    """The verdict, what was counted, and what would divide it."""
    if limit is None:
        answer = f"Needs at least {gib(least.total)} GiB per GPU: without DeepSpeed each GPU holds the whole model."
    elif least.total > limit:
        answer = f"Does not fit: without DeepSpeed each GPU holds the whole model, at least {gib(least.total)} GiB of {room(limit, facts)}."
    else:
        answer = (
            f"Not judged: without DeepSpeed each GPU holds the whole model, at least {gib(least.total)} GiB of {room(limit, facts)}; "
            "activations are not counted."
        )
    parts = (("weights", least.weights), ("gradients", least.gradients), ("optimizer states", least.states))
    counted = ", ".join(f"{what} {gib(size)}" for what, size in parts if size)
    lines = [
        *(style.paint(line, "bold") for line in wrap(answer, style.width)),
        "",
        titled(model, style) + (f", {model.trained_count} of them trained" if model.trained != model.size else ""),
        *wrap(f"{launch}, without DeepSpeed", style.width),
        *wrap(f"Counted, in GiB: {counted}. Everything is in 16 bits; a program may keep more.", style.width),
        *wrap("ZeRO divides them among the GPUs: give the training a DeepSpeed config (dslint init), and name that.", style.width),
    ]
    return "\n".join(lines) + "\n"
