"""Whether a run of the Hugging Face Trainer only evaluates."""

from __future__ import annotations

import re

from dslint.config import Config
from dslint.facts import Integration
from dslint.frameworks.huggingface import TRAINER
from dslint.frameworks.registry import named
from dslint.job.arguments import SourcedValue
from dslint.job.events import TRAINERS, Event

_OF_TRAINING = frozenset(["num_train_epochs", "max_steps", "learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps"])
_TRAINS = re.compile(f"{TRAINERS}\\.train")


def evaluates_by_arguments(config: Config) -> tuple[list[SourcedValue], bool] | None:
    """The arguments with which a run only evaluates, and whether it certainly does so; None for another one.

    LLaMA-Factory trains with `do_train` only, and so do the programs of transformers' examples.
    """
    arguments = config.arguments
    if arguments is None:
        return None
    train = arguments.get("do_train")
    evaluates = [one for name in ("do_eval", "do_predict") if (one := arguments.get(name)) is not None and one.value is True]
    if not evaluates or (train is not None and train.value is not False):
        return None
    framework = named(arguments.framework)
    told = [*([train] if train is not None else []), evaluates[0]]
    trains_when_told = framework is not None and framework.trains_when_told
    if trains_when_told and (train is not None or arguments.complete):
        return told, True
    program = config.setup.program if config.setup is not None else None
    trains = [one for one in program.events.all if _TRAINS.fullmatch(one.name)] if program is not None else []
    if train is not None:  # a program may call trainer.train() whatever do_train is
        asked = all(any("do_train" in condition.text for condition in one.conditions) for one in trains)
        return (told, bool(trains)) if asked else None
    asks = bool(trains) and all(any("do_train" in condition.text for condition in one.conditions) for one in trains)
    if program is None:  # many programs train whatever do_train is, and are then told how
        asks = arguments.values.keys().isdisjoint(_OF_TRAINING)
    if arguments.framework != TRAINER or not arguments.complete or not asks or config.facts.integration is not Integration.TRANSFORMERS:
        return None
    return evaluates[:1], False


def evaluation_before_training(config: Config) -> Event | None:
    """The first call of a program that evaluates or predicts with a Trainer, if it certainly comes before any training."""
    program = config.setup.program if config.setup is not None else None
    if program is None or config.facts.integration is not Integration.TRANSFORMERS:
        return None
    for event in program.events.of(f"{TRAINERS}\\.(train|evaluate|predict)"):
        if _TRAINS.fullmatch(event.name):
            if not event.unlikely:
                return None
        elif event.certain and not event.flow and not event.tells_setups_apart:
            return event
    return None


def only_evaluates(config: Config) -> bool:
    """Whether the arguments or the program may evaluate without a training. One that trains after an evaluation makes an optimizer then."""
    if evaluates_by_arguments(config) is not None:
        return True
    program = config.setup.program if config.setup is not None else None
    calls = list(program.events.of(f"{TRAINERS}\\.(train|evaluate|predict)")) if program is not None else []
    return bool(calls) and all(one.unlikely for one in calls if _TRAINS.fullmatch(one.name))
