"""Where a program loads its model whole on every rank, although its config is for ZeRO stage 3."""

from __future__ import annotations

from dslint.config import Config
from dslint.facts import Integration, Release
from dslint.job.arguments import SourcedValue
from dslint.job.events import DROPPED, HELD_WEAKLY, MODELS, Event
from dslint.job.model import Program
from dslint.record import Record

TELLERS: dict[Integration | None, str] = {
    Integration.TRANSFORMERS: "TrainingArguments",
    Integration.ACCELERATE: "Accelerator",
    Integration.DEEPSPEED: "HfDeepSpeedConfig(config)",
}
"""What tells transformers of the config, by the integration."""


_ALWAYS_TELLS = Release(1, 0, 0)


def accelerate_tells(config: Config) -> bool | None:
    """Whether Accelerate tells transformers of a config for ZeRO stage 3; None where that depends on what is not known.

    From 1.0.0 each `Accelerator` does, and each TrainingArguments that gets the config from Accelerate's launcher, whatever
    `zero3_init_flag` is. Before that the flag decides, which is on at stage 3 unless it is given. Sources: accelerate/utils/dataclasses.py,
    DeepSpeedPlugin.set_deepspeed_weakref of 0.16.0, 0.34.0, 1.0.0 and 1.14.0; accelerate/state.py, AcceleratorState.
    """
    release = config.context.pinned("accelerate")
    if release is not None and release >= _ALWAYS_TELLS:
        return True
    setup = config.setup
    plugin = next(setup.program.events.of(r"accelerate\.(\w+\.)*DeepSpeedPlugin"), None) if setup and setup.program is not None else None
    if plugin is not None and not plugin.complete:
        return None
    given = plugin.argument("zero3_init_flag") if plugin is not None else None
    in_file = setup.accelerate.get("zero3_init_flag") if setup and setup.accelerate is not None else None
    flag = given.value if given is not None and given.value is not None else in_file.value if in_file is not None else None
    if flag is None or flag is True:
        return True
    return False if flag is False and release is not None else None


class WholeLoad(Record):
    """The call that loads the model, what is said of it after "loads the model", and what to do instead."""

    at: SourcedValue
    when: str
    instead: str
    is_meant: bool = False
    """Whether the program tells transformers of the config, in vain."""


def lost_teller(event: Event) -> str:
    """What became of an `HfDeepSpeedConfig` that the program does not keep."""
    why = f"a local variable of {event.function.rpartition('.')[2]}" if event.bound else "which nothing keeps"
    return f"the HfDeepSpeedConfig of {event.at.where}, {why}, is gone by then"


def whole_load(config: Config) -> WholeLoad | None:
    """The call with which every rank certainly loads the whole model at ZeRO stage 3."""
    program = config.setup.program if config.setup is not None else None
    if program is None or not config.value("zero_optimization.stage") >= 3:
        return None
    if config.facts.integration is Integration.LIGHTNING:
        return _outside_context(program)
    teller = TELLERS.get(config.facts.integration)
    if program.loaded_early is None or teller is None:
        return None
    own = config.facts.integration is Integration.DEEPSPEED
    switched_off = config.facts.integration is Integration.ACCELERATE and accelerate_tells(config) is not True
    when = (
        ", and nothing has told transformers of ZeRO stage 3"
        if own or switched_off
        else f" before {teller} tells transformers of ZeRO stage 3"
    )
    lost = next(program.events.of(HELD_WEAKLY), None) if own and any(program.events.of(rf"{HELD_WEAKLY}\.{DROPPED}")) else None
    if lost is not None:
        return WholeLoad(
            program.loaded_early, f", and {lost_teller(lost)}", "Keep the HfDeepSpeedConfig as long as the model.", is_meant=True
        )
    flag = ", with zero3_init_flag: true" if switched_off else ""
    return WholeLoad(program.loaded_early, when, f"Create {teller} before the model{flag}.")


def _outside_context(program: Program) -> WholeLoad | None:
    """The load of a Lightning program that is not where Lightning enters `deepspeed.zero.Init`."""
    loads = {one.start: one for one in program.events.of(rf"({MODELS})") if one.name.endswith("from_pretrained") and one.certain}
    if program.fabric:
        setups = program.events.of(r"lightning.*\.Fabric\.(setup|setup_module)")
        trained = [loads.get(one.origin or -1) for event in setups for one in event.arguments.values()]
        where, instead = (
            " outside of fabric.init_module()",
            "Create an HfDeepSpeedConfig of transformers, and load the model within `with fabric.init_module():`.",
        )
    else:
        trained = [one for one in loads.values() if one.parts_of and not one.flow]  # configure_model is called by Lightning alone
        where, instead = (
            " outside of configure_model",
            "Create an HfDeepSpeedConfig of transformers, and load the model in the method configure_model.",
        )
    load = next(
        (one for one in trained if one is not None and not any("init_module" in name or "zero.Init" in name for name in one.within)), None
    )
    return WholeLoad(load.at, where, instead) if load is not None else None
