"""The job of a config as `dslint estimate` without options sees it."""

from __future__ import annotations

from dslint.config import Config, resolve
from dslint.job.arguments import Arguments
from dslint.memory.completed import completed
from dslint.memory.plan import Plan
from dslint.memory.requests import DEFAULTS, described_model, planned
from dslint.memory.shapes import Model


def usual_job(config: Config, arguments: Arguments | None) -> tuple[Model, Plan]:
    """The model and the plan of a config, with what its training arguments, its program and its launch imply.

    Raises:
        UserError: the model or the world size is not known, or a setting cannot be estimated.
    """
    whole = completed({**DEFAULTS}, arguments, config.context)
    found = described_model(whole.said, whole.context.facts)
    told = resolve(config.document, whole.context.but(model=found.config or whole.context.facts.model))
    return found.model, planned(told, found.model, whole.said, found.assumed, whole.unmodelled)
