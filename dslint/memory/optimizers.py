"""The optimizer of a training whose config does not decide it: what arguments, launch and program say."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.facts import Integration
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.frameworks.workload import told_by
from dslint.job.arguments import SourcedValue
from dslint.job.events import TRAINERS, Event
from dslint.record import Record

ADAM = "AdamW with two fp32 states per parameter"

_CLASSES = {
    "Adam": "torch_adamw",
    "AdamW": "torch_adamw",
    "FusedAdam": "adamw",
    "DeepSpeedCPUAdam": "adamw",
    "FusedLion": "lion",
    "DeepSpeedCPULion": "lion",
    "FusedLamb": "lamb",
    "Adafactor": "adafactor",
    "Adagrad": "adagrad",
    "DeepSpeedCPUAdagrad": "adagrad",
    "Adam8bit": "adam8bit",
    "AdamW8bit": "adam8bit",
    "PagedAdam8bit": "adam8bit",
    "PagedAdamW8bit": "adam8bit",
    "Lion8bit": "lion8bit",
    "PagedLion8bit": "lion8bit",
    "SGD": "sgd",
}
"""Classes of optimizers by the name that an estimate has for what they keep."""

ON_CPU = frozenset(name for name in _CLASSES if name.startswith("DeepSpeedCPU"))
"""Those that update on the host, so that their states lie there."""

_WHOLE = ("adamw_torch", "adamw_32bit", "adamw_torch_npu_fused", "adamw_torch_xla", "adamw_anyprecision")
"""Values of `optim` that keep two states in 32 bits, besides those that an estimate knows. The paged ones may move them to the host."""

_IN_FLAGS = {
    **dict.fromkeys(("adam", "adamw", "adamwtorch", "adamwtorchfused", "fusedadam"), "adamw"),
    **dict.fromkeys(("adam8bit", "adamw8bit", "adamwbnb8bit", "pagedadamw8bit"), "adam8bit"),
    **dict.fromkeys(("lion8bit", "pagedlion8bit"), "lion8bit"),
    **{name: name for name in ("adafactor", "lion", "adagrad", "muon", "lamb")},
}
"""What the flag of a program's own says, without dashes and underscores."""

_FLAGS = ("optimizer", "optim", "optimizer_type", "optimizer_name")
_FLAG_OF_8_BITS = ("use_8bit_adam", "use_8bit_optimizer")

MAKES_OPTIMIZER = rf"(torch\.optim|transformers|deepspeed\.ops)\.(\w+\.)*({'|'.join(_CLASSES)})"
"""The calls that make an optimizer, as far as programs are followed."""


class Used(Record):
    """The optimizer of a training: its name in an estimate, and a sentence about why.

    `known`: config, arguments or program certainly say it. `lean`: the training may keep fewer states than this one.
    `states` are its bytes per parameter, if they are not those of its name.
    """

    name: str
    why: str
    known: bool = False
    lean: bool = False
    states: float | None = None


def used_optimizer(config: Config) -> Used:
    """The optimizer that counts where DeepSpeed does not build that of the config."""
    if runs_without_optimizer(config):
        return Used("adamw", f"{ADAM} trains all weights; the run may train nothing, and an engine without an optimizer has no states")
    return _by_arguments(config) or _by_program(config) or _by_flags(config) or _assumed(config)


def _by_arguments(config: Config) -> Used | None:
    """The optimizer that training arguments name."""
    arguments = config.setup.workload if config.setup is not None else None
    if arguments is None or "optimizer" in config.replaced:
        return None
    told = told_by(arguments).options.get("optimizer")
    if told is not None:
        return Used(str(told[0]), f"--optimizer is {told[0]}, from {told[1]}", known=True)
    given = arguments.get("optim")
    if given is None or given.value is UNKNOWN or given.value is None:
        return None
    if str(given.value).removeprefix("paged_") in _WHOLE:
        why = f"the optimizer is {ADAM}: {given.shown} ({given.where})"
        return Used("adamw", why, known=True, lean=str(given.value).startswith("paged_"))
    return Used("adamw", f'the optimizer "{given.value}" counts as AdamW, because its states are unknown ({given.where})', lean=True)


