"""How the Hugging Face loaders compute what they put in the place of "auto": from which arguments, or from the size of the model.

`FILLED` in `schemas/auto.py` says it in words. Plain data for `check`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class Way(Enum):
    """How a value is computed from arguments."""

    SAME = auto()
    """the argument's value"""
    PAIR = auto()
    """a list of two arguments"""
    ANY = auto()
    """true if one of the arguments is"""
    BATCH = auto()
    """the product of the arguments and the world size"""
    STEPS = auto()
    """a number of steps, unknown where it is not positive"""
    WARMUP = auto()
    """the steps of a warm-up, from steps, ratio and all steps"""


class Filling(NamedTuple):
    """The arguments that fill a key, and how. `label` is what the Trainer calls them in its error, if not by the first argument's name."""

    arguments: tuple[str, ...]
    way: Way = Way.SAME
    label: str | None = None

    @property
    def name(self) -> str:
        """The name in the Trainer's error."""
        return self.label or self.arguments[0]


FILLINGS: dict[str, Filling] = {
    "train_micro_batch_size_per_gpu": Filling(("per_device_train_batch_size",)),
    "gradient_accumulation_steps": Filling(("gradient_accumulation_steps",)),
    "train_batch_size": Filling(("per_device_train_batch_size", "gradient_accumulation_steps"), Way.BATCH, "train_batch_size (calculated)"),
    "gradient_clipping": Filling(("max_grad_norm",)),
    "optimizer.params.lr": Filling(("learning_rate",)),
    "optimizer.params.betas": Filling(("adam_beta1", "adam_beta2"), Way.PAIR, "adam_beta1+adam_beta2"),
    "optimizer.params.eps": Filling(("adam_epsilon",)),
    "optimizer.params.weight_decay": Filling(("weight_decay",)),
    "scheduler.params.warmup_max_lr": Filling(("learning_rate",)),
    "scheduler.params.warmup_num_steps": Filling(("warmup_steps", "warmup_ratio", "max_steps"), Way.WARMUP),
    "scheduler.params.total_num_steps": Filling(("max_steps",), Way.STEPS, "num_training_steps (calculated)"),
    "fp16.enabled": Filling(("fp16", "fp16_full_eval"), Way.ANY, "fp16|fp16_full_eval"),
    "bf16.enabled": Filling(("bf16", "bf16_full_eval"), Way.ANY, "bf16|bf16_full_eval"),
}
"""For each key, the arguments of the Hugging Face Trainer that fill it and that it is compared with, in the Trainer's order."""

ZEROS = frozenset({"scheduler.params.warmup_min_lr"})
"""Keys that the loaders fill with 0."""

FROM_HIDDEN_SIZE: dict[str, tuple[float, int]] = {
    "zero_optimization.reduce_bucket_size": (1, 2),
    "zero_optimization.stage3_prefetch_bucket_size": (0.9, 2),
    "zero_optimization.stage3_param_persistence_threshold": (10, 1),
}
"""Keys that follow from the model's hidden size: the factor, and the power of the size."""

MIXED_PRECISION: dict[str, tuple[str, ...]] = {"fp16.enabled": ("fp16",), "bf16.enabled": ("bf16", "fp8")}
"""Keys that Accelerate fills from its `mixed_precision`: the values that make them true."""
