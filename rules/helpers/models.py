"""The models of a program that DeepSpeed trains."""

from __future__ import annotations

from dslint.config import Config
from dslint.facts import Integration
from dslint.job.events import Events
from dslint.job.model import Program

ENGINES = (r"deepspeed\.initialize", r"accelerate\.(\w+\.)?Accelerator\.prepare")
TRAINERS = r"(transformers|trl)\.(\w+\.)*\w*Trainer"


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


def telling(config: Config, program: Program) -> int | None:
    """The place of the call that tells transformers of the config: of `HfDeepSpeedConfig`, or of an `Accelerator` with `zero3_init_flag`."""
    accelerate = config.setup.accelerate if config.setup else None
    flag = accelerate.get("zero3_init_flag") if accelerate is not None else None
    divides = r"accelerate\.(\w+\.)?Accelerator|" if flag is not None and flag.value is True else ""
    return next((one.start for one in program.events.of(divides + r"transformers\.(\w+\.)*HfDeepSpeedConfig")), None)
