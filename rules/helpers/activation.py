"""The section `activation_checkpointing`."""

from __future__ import annotations

from dslint.config import Config

SECTION = "activation_checkpointing"
SWITCHES = ("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization")


def saves_memory(config: Config) -> bool:
    """Whether the section enables something that would save memory: DS701 is about all of it then."""
    return any(config.value(f"{SECTION}.{key}") is True for key in SWITCHES)


def is_checkpointed(config: Config) -> bool:
    """Whether the training checkpoints its activations without the section: by an argument, or by a call in the program."""
    arguments = config.setup.workload if config.setup else None
    if arguments is not None and arguments.value("gradient_checkpointing") is True:
        return True
    program = config.setup.program if config.setup else None
    if program is None:
        return False
    from dslint.job.events import CHECKPOINTS  # a plain check does not import what programs need

    return any(program.events.of(CHECKPOINTS))
