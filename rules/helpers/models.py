"""The models of a program that DeepSpeed trains."""

from __future__ import annotations

import re

from dslint.config import Config
from dslint.facts import Integration
from dslint.frameworks.registry import named, of_arguments
from dslint.frameworks.whole_load import accelerate_tells
from dslint.job.events import DROPPED, HELD_WEAKLY, LOADS, MODELS, OWN_MODULE, Event, Events
from dslint.job.model import Program
from dslint.rules.helpers.loaders import trainer_arguments
from dslint.schemas.derive import ACCUMULATION
from dslint.source.tree import Mapping

DIVIDING = ("auto", "balanced", "balanced_low_0", "sequential")
"""Device maps with which transformers divides a model over the visible GPUs."""

ENGINES = (r"deepspeed\.initialize", r"accelerate\.(\w+\.)?Accelerator\.prepare")


def managed_models(events: Events, *makers: str) -> dict[int, int]:
    """The models that DeepSpeed trains: those given to `deepspeed.initialize`, to Accelerate's `prepare` or to a Trainer, with the number
    of that call.
    """
    found: dict[int, int] = {}
    trains = {id(event) for event in events.of(*makers)}
    for number, event in enumerate(events.all):
        if id(event) not in trains:
            continue
        is_prepare = event.name.endswith("prepare")
        given = event.arguments.values() if is_prepare else [event.argument("model", 1 if event.name == "deepspeed.initialize" else 0)]
        for one in given:
            if one is not None and one.origin is not None:
                found.setdefault(one.origin, number)
    return found


def divides_at_load(config: Config) -> bool:
    """Whether a model is divided among the ranks as it is loaded at ZeRO stage 3, because its library knows the config by then."""
    program = config.setup.program if config.setup else None
    if program is None:
        return False
    if config.facts.integration is Integration.TRANSFORMERS:
        return program.loaded_early is None
    return telling(config, program) is not None


_LOADS_ITSELF = r"trl\.(\w+\.)*\w+Trainer"
"""Trainers that load a model that is given by its name."""


def _loads(event: Event) -> bool:
    given = event.argument("model", 0)
    return event.name.endswith("from_pretrained") or (given is not None and isinstance(given.value, str))


def parses_while_loading(config: Config) -> bool:
    """Whether DeepSpeed parses the config for certain while a program or a framework loads a model, before its loader compares or completes it.

    At ZeRO stage 3 transformers loads a model inside `deepspeed.zero.Init` once it knows the config: from the Trainer's arguments, or from
    Accelerate. Source: transformers/modeling_utils.py, get_init_context.
    """
    setup, at_stage_3 = config.setup, config.value("zero_optimization.stage") == 3
    if setup is None or not at_stage_3:
        return False
    program = setup.program
    if program is None:
        arguments = config.arguments
        framework = named(arguments.framework) if arguments is not None and arguments.sure else None
        return framework is not None and framework.workload.zero_init
    loads = [event.start for event in program.events.of(LOADS, _LOADS_ITSELF) if event.certain and not event.flow and _loads(event)]
    if config.facts.integration is Integration.TRANSFORMERS:
        return bool(loads) and program.loaded_early is None and (knows_arguments(config) or accelerate_tells(config) is True)
    makers = [event.start for event in program.events.of(r"accelerate\.(\w+\.)?Accelerator") if event.certain and not event.flow]
    return bool(loads and makers) and makers[0] < loads[0] and accelerate_tells(config) is True


def knows_arguments(config: Config) -> bool:
    """Whether the config has the values of the training arguments when a model is loaded.

    The Trainer fills them into a config that its arguments name before that. In one of Accelerate's launcher there is 1 until then.
    Source: transformers/training_args.py, TrainingArguments.__post_init__.
    """
    setup = config.setup
    named_by_launcher = setup is None or setup.made or (setup.link is not None and setup.link.name.endswith("deepspeed_config_file"))
    return config.facts.integration is Integration.TRANSFORMERS and not named_by_launcher


def loads_reference(config: Config) -> bool:
    """Whether the framework loads a reference model at ZeRO stage 3: DeepSpeed parses the config again then."""
    arguments = config.arguments
    framework = of_arguments(arguments)
    loads = framework.loads_reference if framework is not None else None
    return arguments is not None and loads is not None and loads(arguments) and config.value("zero_optimization.stage") == 3


def adds_one_step(config: Config) -> bool:
    """Whether Accelerate adds one accumulation step to a config of its launcher, before the Trainer compares the config with its arguments.

    Source: accelerate/utils/dataclasses.py, DeepSpeedPlugin.__post_init__.
    """
    setup = config.setup
    by_launcher = setup is not None and not setup.made and not knows_arguments(config) and trainer_arguments(config) is not None
    writable = isinstance(config.document.root, Mapping) and not config.document.problems and not config.is_misspelt(ACCUMULATION)
    return by_launcher and writable and not config.has(ACCUMULATION) and config.facts.passes_accelerate


def model_of(events: Events, made: str, origin: int | None) -> int | None:
    """The number of the model that a value comes from: `model.state_dict()` of a model of the project, or the model itself."""
    if re.match(OWN_MODULE, made) is None or made.endswith("Module"):
        return origin
    call = next(
        (one for one in events.all if one.start == origin and re.match(rf"{OWN_MODULE}\.(state_dict|(named_)?parameters)", one.name)), None
    )
    return call.origin if call is not None else origin


def gone_before(events: Events, number: int) -> frozenset[int]:
    """The places of the calls that make an `HfDeepSpeedConfig` which is gone at an event, because nothing keeps it."""
    return frozenset(one.start for one in events.all[:number] if one.name.endswith(f".{DROPPED}"))


def telling(config: Config, program: Program) -> int | None:
    """The place of the call that tells transformers of the config: of `HfDeepSpeedConfig`, or of an `Accelerator` of a job that names the
    config to Accelerate. An `HfDeepSpeedConfig` that is gone before a model is loaded tells nothing.
    """
    accelerate = config.setup.accelerate if config.setup else None
    plugin = next(program.events.of(r"accelerate\.(\w+\.)*DeepSpeedPlugin"), None)
    named_to_it = (plugin is not None or accelerate is not None) and config.value("zero_optimization.stage") == 3
    divides = r"accelerate\.(\w+\.)?Accelerator|" if named_to_it and accelerate_tells(config) is True else ""
    first = next((number for number, one in enumerate(program.events.all) if re.fullmatch(MODELS, one.name)), 0)
    gone = gone_before(program.events, first)
    return next((one.start for one in program.events.of(divides + HELD_WEAKLY) if one.start not in gone), None)
