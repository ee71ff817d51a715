"""What rules about checkpoints share: the key for universal checkpoints, references, and the checkpoints of examples."""

from __future__ import annotations

from dslint.config import Config
from dslint.facts import Release
from dslint.facts.checkpoint import CheckpointFacts
from dslint.job.arguments import SourcedValue
from dslint.job.events import TRAINERS, Event
from dslint.rules.helpers.precision import model_dtype

LOAD_UNIVERSAL = "checkpoint.load_universal"
LOADING = "deepspeed/runtime/engine.py, DeepSpeedEngine.load_checkpoint"
UNIVERSAL_GUIDE = "https://www.deepspeed.ai/tutorials/universal-checkpointing/"
UNTRIED = "raised by load_checkpoint; tests/checkpoint writes and loads them"

FROM_STAGE_0 = CheckpointFacts("run", "global_step500", (0,), None, 1, None)
FROM_STAGE_2 = CheckpointFacts("run", "global_step500", (1, 2), 8, 1, bf16=False)
FROM_STAGE_3 = CheckpointFacts("run", "global_step500", (3,), 8, 1, bf16=True)
CONVERTED = CheckpointFacts("run", "global_step500", (1, 2), 8, 1, bf16=False, universal="global_step500_universal")


def loading_calls(config: Config) -> list[Event]:
    """The calls of `load_checkpoint` of the engine in the program."""
    program = config.setup.program if config.setup else None
    return list(program.events.of(r"deepspeed\.initialize\.load_checkpoint")) if program is not None else []


def loads_only_weights(config: Config) -> bool:
    """Whether each call of `load_checkpoint` leaves out the optimizer states, whose files DeepSpeed then does not open."""
    calls = loading_calls(config)
    return bool(calls) and all(map(_leaves_out_states, calls))


def _leaves_out_states(call: Event) -> bool:
    states, module = call.argument("load_optimizer_states", 3), call.argument("load_module_only", 5)
    return (states is not None and states.value is False) or (module is not None and module.value is True)


WITHOUT_ZERO = Release(0, 18, 0)
"""Since this release `load_checkpoint` asks no optimizer of ZeRO's at stage 0. Source: deepspeed/runtime/engine.py of 0.9.0 to 0.16.3, and
pull request 7586, which removed the path and was released with it.
"""


def error_without_states(config: Config) -> str:
    """What `load_checkpoint` raises at stage 0, where a checkpoint of ZeRO's has no states for the optimizer of this precision."""
    precision = model_dtype(config)
    if precision == "fp32":
        return "AttributeError \"'NoneType' object has no attribute 'copy'\""
    if precision == "fp16" or (precision == "bf16" and config.release >= WITHOUT_ZERO):
        return "TypeError \"'NoneType' object is not subscriptable\""
    return "an error"


def resumed_from(config: Config) -> SourcedValue | None:
    """Where a training resumes: an argument, or a call of `train`, which may stand under a condition. A variable may be None."""
    given = config.arguments.get("resume_from_checkpoint") if config.arguments else None
    if given is not None and given.value not in (None, False, "", "false", "False"):
        return given
    program = config.setup.program if config.setup else None
    for call in program.events.of(rf"{TRAINERS}\.train") if program is not None else ():
        argument = call.argument("resume_from_checkpoint", 0)
        if argument is not None and (argument.value is True or (isinstance(argument.value, str) and argument.value)):
            return call.at
    return None
