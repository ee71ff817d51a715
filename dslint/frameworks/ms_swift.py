"""ms-swift: flags or a YAML file with `model` and `tuner_type`, started with `swift sft`, and the DeepSpeed configs that ship with it."""

from __future__ import annotations

import json

from dslint.facts import Integration
from dslint.frameworks.base import Framework, Uses, Workload
from dslint.schemas.recognition import TRAINER_KEYS
from dslint.source.parse import parse
from dslint.source.tree import Document

_NAMES = {
    **{f"zero{stage}": (stage, False) for stage in range(4)},
    **{f"default-zero{stage}": (stage, False) for stage in (2, 3)},
    **{f"zero{stage}{joint}offload": (stage, True) for stage in (2, 3) for joint in "_-"},
}
"""The names, each with the ZeRO stage and whether optimizer and parameters are offloaded to the CPU."""


def config_by_name(name: str) -> Document | None:
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


def _recognises(names: frozenset[str], uses: Uses) -> bool:  # noqa: ARG001 - other frameworks ask for packages
    own = names & {"train_type", "tuner_type", "swift_version", "target_modules"}
    return "model" in names and bool(own) and len(names & TRAINER_KEYS) >= 2


FRAMEWORK = Framework(
    "ms-swift",
    Integration.TRANSFORMERS,
    packages=("ms-swift", "swift"),
    commands=("swift",),
    recognises=_recognises,
    config_by_name=config_by_name,
    starts_ranks=True,
    workload=Workload(
        checkpoints="ms-swift",
        trains_adapters=True,
        lora_rank=8,
        lora_dropout=0.05,
        freezes="freeze_vit",
        zero_init=True,
        vllm_share=0.9,
        shares_loss=True,
    ),
)
