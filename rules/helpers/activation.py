"""The section `activation_checkpointing`."""

from __future__ import annotations

from dslint.config import Config

SECTION = "activation_checkpointing"
SWITCHES = ("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization")


def saves_memory(config: Config) -> bool:
    """Whether the section enables something that would save memory: DS701 is about all of it then."""
    return any(config.value(f"{SECTION}.{key}") is True for key in SWITCHES)
