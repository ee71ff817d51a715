"""Axolotl: a YAML file with `base_model` and `datasets`, started with `axolotl train`."""

from __future__ import annotations

from typing import Any

from dslint.facts import Integration
from dslint.frameworks.base import Framework, Uses, Workload
from dslint.source.unknown import UNKNOWN


def _recognises(names: frozenset[str], uses: Uses) -> bool:  # noqa: ARG001 - other frameworks ask for packages
    return "base_model" in names and bool(names & {"micro_batch_size", "datasets", "sequence_len", "adapter"})


def _reads(name: str, value: Any) -> Any:
    """`bf16: auto` depends on the GPU; `full` means bf16 weights without mixed precision."""
    return UNKNOWN if name in ("bf16", "fp16") and not isinstance(value, bool) else value


FRAMEWORK = Framework(
    "axolotl",
    Integration.TRANSFORMERS,
    packages=("axolotl",),
    commands=("axolotl",),
    modules=("axolotl",),
    recognises=_recognises,
    names={"micro_batch_size": "per_device_train_batch_size", "optimizer": "optim", "lr_scheduler": "lr_scheduler_type"},
    reads=_reads,
    unset={"gradient_accumulation_steps": (0,)},
    is_sure=True,
    errors={"fsdp": "deepspeed and fsdp cannot be used together"},
    workload=Workload(length=512, lora_dropout=0.0, zero_init=True, evaluates_a_share=True),
)
