"""The static estimate of a run, compared with its measurement."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from dslint.config import Config, resolve
from dslint.errors import UserError
from dslint.facts import Integration, Release
from dslint.facts.gpus import gpu_named
from dslint.probe.answer import Answer
from dslint.probe.question import Question
from dslint.probe.result import Predicted
from dslint.probe.safety import override
from dslint.source.parse import parse
from dslint.source.tree import plain

if TYPE_CHECKING:
    from dslint.memory.engine import Run

_PHASES = {"init": "initialize", "forward": "forward", "backward": "backward", "step": "step"}
"""The phase names of the estimate, and those of the probe."""


LEAST = 10_000
"""Parts smaller than this fraction (1 in 10,000) of the memory between steps get no row."""


def predict(config: Config, question: Question, answer: Answer) -> tuple[Predicted, ...]:
    """Estimate and measurement on the device: memory between steps by part, and the peak of each phase.

    Args:
        config: the config as it ran, resolved for the world size and the release of the run.
        question: what was run.
        answer: what was measured, on a device that is separate from the host.

    Returns:
        An empty tuple if the estimate does not support the model or the config.
    """
    memory = answer.memory.get("device")
    found = replayed(config, question, answer) if memory is not None else None
    if memory is None or found is None:
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


def replayed(config: Config, question: Question, answer: Answer) -> Run | None:
    """The replay of a run with the sizes of its model; None if the estimate does not support the model or the config."""
    if question.model.function is not None or not answer.engine:
        return None
    from dslint.memory.activations import operations
    from dslint.memory.engine import run
    from dslint.memory.families import read_shape
    from dslint.memory.numbers import with_adapters
    from dslint.memory.plan import ONE_BY_ONE, UNFUSED, Workload
    from dslint.memory.planning import make_plan
    from dslint.memory.shapes import Norm

    data = question.model.data or question.model.shape.as_data()
    shape = question.model.shape
    built_in = question.model.data is None
    workload = Workload(
        question.sequence,
        checkpoint_every=int(question.checkpointing),
        zero_init=question.zero_init,
        eager=built_in and shape.eager,
        padded=not built_in and answer.device == "fake",  # transformers cannot see there that a mask hides nothing, and passes it
        repeated=built_in,
    )
    batch = {"micro_batch": answer.engine["micro_batch"], "accumulation": answer.engine["accumulation"]}
    try:
        model = read_shape(data, answer.model)
        if built_in:
            last = tuple(weight._replace(name=weight.name.replace("lm_head", "head")) for weight in model.last)
            model = replace(model, last=last, returns_logits=False)
            if answer.device != "cuda":  # only there torch's RMSNorm is a kernel; elsewhere it keeps its input and its result in fp32
                model = replace(model, norm=Norm.RMS_IN_FP32, blocks=tuple(replace(one, norm=Norm.RMS_IN_FP32) for one in model.blocks))
        if question.model.adapters:
            model = with_adapters(model, question.model.adapters, question.model.targets)
        plan = make_plan(config, workload, model.hidden, **batch)
        if answer.engine["optimizer"] in ("Adam", "AdamW"):  # torch updates all weights of a group at once on a GPU, elsewhere one by one
            plan = plan.but(torch_adam=True, step_bytes=UNFUSED if answer.device == "cuda" else ONE_BY_ONE)
        roomy = answer.capacity is None or answer.capacity >= 2 * plan.model_bytes * model.size
        done = operations(model, plan)
        if built_in:
            done = done.without_modules()
        if question.model.adapters and not question.checkpointing:  # no gradient reaches its embedding
            done = done._replace(before=tuple(operation._replace(backward=False) for operation in done.before))
        prints = answer.device == "cuda"  # fake tensors have nothing to print
        found = run(model, plan, question.rank // plan.tensor, done, roomy=roomy, prints=prints)
        return _with(workspaces(answer.hardware or ""), found) if answer.device == "cuda" else found
    except UserError:
        return None


def workspaces(hardware: str) -> int:
    """Bytes of cuBLAS's workspaces on a GPU: one for the thread of the forward and one for that of the backward, which torch's allocator
    holds from the first product on.

    Source: torch 2.11, aten/src/ATen/cuda/CublasHandlePool.cpp; 26 trainings on an H100 held 64 MiB more than without them.
    0 for a GPU that is not known, or not from NVIDIA.
    """
    try:
        capability = gpu_named(hardware.partition(" with ")[0]).capability
    except ValueError:
        return 0
    if capability is None:
        return 0
    return 2 * (32 * 2**20 if capability[0] in (9, 10) else 2 * 4096 * 2**10 + 8 * 16 * 2**10)


def _with(size: int, found: Run) -> Run:
    """The same run with more buffers, except while it initializes: nothing is multiplied then."""
    from dslint.memory.ledger import BUCKETS, INIT, Moment

    def more(moment: Moment) -> Moment:
        return Moment(moment.total + size, {**moment.parts, BUCKETS: moment.parts.get(BUCKETS, 0) + size})

    peaks = {phase: moment if phase == INIT else more(moment) for phase, moment in found.peaks.items()}
    return found._replace(steady=more(found.steady), peaks=peaks)


def as_run(config: Config, question: Question, answer: Answer) -> Config:
    """The config as it ran: with overrides, for the simulated ranks, on the installed release."""
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
    facts = config.facts._replace(
        world_size=question.world_size,
        deepspeed=release,
        upgrade_from=None,
        integration=Integration.DEEPSPEED,  # "auto" is already filled
    )
    return resolve(document, facts)
