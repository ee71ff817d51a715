"""What rules about checkpoints share: the key for universal checkpoints, references, and the checkpoints of examples."""

from __future__ import annotations

from dslint.config import Config
from dslint.facts.checkpoint import CheckpointFacts
from dslint.job.events import Event

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
