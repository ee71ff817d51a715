"""What the examples of several chapters are written with."""

from __future__ import annotations

ADAMW = '"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}'
"""The members that every config needs to train."""


def trained(rest: str) -> str:
    """The text of a config that DeepSpeed trains with AdamW, with these members beside."""
    return f"{{{ADAMW}, {rest}}}"
