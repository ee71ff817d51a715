"""Configs that ship with frameworks: DeepSpeed configs of ms-swift and Accelerate configs of TRL, by their names."""

from __future__ import annotations

import json

from dslint.source.parse import parse
from dslint.source.tree import Document
from dslint.source.yaml_tree import parse_yaml

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


_OF_TRL = {
    "zero1": {"zero_stage": "1", "zero3_init_flag": "false"},
    "zero2": {"zero_stage": "2", "offload_optimizer_device": "none", "offload_param_device": "none", "zero3_init_flag": "false"},
    "zero3": {
        "zero_stage": "3",
        "offload_optimizer_device": "none",
        "offload_param_device": "none",
        "zero3_init_flag": "true",
        "zero3_save_16bit_model": "true",
    },
}
"""By name: the block `deepspeed_config`. The accumulation steps of zero1, 1 or "auto" by the release of TRL, are left out."""

_OF_ALL_OF_TRL = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"


def built_in_accelerate(name: str) -> Document | None:
    """The Accelerate config that `trl sft --accelerate_config NAME` uses if there is no file of that name; None for any other name.

    Source: the folder `accelerate_configs` of TRL, release 0.24.0. A launch uses it as `accelerate launch --config_file` does.
    """
    block = _OF_TRL.get(name)
    if block is None:
        return None
    lines = "".join(f"  {key}: {value}\n" for key, value in block.items())
    return parse_yaml(f"{_OF_ALL_OF_TRL}deepspeed_config:\n{lines}")
