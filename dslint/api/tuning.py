"""`dslint.fastest`: `dslint tune` for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from dslint.api.estimating import described
from dslint.api.given import Given, Source
from dslint.config import Config, resolve
from dslint.errors import UserError
from dslint.facts.gpus import in_words, size
from dslint.memory.completed import changed
from dslint.memory.plan import Plan
from dslint.memory.ways import Goal
from dslint.record import Record
from dslint.source.config_text import config_text
from dslint.source.parse import parse
from dslint.tune.checked import no_new_errors
from dslint.tune.search import Tuned, TuneResult, TuneSearch


class TunedConfig(Record):
    """A config that fits by estimate. `text` is that of the config, `program` says what else changes, as sentences."""

    text: str
    program: tuple[str, ...]
    details: Tuned

    @property
    def seconds(self) -> tuple[float, float]:
        """The least and the most seconds that an optimizer step takes."""
        return self.details.candidate.step.low, self.details.candidate.step.high

    @property
    def gain(self) -> float:
        """The share by which it is expected to train more samples per second than the present config."""
        return self.details.gain.gain

    @property
    def gpu(self) -> tuple[int, int]:
        """The least and the most bytes of the fullest GPU at the peak."""
        return self.details.found.device.low, self.details.found.device.high

    def __repr__(self) -> str:
        low, high = self.seconds
        least, most = (in_words(bytes_) for bytes_ in self.gpu)
        return f"{low:.3g} to {high:.3g} s per step, {self.gain:+.0%} samples/s, {least} to {most} per GPU"


class Tuning(Record):
    """The fastest configs that fit by estimate and pass `check`, the fastest first. `details` has the present one and why others lost."""

    best: tuple[TunedConfig, ...]
    details: TuneResult

    def __repr__(self) -> str:
        return "\n".join(f"{number}. {one!r}" for number, one in enumerate(self.best, 1)) or "no config that was tried fits by estimate"


def fastest(
    config: Source | object,
    *,
    workload: Mapping[str, Any] | None = None,
    free_batch: bool = False,
    limit: str | int | None = None,
    **given: Unpack[Given],
) -> Tuning:
    """Name the fastest configs of a training that fit in memory by estimate. Nothing runs: times are predicted.

    Args:
        config: as for `dslint.estimate`.
        workload: as for `dslint.estimate`.
        free_batch: the number of samples per optimizer step may change.
        limit: the memory limit of a GPU, in bytes or as "40GiB"; by default the memory of the GPU.
        given: facts and settings, as in `check`. `model` may also be the name of a known model, such as "llama-3-8b".

    Raises:
        dslint.errors.UserError: as for `dslint.estimate`, or no limit is known.
        TypeError, ValueError, dslint.source.read.ReadError: as in `check`.
    """
    subject = described(config, workload, given)
    facts = subject.context.facts
    memory = facts.gpu_memory if limit is None else size(limit) if isinstance(limit, str) else limit
    if memory is None:
        raise UserError("No memory limit given: pass gpu, gpu_memory or limit.")

    def planner(text: str, otherwise: dict[str, Any]) -> tuple[Config, Plan]:
        config = resolve(parse(text), changed(subject.context, otherwise))
        return config, subject.plan(config, otherwise)

    text = config_text(subject.document)
    present = planner(text, {})[0]
    result = TuneSearch(text, subject.found.model, planner, no_new_errors(present), Goal(memory, facts.host_memory)).run(
        free_batch=free_batch
    )
    return Tuning(tuple(TunedConfig(one.written.text, one.written.program, one) for one in result.best), result)
