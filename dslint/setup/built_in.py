"""The configs that ship with ms-swift, under the names that its `deepspeed` argument accepts."""

from __future__ import annotations

import json

from dslint.source.parse import parse
from dslint.source.tree import Document

FRAMEWORK = "ms-swift"

_NAMES = {
    **{f"zero{stage}": (stage, False) for stage in range(4)},
    **{f"default-zero{stage}": (stage, False) for stage in (2, 3)},
    **{f"zero{stage}{joint}offload": (stage, True) for stage in (2, 3) for joint in "_-"},
}
"""The names, each with the ZeRO stage and whether optimizer and parameters are offloaded to the CPU."""


def built_in(name: str) -> Document | None:
    """The config of a name, with the keys that all releases of ms-swift agree on; None for any other name.

    Source: the folder `ds_config` of ms-swift. Up to release 2 the configs also had an optimizer and a schedule, filled by the Trainer.
    """
    if name not in _NAMES:
        return None
    stage, offload = _NAMES[name]
    zero: dict[str, object] = {"stage": stage}
    if offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if offload and stage == 3:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    if stage == 3:
        sizes = ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
        zero |= {**dict.fromkeys(sizes, "auto"), "stage3_gather_16bit_weights_on_model_save": True}
    batch = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
    config = {
        "fp16": {"enabled": "auto"},
        "bf16": {"enabled": "auto"},
        "zero_optimization": zero,
        **dict.fromkeys(batch, "auto"),
    }
    return parse(json.dumps(config, indent=2))
