"""Where a program loads its model whole on every rank, although its config is for ZeRO stage 3."""

from __future__ import annotations

from dslint.config import Config
from dslint.facts import Integration
from dslint.job.arguments import SourcedValue
from dslint.job.events import MODELS
from dslint.job.model import Program
from dslint.record import Record

TELLERS: dict[Integration | None, str] = {
    Integration.TRANSFORMERS: "TrainingArguments",
    Integration.ACCELERATE: "Accelerator",
    Integration.DEEPSPEED: "HfDeepSpeedConfig(config)",
}
"""What tells transformers of the config, by the integration."""


class WholeLoad(Record):
    """The call that loads the model, what is said of it after "loads the model", and what to do instead."""

    at: SourcedValue
    when: str
    instead: str


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
    when = ", and nothing has told transformers of ZeRO stage 3" if own else f" before {teller} tells transformers of ZeRO stage 3"
    return WholeLoad(program.loaded_early, when, f"Create {teller} before the model.")


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
