"""What the examples of several chapters are written with."""

from __future__ import annotations

MINIMAL = '"train_micro_batch_size_per_gpu": 4'
"""The member that every config needs to train."""

ADAMW = f'{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}'
"""The members of a config that trains with an optimizer of its own."""


def trained(rest: str) -> str:
    """The text of a config that DeepSpeed trains with AdamW, and these members."""
    return f"{{{ADAMW}, {rest}}}"


GROUPED_QUERY_MODEL = {"num_attention_heads": 32, "num_key_value_heads": 4, "hidden_size": 4096}
"""The config.json of a model with fewer key-value heads than query heads, as far as rules read it."""
