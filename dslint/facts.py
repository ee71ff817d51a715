"""What a config cannot say about itself: how many ranks, who loads it, and which DeepSpeed will run it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dslint.checkpoint import CheckpointFacts
    from dslint.hardware import Gpu
    from dslint.model_config import ModelConfig
    from dslint.policy import Policy
    from dslint.setup.model import Setup


class Integration(StrEnum):
    """Who reads the config before DeepSpeed does, and so who replaces "auto"."""

    TRANSFORMERS = "transformers"
    """the Hugging Face Trainer (`TrainingArguments(deepspeed=...)`)"""
    ACCELERATE = "accelerate"
    """Hugging Face Accelerate without the Trainer"""
    LIGHTNING = "lightning"
    """PyTorch Lightning's `DeepSpeedStrategy`"""
    DEEPSPEED = "deepspeed"
    """nobody: the program calls `deepspeed.initialize` itself"""

    @property
    def label(self) -> str:
        """The name as people write it."""
        return _LABELS[self]


_LABELS = {
    Integration.TRANSFORMERS: "the Hugging Face Trainer",
    Integration.ACCELERATE: "Accelerate",
    Integration.LIGHTNING: "Lightning",
    Integration.DEEPSPEED: "DeepSpeed alone",
}


class Release(NamedTuple):
    """A DeepSpeed release, comparable: `Release(0, 16, 9) < Release(0, 19, 8)`."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @classmethod
    def parse(cls, text: str) -> Release:
        """Read `0.16.9`, `v0.16.9`, `0.16` (its last patch) or a development build such as `0.19.2+abc`.

        Raises:
            ValueError: the text is not a release number.
        """
        words = text.strip().removeprefix("v").partition("+")[0].split(".")
        if not 2 <= len(words) <= 4 or not all(word.isascii() and word.isdecimal() and len(word) < 6 for word in words[:3]):
            raise ValueError(text)
        numbers = [int(word) for word in words[:3]]
        return cls(numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else LAST_PATCH.get((numbers[0], numbers[1]), 99))


LAST_PATCH = {
    (0, 9): 5,
    (0, 10): 3,
    (0, 11): 2,
    (0, 12): 6,
    (0, 13): 5,
    (0, 14): 5,
    (0, 15): 4,
    (0, 16): 9,
    (0, 17): 6,
    (0, 18): 9,
    (0, 19): 8,
}
"""The last patch release of each minor release that dslint knows."""

RELEASES = tuple(Release(*minor, patch) for minor, last in LAST_PATCH.items() for patch in range(last + 1))
"""Every release that dslint knows, the oldest first."""

OLDEST = Release(0, 9, 0)
NEWEST = Release(0, 19, 8)


class Upgrade(NamedTuple):
    """From one release to another, as `0.14.5..0.19.8` says; without its end, to the newest."""

    start: Release
    to: Release

    def __str__(self) -> str:
        return f"{self.start}..{self.to}"

    @classmethod
    def parse(cls, text: str) -> Upgrade:
        """Read `0.14.5..0.19.8` or `0.14.5..`.

        Raises:
            ValueError: the text is no such thing, or does not lead upwards.
        """
        start, dots, to = text.partition("..")
        upgrade = cls(Release.parse(start), Release.parse(to) if to.strip() else NEWEST)
        if not dots or upgrade.start >= upgrade.to:
            raise ValueError(text)
        return upgrade


@dataclass(frozen=True, slots=True)
class Facts:
    """What was given (or plainly follows) beside the file. None is unknown, and nothing is guessed from it.

    `world_size` is the number of all ranks, on `nodes` machines. `tensor_parallel`, `pipeline_parallel` and `sequence_parallel` say how
    they are divided. `gpu_memory` and `host_memory` (of one machine) are in bytes. `upgrade_from` is the release that ran the config so
    far, where only what changes is asked for. `checkpoint` is what the run is to resume, `policy`
    what the team asks for.
    `loader_release` is the release of the integration.
    `inferred` maps a fact's name to the evidence it was inferred from. `setup` are the files that the config was found with.
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
    policy: Policy | None = None
    checkpoint: CheckpointFacts | None = None
    loader_release: Release | None = None
    inferred: tuple[tuple[str, str], ...] = ()
    setup: Setup | None = field(default=None, compare=False, repr=False)


BESIDE = ("inferred", "setup", "loader_release")
"""The fields of `Facts` that are no facts themselves, or a part of another one."""
