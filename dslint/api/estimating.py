"""`dslint.estimate`."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from typing import Any, Unpack

from dslint.api.given import Given, Source
from dslint.api.subject import subject_of
from dslint.config import Config, resolve
from dslint.config.context import Context
from dslint.errors import UserError
from dslint.facts.gpus import in_words
from dslint.memory.completed import Completed, completed
from dslint.memory.estimate import Estimate
from dslint.memory.estimate import estimate as estimate_memory
from dslint.memory.given import FoundModel
from dslint.memory.plan import Plan
from dslint.memory.requests import DEFAULTS, described_model, planned
from dslint.memory.towers import has_towers
from dslint.record import Record
from dslint.source.tree import Document


class MemoryEstimate(Record):
    """The memory that a training needs. `details` has every part and phase; sizes are in bytes."""

    details: Estimate

    @property
    def gpu(self) -> tuple[int, int]:
        """The least and the most that the process with the highest need occupies on its GPU at the peak."""
        return self.details.device.low, self.details.device.high

    @property
    def host(self) -> int:
        """Host memory of a machine between steps."""
        return self.details.host_of_node

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was assumed because nothing says it."""
        return self.details.plan.assumed

    def fits(self, gpu_memory: int, host_memory: int | None = None) -> bool:
        """Whether the training fits on a GPU (and a machine) with these bytes, even at the high end of the range."""
        return self.details.fits(gpu_memory, host_memory)

    def __repr__(self) -> str:
        low, high = (in_words(size) for size in self.gpu)
        return f"GPU: {low} to {high} at the peak ({self.details.phase}); host: {in_words(self.host)} per machine"

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.assumptions)
        return f"<p>{html.escape(repr(self))}</p>" + (f"<p>Assumptions</p><ul>{notes}</ul>" if notes else "")


def estimate(config: Source | object, *, workload: Mapping[str, Any] | None = None, **given: Unpack[Given]) -> MemoryEstimate:
    """Estimate how much memory a training with a config needs. Nothing runs.

    Args:
        config: a dict; the path of a config, or as for `dslint estimate` of a training file, a script or a program; or a
            `transformers.TrainingArguments` with the config that it names.
        workload: what the options of `dslint estimate` say of the model and the program, by the names in
            `dslint.memory.requests.DEFAULTS`: `{"params": 7e9, "length": 4096, "micro_batch": 2}`.
        given: facts and settings, as in `check`. `model` may also be the name of a known model, such as "llama-3-8b".

    Raises:
        dslint.errors.UserError: the model or the world size is not known, or the config cannot be used.
        TypeError, ValueError, dslint.source.read.ReadError: as in `check`.
    """
    subject = described(config, workload, given)
    resolved = resolve(subject.document, subject.context)
    return MemoryEstimate(estimate_memory(subject.found.model, subject.plan(resolved, {})))


class Described(Record):
    """A config with its context, its model, and what is known of the program."""

    document: Document
    context: Context
    found: FoundModel
    whole: Completed

    def plan(self, config: Config, otherwise: Mapping[str, Any]) -> Plan:
        """The plan of a config, with some options of the program changed."""
        assumed = (*self.whole.notes(towers=has_towers(self.found.model)), *self.found.assumed)
        return planned(config, self.found.model, {**self.whole.said, **otherwise}, assumed, self.whole.unmodelled)


def described(config: Source | object, workload: Mapping[str, Any] | None, given: Given) -> Described:
    """What is known of a training, as `estimate` takes and raises it."""
    unknown = (workload or {}).keys() - DEFAULTS.keys()
    if unknown:
        raise TypeError(f"unknown workload {', '.join(sorted(unknown))}; dslint.memory.requests.DEFAULTS lists them")
    said = {**DEFAULTS, **(workload or {})}
    model = given.get("model")
    if isinstance(model, str | os.PathLike):
        said["model"], given["model"] = os.fspath(model), None
    loaded = subject_of(config, given).open_training()
    if loaded.unusable or loaded.document.problems:
        raise UserError(loaded.unusable or f"the config has a syntax error: {loaded.document.problems[0].message}")
    setup = loaded.context.setup
    whole = completed(said, setup.workload if setup is not None else None, loaded.context)
    found = described_model(whole.said, whole.context.facts)
    return Described(loaded.document, whole.context.but(model=found.config or whole.context.facts.model), found, whole)
