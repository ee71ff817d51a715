"""The static estimate of what was run, beside what was measured."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

from dslint.config import Config, resolve
from dslint.errors import UserError
from dslint.facts import Integration, Release
from dslint.probe.answer import Answer
from dslint.probe.question import Question
from dslint.probe.result import Predicted
from dslint.probe.safety import override
from dslint.source.parse import parse
from dslint.source.tree import plain

_PHASES = {"init": "initialize", "forward": "forward", "backward": "backward", "step": "step"}
"""The estimate's names of phases, and the probe's."""


LEAST = 10_000
"""Of what lies there between steps, what is less than one part in so many is not worth a row."""


def predict(config: Config, question: Question, answer: Answer) -> tuple[Predicted, ...]:
    """The estimate beside the measurement, on the device: what lies there between steps by part, and the peak of each phase.

    Args:
        config: the config as it was run, resolved for the ranks and the release that it was run with.
        question: what was run.
        answer: what was measured, on a device that is told apart from the host.

    Returns:
        Nothing where the estimate does not know the model, or the config is none that it can plan.
    """
    memory = answer.memory.get("device")
    if memory is None or question.model.function is not None or not answer.engine:
        return ()
    from dslint.memory.engine import run
    from dslint.memory.families import read_shape
    from dslint.memory.plan import Workload, make_plan

    data = question.model.data or question.model.shape.as_data()
    workload = Workload(question.sequence, checkpoint_every=int(question.checkpointing), zero_init=question.zero_init)
    batch = {"micro_batch": answer.engine["micro_batch"], "accumulation": answer.engine["accumulation"]}
    try:
        model = read_shape(data, answer.model)
        plan = make_plan(config, workload, model.hidden, **batch)
        if answer.engine["optimizer"] in ("Adam", "AdamW"):  # torch's own work on lists of tensors
            plan = plan.but(foreach=True)
        roomy = answer.capacity is None or answer.capacity >= 2 * plan.model_bytes * model.size
        found = run(model, plan, question.rank // plan.tensor, roomy=roomy)
    except UserError:
        return ()
    parts = [Predicted(f"between steps: {part}", found.steady.parts.get(part, 0), size) for part, size in memory.parts.items()]
    rest = found.steady.total - sum(entry.predicted for entry in parts), memory.steady - sum(memory.parts.values())
    rows = [*parts, Predicted("between steps: buffers and the rest", *rest)]
    rows += [Predicted("between steps", found.steady.total, memory.steady)]
    rows += [
        Predicted(f"peak of {name}", found.peaks[phase].total, memory.peaks[name])
        for phase, name in _PHASES.items()
        if phase in found.peaks and name in memory.peaks
    ]
    return tuple(row for row in rows if max(row.predicted, row.measured) > memory.steady // LEAST)


def as_run(config: Config, question: Question, answer: Answer) -> Config:
    """The config as it was run: with the values that were put into it, for the ranks that were played, on the release that is installed."""
    document = config.document
    data = plain(document.root) if document.root is not None else None
    if question.overrides and isinstance(data, dict):
        for path, value in question.overrides:
            override(data, path, value)
        document = parse(json.dumps(data))
    release = config.facts.deepspeed
    if "deepspeed" in answer.versions:
        with contextlib.suppress(ValueError):
            release = Release.parse(answer.versions["deepspeed"])
    facts = replace(
        config.facts,
        world_size=question.world_size,
        deepspeed=release,
        upgrade_from=None,
        integration=Integration.DEEPSPEED,  # who fills in "auto" has had their turn
    )
    return resolve(document, facts)
