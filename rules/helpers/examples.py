"""What the examples of several chapters are written with."""

from __future__ import annotations

MINIMAL = '"train_micro_batch_size_per_gpu": 4'
"""The member that every config needs to train."""

ADAMW = f'{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}'
"""The members of a config that trains with an optimizer of its own."""


def trained(rest: str) -> str:
    """The text of a config that DeepSpeed trains with AdamW, with these members beside."""
    return f"{{{ADAMW}, {rest}}}"
