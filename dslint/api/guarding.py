"""`dslint.guard`: checks a config in the program that is about to use it, with the facts of the running job.

Only findings stop a job. Whatever else goes wrong here (a defect of dslint, a mistyped settings file, a store that does not answer) is one
warning, because a training that runs without its check is better than one that does not run. So the imports of this module are few, and
everything that can fail is inside of a `try`.

The ranks of a job decide alike. Once `torch.distributed` has a process group, rank 0 decides and publishes its decision in the group's
store; the others wait for it, for a limited time, and use no collective operation, so that no rank can hang. The first to write decides
for all: a rank that has waited too long writes that the job goes on, and rank 0 then raises nothing, either. Without a process group each
rank checks for itself: the config, the settings and the facts are the same.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Unpack

from dslint.api.results import ConfigError, Findings
from dslint.diagnostics import Severity

if TYPE_CHECKING:
    from dslint.api.given import Given, Source
    from dslint.job.arguments import SourcedValue

INTERNAL_ERROR = "DS000"
"""The code of a defect of dslint, as in `dslint.lint.guard`, which is not imported here."""

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
        The findings on rank 0; on the other ranks of a process group none, and none if the config could not be checked.

    Raises:
        ConfigError: an error was found. Nothing else is raised: a config that cannot be checked is a `ConfigWarning`.
    """
    number = next(_calls)
    try:
        return _decided(number, config, optimizer, lr_scheduler, warn=warn, given=dict(given))
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - see the top of the module
        with contextlib.suppress(Exception):
            _say(f"dslint.guard could not check the config, and the training goes on: {type(error).__name__}: {str(error)[:500]}")
    nothing = Findings.__new__(Findings)  # not by its constructor, which may be what has failed
    nothing.files = ()
    return nothing


def _decided(number: int, config: Source | object, optimizer: Any, lr_scheduler: Any, *, warn: bool, given: dict[str, Any]) -> Findings:
    """The findings, once the ranks have decided alike. Raises `ConfigError` if that is the decision."""
    store, rank = _store()
    if store is not None and rank != 0:
        _follow(store, number)
        return Findings()
    findings, errors, error = Findings(), [], None
    try:
        findings = _checked(config, optimizer, lr_scheduler, given)
        defects = [one for one in findings.errors if one.code == INTERNAL_ERROR]
        errors = [one for one in findings.errors if one not in defects]
        error = ConfigError(errors) if errors and not warn else None
    finally:
        counts = _decide(store, number, error)  # also without findings: the other ranks wait for it
    if error is not None and counts:
        raise error
    if error is not None:
        _say(f"{error} The other ranks have waited too long and go on; so does rank 0.")
    elif rank == 0:
        warned = [one for one in findings if one.severity is Severity.WARNING]
        for one in (*defects, *(errors if warn else ()), *warned):
            _say(f"{one.code} {one.message}")
    return findings


def _checked(config: Source | object, optimizer: Any, lr_scheduler: Any, given: dict[str, Any]) -> Findings:
    from dslint.api.checking import check_training_arguments, linted  # importing them may fail, too
    from dslint.api.subject import is_training_arguments, subject_of
    from dslint.facts import Integration
    from dslint.job.model import Program, Setup

    facts: Any = {**_facts_of_the_job(), **given}
    if is_training_arguments(config):
        return check_training_arguments(config, **facts)
    subject = subject_of(config, facts)
    passed, schedule = _object(optimizer), _object(lr_scheduler)
    loader = subject.context.facts.integration or Integration.DEEPSPEED
    program = Program("<program>", loader.value, client_optimizer=passed, client_scheduler=schedule)
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
    from dslint.job.arguments import SourcedValue

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


def _decide(store: Any, number: int, error: ConfigError | None) -> bool:
    """Write the decision of rank 0, unless another rank has gone on before. Returns whether it counts."""
    text = "" if error is None else str(error)
    return store is None or _first(store, number, text) == text


def _first(store: Any, number: int, decision: str) -> str:
    """The decision that a rank wrote first; this one, if there is none yet."""
    return str(store.compare_set(f"dslint/guard/{number}", "", "=" + decision).decode("utf-8")[1:])


def _follow(store: Any, number: int) -> None:
    """Do as rank 0 decided. Without a decision in time the ranks go on: rank 0 may not call `guard`."""
    try:
        store.wait([f"dslint/guard/{number}"], PATIENCE)
    except Exception:  # noqa: BLE001 - a store of its own kind raises its own errors
        _say("dslint.guard: rank 0 has not checked the config in time; going on.")
    decision = _first(store, number, "")
    if decision:
        raised = ConfigError(())
        raised.args = (f"on rank 0: {decision}",)
        raise raised


def _say(text: str) -> None:
    """Issue a warning. Where warnings are errors (`python -W error`) it is printed: an error would stop one rank only."""
    level, frame = 1, sys._getframe()  # noqa: SLF001 - as `warnings.warn` finds the caller
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        level, frame = level + 1, frame.f_back
    try:
        warnings.warn(text, ConfigWarning, stacklevel=level)
    except Warning:
        sys.stderr.write(f"ConfigWarning: {text}\n")
