"""`dslint.guard`: checks a config in the program that is about to use it, with the facts of the running job.

The ranks of a job decide alike. Once `torch.distributed` has a process group, rank 0 decides and publishes its decision in the group's
store; the others wait for it, for a limited time, and use no collective operation, so that no rank can hang. The first to write decides
for all: a rank that has waited too long writes that the job goes on, and rank 0 then raises nothing, either. Without a process group each
rank checks for itself: the config, the settings and the facts are the same.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from datetime import timedelta
from itertools import count
from typing import Any, Unpack

from dslint.api.checking import check_training_arguments, linted
from dslint.api.given import Given, Source
from dslint.api.results import ConfigError, Findings
from dslint.api.subject import is_training_arguments, subject_of
from dslint.diagnostics import Diagnostic
from dslint.facts import Integration
from dslint.job.arguments import SourcedValue
from dslint.job.model import Program, Setup

PATIENCE = timedelta(seconds=20)
"""How long a rank waits for the decision of rank 0."""

_calls = count()
"""Numbers the calls; all ranks make them in the same order."""


class ConfigWarning(UserWarning):
    """A mistake in a DeepSpeed config that does not stop the training."""


def guard(
    config: Source | object,
    *,
    optimizer: Any = None,
    lr_scheduler: Any = None,
    warn: bool = False,
    **given: Unpack[Given],
) -> Findings:
    """Check a config before `deepspeed.initialize` or before the model is loaded: one line in a training program.

    Rank 0 issues a `ConfigWarning` for each finding that is a warning; every rank raises if there is an error, or none does.

    Args:
        config: a dict or a path, as passed to `deepspeed.initialize`, or a `transformers.TrainingArguments`.
        optimizer: the optimizer that is passed to `deepspeed.initialize`, if any.
        lr_scheduler: the schedule that is passed, if any.
        warn: whether to issue warnings for errors, too, and raise nothing.
        given: facts and settings, as in `check`. `model=model` tells dslint the sizes of a model of transformers. The world size, the GPU
            and the release of DeepSpeed are those of the job.

    Returns:
        The findings on rank 0; on the other ranks of a process group none.

    Raises:
        ConfigError: an error was found.
        TypeError, ValueError, dslint.errors.UserError, dslint.source.read.ReadError: as in `check`, on every rank.
    """
    number = next(_calls)
    store, rank = _store()
    if store is not None and rank != 0:
        _follow(store, number)
        return Findings()
    findings = Findings()
    error: Exception | None = None
    try:
        findings = _checked(config, optimizer, lr_scheduler, dict(given))
        error = ConfigError(findings.errors) if findings.errors and not warn else None
    except Exception as raised:  # noqa: BLE001 - it is raised below, if the other ranks have not gone on
        error = raised
    counts = _decide(store, number, error)
    if error is not None and counts:
        raise error
    if error is not None:
        warnings.warn(f"{error} The other ranks have waited too long and go on; so does rank 0.", ConfigWarning, stacklevel=2)
    elif rank == 0:
        _warn(one for one in findings if one.severity.value == "warning" or (warn and one.severity.value == "error"))
    return findings


def _checked(config: Source | object, optimizer: Any, lr_scheduler: Any, given: dict[str, Any]) -> Findings:
    facts: Any = {**_facts_of_the_job(), **given}
    if is_training_arguments(config):
        return check_training_arguments(config, **facts)
    subject = subject_of(config, facts)
    passed, schedule = _object(optimizer), _object(lr_scheduler)
    program = Program("<program>", Integration.DEEPSPEED.value, client_optimizer=passed, client_scheduler=schedule)
    context = subject.context._replace(setup=Setup(program=program, config=subject.shown))
    if context.facts.integration is None:
        context = context.inferring("the program calls dslint.guard with its config", integration=Integration.DEEPSPEED)
    return linted(subject._replace(context=context))


def _facts_of_the_job() -> dict[str, Any]:
    """What the job itself says: its size, its GPU, and the release of DeepSpeed that the program has imported."""
    facts: dict[str, Any] = {}
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        facts["world_size"] = distributed.get_world_size()
    elif os.environ.get("WORLD_SIZE", "").isdecimal():
        facts["world_size"] = int(os.environ["WORLD_SIZE"]) or None
    deepspeed = sys.modules.get("deepspeed")
    version = getattr(deepspeed, "__version__", None)
    if isinstance(version, str):
        facts["deepspeed"] = version
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        facts["gpu_memory"] = int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
    return facts


def _object(given: Any) -> SourcedValue | None:
    """An object that the program passes instead of a section of the config: the name of its class."""
    if given is None:
        return None
    kind = type(given)
    return SourcedValue(f"{kind.__module__}.{kind.__qualname__}", kind.__name__, kind.__qualname__, "<program>")


def _store() -> tuple[Any, int]:
    """The store of the process group and the rank in it; without a group no store, and the rank that the launcher gives."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        word = os.environ.get("RANK", "0")
        return None, int(word) if word.isdecimal() else 0
    store = getattr(distributed.distributed_c10d, "_get_default_store", lambda: None)()
    return store, int(distributed.get_rank())


def _decide(store: Any, number: int, error: Exception | None) -> bool:
    """Write the decision of rank 0, unless another rank has gone on before. Returns whether it counts."""
    text = "" if error is None else str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
    return store is None or _first(store, number, text) == text


def _first(store: Any, number: int, decision: str) -> str:
    """The decision that a rank wrote first; this one, if there is none yet."""
    return str(store.compare_set(f"dslint/guard/{number}", "", "=" + decision).decode("utf-8")[1:])


def _follow(store: Any, number: int) -> None:
    """Do as rank 0 decided. Without a decision in time the ranks go on: rank 0 may not call `guard`."""
    try:
        store.wait([f"dslint/guard/{number}"], PATIENCE)
    except RuntimeError:
        warnings.warn("dslint.guard: rank 0 has not checked the config in time; going on.", ConfigWarning, stacklevel=3)
    decision = _first(store, number, "")
    if decision:
        error = ConfigError(())
        error.args = (f"on rank 0: {decision}",)
        raise error


def _warn(found: Iterable[Diagnostic]) -> None:
    for diagnostic in found:
        warnings.warn(f"{diagnostic.code} {diagnostic.message}", ConfigWarning, stacklevel=3)
