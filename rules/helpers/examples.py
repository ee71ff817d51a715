"""Parts of the examples of several chapters."""

from __future__ import annotations

MINIMAL = '"train_micro_batch_size_per_gpu": 4'
"""The member that every config needs to train."""

ADAMW = f'{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}'
"""The members of a config with an optimizer."""

ZERO_2 = '"zero_optimization": {"stage": 2}'
"""The member without which the Hugging Face loaders raise."""

BF16_ZERO_2 = f'{{{MINIMAL}, "gradient_accumulation_steps": 1, "bf16": {{"enabled": true}}, {ZERO_2}}}'
"""A config that every loader accepts."""

ACCELERATE_HEAD = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\n"
"""The first lines of an Accelerate file for 8 processes on one machine."""


def trained(rest: str) -> str:
    """The text of a config that trains with AdamW and has these other members."""
    return f"{{{ADAMW}, {rest}}}"


GROUPED_QUERY_MODEL = {"num_attention_heads": 32, "num_key_value_heads": 4, "hidden_size": 4096}
"""The config.json of a model with fewer key-value heads than query heads, as far as rules read it."""
