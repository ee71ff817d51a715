"""What is noted of a program: the calls that take a config, and what else it says about its training."""

from __future__ import annotations

from dataclasses import dataclass, field

from dslint.evaluate.reasons import Reason
from dslint.job.arguments import Arguments, Said, SourcedValue
from dslint.record import Record
from dslint.source.tree import Mapping, Span


@dataclass(slots=True)
class ConfigCall:
    """A call that takes a config, or with "" as `integration` a definition of one.

    Its config is one of three: a tree in `config` if the program builds it; a path in `given`; not known, for the `reason`.
    """

    integration: str
    given: SourcedValue
    config: Mapping | None = None
    reason: Reason | None = None
    """Why the program does not say which config the call takes. Such calls are in a list of their own."""
    is_in_use: bool = False
    """Whether a call without a known config gets the one that Accelerate or the Trainer already has: of a launch, which says it."""
    is_part: bool = False
    """Whether the program sets some keys of a config with a `reason`: another call of the same place has them."""
    arguments: Arguments | None = None
    """The training arguments of the call."""
    optimizer: SourcedValue | None = None
    """The optimizer that the program passes to `deepspeed.initialize`: the full name of its class, `UNKNOWN` if that is not known."""
    scheduler: SourcedValue | None = None
    passed: frozenset[str] | None = None
    """The names of all arguments of `deepspeed.initialize`, None if they are not known."""
    through: str = ""
    """The framework that makes the call, of which a file describes the training: `xtuner`."""
    in_args: SourcedValue | None = None
    """The `deepspeed_config` in the argument `args` of a call that also passes a config."""
    as_dict: bool = False
    """Whether the call passes a dict with the numbers of Python or its `json`, not a path or what hjson reads."""
    by_hjson: bool = False
    """Whether the call passes a dict that the program reads with hjson, which keeps the last of two values."""
    pipeline: SourcedValue | None = None
    """The `PipelineModule` that the program passes as its model, with the number of stages."""
    engine_backward: bool = False
    """Whether the program calls the method `backward` of the engine that the call returns."""
    is_built: bool = False
    """Whether the class that the call makes builds the config from its own arguments, because none is passed."""
    ranks: SourcedValue | None = None
    """The number of ranks that the call starts."""
    by_flag: bool = False
    """Whether a flag of the command line has to select the call, besides one about DeepSpeed."""

    @property
    def flag(self) -> str:
        """The flag of the command line that names the config; "" if none does."""
        return self.reason.flag if self.reason is not None else ""


class RunCommand(Record):
    """A command that the program runs, with `HOLE` for each part that is not known. `span` is its place in the file `shown`."""

    text: str
    shown: str
    span: Span


@dataclass(slots=True)
class ProgramFacts:
    """What a program says about its training, besides the configs."""

    loaders: set[str] = field(default_factory=set)
    dummy_optimizer: bool = False
    optimizer: SourcedValue | None = None
    legacy: SourcedValue | None = None
    accumulation: SourcedValue | None = None
    mixed_precision: SourcedValue | None = None
    trainer: dict[str, SourcedValue] = field(default_factory=dict)
    trainer_complete: bool = False
    strategy: tuple[SourcedValue, ...] = ()
    loose: Arguments | None = None
    set_late: SourcedValue | None = None
    """The config that the program sets in arguments of the Trainer which are made."""
    device_map: SourcedValue | None = None
    quantized: SourcedValue | None = None
    quantized_storage: SourcedValue | None = None
    loaded_early: SourcedValue | None = None
    makes_trainer: bool = False
    fabric: bool = False
    lightning_trainer: bool = False
    several_optimizers: SourcedValue | None = None
    unknown_strategy: Said | None = None
    loader_batches: list[SourcedValue] = field(default_factory=list)
    """The batch sizes of the data loaders that the program makes, `UNKNOWN` where one is not known."""
    makes_accelerator: bool = False
    models: list[SourcedValue] = field(default_factory=list)
    """What the program loads with `from_pretrained` of a model's class, `UNKNOWN` where a flag decides."""
    default_models: list[SourcedValue] = field(default_factory=list)
    """The same, where a flag decides with the flag's default; the value is None if that is not known, too."""
    train_data: list[SourcedValue] = field(default_factory=list)
    """The arguments `train_dataset` of the trainers, each with the number of its rows, `UNKNOWN` if that is not certain."""
    sets: set[tuple[str, ...]] = field(default_factory=set)
