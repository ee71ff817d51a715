"""A setup: everything that was found beside a DeepSpeed config, for the rules to compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dslint.setup.accelerate import AccelerateFile
from dslint.setup.arguments import Arguments, SourcedValue
from dslint.source.tree import Document


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch command: who launches, and on how many ranks. None is "it does not say"; `world_size` is `processes` x `nodes`.

    `given` is the flag, or the line, that the number of ranks is read from. `gpus` is how many GPUs the job has in all, by a hostfile or by
    what it asks of Slurm, and `gpus_given` where that stands.
    """

    launcher: str
    world_size: int | None = None
    nodes: int | None = None
    given: SourcedValue | None = None
    gpus: int | None = None
    gpus_given: SourcedValue | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """What a Python program says of itself, read from its syntax tree: which loader it calls, and what it makes for Accelerate.

    `loader` is the value of a `dslint.facts.Integration`, or None where the program calls none, or several. `accumulation` is what
    it asks of `Accelerator(gradient_accumulation_steps=...)`, `trainer` the arguments of Lightning's `Trainer`, and `strategy` those that
    stand beside the config in its `DeepSpeedStrategy`, and set what a config sets.
    """

    path: str
    loader: str | None = None
    dummy_optimizer: bool = False
    torch_optimizer: SourcedValue | None = None
    legacy_keyword: SourcedValue | None = None
    accumulation: SourcedValue | None = None
    trainer: Mapping[str, SourcedValue] = field(default_factory=dict)
    strategy: tuple[SourcedValue, ...] = ()


@dataclass(frozen=True, slots=True)
class Setup:
    """What stands beside a config.

    `link` is what leads to the config, None for one that a person named. `missing` are links that lead nowhere, `passed_over` is a link
    to a config that does not count because another one does. `config` is the shown path of the config.
    """

    arguments: Arguments | None = None
    accelerate: AccelerateFile | None = None
    launch: Launch | None = None
    program: Program | None = None
    link: SourcedValue | None = None
    missing: tuple[SourcedValue, ...] = ()
    passed_over: SourcedValue | None = None
    config: str | None = None
    made: bool = False
    """Whether there is no config file, and Accelerate makes the config of its own block."""
    documents: Mapping[str, Document] = field(default_factory=dict, compare=False, repr=False)
    """The files of the setup by their shown names."""

    @property
    def trains_with_trainer(self) -> bool:
        """Whether arguments of the Hugging Face Trainer are known."""
        return self.arguments is not None
