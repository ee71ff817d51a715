"""Facts that a config does not contain: world size, loader, DeepSpeed release, hardware, model."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from dslint.facts.release import NEWEST, Release
from dslint.record import Record

if TYPE_CHECKING:
    from dslint.facts.gpus import Gpu
    from dslint.facts.model_config import ModelConfig


class Integration(StrEnum):
    """The loader of the config, which may fill "auto"."""

    TRANSFORMERS = "transformers"
    """the Hugging Face Trainer (`TrainingArguments(deepspeed=...)`)"""
    ACCELERATE = "accelerate"
    """Hugging Face Accelerate without the Trainer"""
    LIGHTNING = "lightning"
    """PyTorch Lightning's `DeepSpeedStrategy`"""
    DEEPSPEED = "deepspeed"
    """no loader: the program calls `deepspeed.initialize` itself"""

    @property
    def label(self) -> str:
        """The name as shown to users."""
        return _LABELS[self]


_LABELS = {
    Integration.TRANSFORMERS: "the Hugging Face Trainer",
    Integration.ACCELERATE: "Accelerate",
    Integration.LIGHTNING: "Lightning",
    Integration.DEEPSPEED: "DeepSpeed itself",
}


class Facts(Record):
    """Facts that were given or inferred. None means unknown, and nothing is guessed from it.

    `world_size` is the number of all ranks, on `nodes` machines. `tensor_parallel`, `pipeline_parallel` and `sequence_parallel` say how
    they are divided. `gpu_memory` and `host_memory` (of one machine) are in bytes. `upgrade_from` is the release that ran the config so
    far, where only what changes is asked for.
    `loader_release` is the release of the integration.
    """

    world_size: int | None = None
    integration: Integration | None = None
    deepspeed: Release = NEWEST
    upgrade_from: Release | None = None
    nodes: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    sequence_parallel: int | None = None
    gpu: Gpu | None = None
    gpu_memory: int | None = None
    host_memory: int | None = None
    model: ModelConfig | None = None
    loader_release: Release | None = None
