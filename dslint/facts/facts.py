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


class PassedAs(StrEnum):
    """How `deepspeed.initialize` gets the config."""

    PATH = "path"
    """as the path of a file, which DeepSpeed reads as HJSON: `1e3` is the integer 1000"""
    DICT = "dict"
    """as a dict, which a program or an integration makes or reads as JSON: `1e3` is the float 1000.0"""
    HJSON = "hjson"
    """as a dict, which a program reads with hjson: the numbers are those of a path, and the last of two values counts"""


class Facts(Record):
    """Facts that were given or inferred. None means unknown, and nothing is guessed from it.

    `world_size` is the number of all ranks, on `nodes` machines. `tensor_parallel`, `pipeline_parallel` and `sequence_parallel` say how
    they are divided. `gpu_memory` and `host_memory` (of one machine) are in bytes. `upgrade_from` is the release that ran the config so
    far, where only what changes is asked for.
    `loader_release` is the release of the integration. `passed_as` says how the program passes the config to DeepSpeed.
    `divided_by_program`: the program divides the ranks into groups whose number is not known: among the stages of a pipeline, or with an
    `mpu` or a mesh that it passes.
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
    passed_as: PassedAs | None = None
    divided_by_program: bool = False

    @property
    def is_dict(self) -> bool | None:
        """Whether DeepSpeed gets the config as a dict; every integration passes one. None if it is unknown."""
        if self.passed_as is None:
            return True if self.integration not in (None, Integration.DEEPSPEED) else None
        return self.passed_as is PassedAs.DICT

    @property
    def passes_accelerate(self) -> bool:
        """Whether Accelerate gets the config: alone, or for a Trainer that does not give it to DeepSpeed itself."""
        if self.integration is Integration.TRANSFORMERS:
            return self.loader_release is None or self.loader_release >= _WITH_ACCELERATE
        return self.integration is Integration.ACCELERATE


_WITH_ACCELERATE = Release(4, 30, 0)
"""The first release of transformers whose Trainer uses Accelerate; that of 4.29.2 calls deepspeed.initialize itself."""

NOT_NEEDED = ("loader_release", "passed_as", "divided_by_program")
"""Facts that no rule can need: the release of a loader belongs to the integration, and the others follow from the program."""