def _by_program(config: Config) -> Used | None:
    """The optimizer that the program makes, where it is one."""
    program = config.setup.program if config.setup is not None else None
    given = config.replaced.get("optimizer")
    if given is not None and isinstance(given.value, str):
        name = given.value.rpartition(".")[2]
        calls = list(program.events.of(rf"(.*\.)?{re.escape(name)}")) if program is not None else []
        return _of_class(name, calls[0].at, calls[0]) if len(calls) == 1 else _of_class(name, given, None)
    if program is None or config.facts.integration is Integration.TRANSFORMERS:
        return None
    made = list(program.events.of(MAKES_OPTIMIZER))
    if len({one.start for one in made}) != 1 or not made[0].certain or (program.lean_optimizer and not _is_lean(made[0].name)):
        return None
    return _of_class(made[0].name.rpartition(".")[2], made[0].at, made[0])


def _is_lean(name: str) -> bool:
    return _CLASSES[name.rpartition(".")[2]] not in ("adamw", "torch_adamw", "lamb")


def _of_class(name: str, place: SourcedValue, call: Event | None) -> Used:
    """What an optimizer of a class keeps: the momentum of SGD is a state, and a fused AdamW of torch allocates nothing in its step.

    `call` makes it; None if that is not known.
    """
    found = _CLASSES.get(name)
    if found is None:
        return Used("adamw", f"the program's optimizer {name} ({place.where}) counts as {ADAM}, because its states are unknown", lean=True)
    if found == "torch_adamw" and _given(call, "fused") is not False:
        return Used("adamw", f"the optimizer is {ADAM}: {name} ({place.where})")
    why = f"--optimizer is {found}, from {place.where}"
    momentum = _given(call, "momentum", 2) if found == "sgd" else False
    if momentum is not False:
        return Used(found, f"{why}, {'counted ' if momentum is None else ''}with momentum", known=True, lean=momentum is None, states=4.0)
    return Used(found, why, known=True)


def _given(call: Event | None, name: str, index: int | None = None) -> bool | None:
    """Whether a call switches an argument on, such as `momentum=0.9`; None if only the run knows it."""
    if call is None:
        return None
    given = call.argument(name, index)
    if given is None:
        return False if call.complete else None
    return None if given.value is UNKNOWN else bool(given.value)


def _by_flags(config: Config) -> Used | None:
    """The optimizer that a flag of the launch names, of a program whose own flag it is."""
    for given in _flags(config):
        word = str(given.value).lower().replace("_", "").replace("-", "")
        name = "adam8bit" if given.name.lstrip("-") in _FLAG_OF_8_BITS else _IN_FLAGS.get(word)
        if name is None:
            why = f"the optimizer counts as {ADAM}, because the states of {given.shown} are unknown ({given.where})"
            return Used("adamw", why, lean=True)
        return Used(name, f"--optimizer is {name}, from {given.shown} ({given.where})", lean=name != "adamw")
    return None


def _flags(config: Config) -> Iterator[SourcedValue]:
    launch = config.setup.launch if config.setup is not None else None
    flags = launch.passed.flags if launch is not None and launch.passed is not None else {}
    for name in _FLAG_OF_8_BITS:
        if name in flags and flags[name].value not in (False, 0, "False", "false", "0"):
            yield flags[name]
    for name in _FLAGS:
        if name in flags and isinstance(flags[name].value, str):
            yield flags[name]


def _assumed(config: Config) -> Used:
    """AdamW, with the reason why."""
    program = config.setup.program if config.setup is not None else None
    arguments = config.setup.workload if config.setup is not None else None
    if program is not None and program.lean_optimizer:
        why = f"{ADAM} is assumed; the program names an optimizer that keeps less, and may use it (--optimizer says which)"
        return Used("adamw", why, lean=True)
    if config.has("optimizer"):
        return Used("adamw", f"the optimizer is assumed to be {ADAM}: the config has no type that is known")
    if program is not None and "optimizer" in (program.passed or ()):
        return Used("adamw", f"the optimizer is assumed to be {ADAM}: only the run knows the one that the program passes")
    passes = program is not None and any(one.argument("optimizers") is not None for one in program.events.of(TRAINERS))
    if not passes and config.facts.integration is Integration.TRANSFORMERS and arguments is not None and arguments.complete:
        return Used("adamw", f"the optimizer is {ADAM}, the default of the Trainer")
    return Used("adamw", f"the optimizer is assumed to be {ADAM}: the config has none (--optimizer says which)")
