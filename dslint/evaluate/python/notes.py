"""What is noted of a program: the calls that take a config, and what else it says about its training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from dslint.job.arguments import Arguments, SourcedValue
from dslint.source.tree import Mapping, Span


@dataclass(slots=True)
class Call:
    """A call that takes a config, or with "" as `integration` a definition of one.

    It has the config if the program builds it, otherwise its path in `given`. `as_dict` says that it passes a dict with the numbers of
    Python or its `json`, not the path or what hjson reads.
    `pipeline` is the `PipelineModule` that the program passes as its model, with the number of stages. `engine_backward` is true if the
    program calls the method `backward` of the engine that the call returns.
    `arguments` are the training arguments of the call. `optimizer` is the optimizer that the program passes to `deepspeed.initialize`;
    its value is the full name of the class, `UNKNOWN` if that is not known. `passed` are the names of all arguments of that call, None if
    they are not known. `in_args` is the `deepspeed_config` in the argument `args` of a call that also passes a config.
    """

    integration: str
    given: SourcedValue
    config: Mapping | None = None
    arguments: Arguments | None = None
    optimizer: SourcedValue | None = None
    scheduler: SourcedValue | None = None
    passed: frozenset[str] | None = None
    in_args: SourcedValue | None = None
    as_dict: bool = False
    pipeline: SourcedValue | None = None
    engine_backward: bool = False


@dataclass(slots=True)
class Unread:
    """A call with a config that the program does not contain. `why` says where it comes from.

    `is_part` is true if the program sets some of its keys, which are judged.
    The others are those of `Call`.
    """

    integration: str
    given: SourcedValue
    why: str
    is_part: bool = False
    optimizer: SourcedValue | None = None
    scheduler: SourcedValue | None = None
    passed: frozenset[str] | None = None
    in_args: SourcedValue | None = None
    pipeline: SourcedValue | None = None
    engine_backward: bool = False


class Command(NamedTuple):
    """A command that the program runs, with `HOLE` for each part that is not known. `span` is its place in the file `shown`."""

    text: str
    shown: str
    span: Span


@dataclass(slots=True)
class Facts:
    """What a program says about its training, besides the configs."""

    loaders: set[str] = field(default_factory=set)
    dummy_optimizer: bool = False
    optimizer: SourcedValue | None = None
    legacy: SourcedValue | None = None
    accumulation: SourcedValue | None = None
    mixed_precision: SourcedValue | None = None
    trainer: dict[str, SourcedValue] = field(default_factory=dict)
    strategy: tuple[SourcedValue, ...] = ()
    loose: Arguments | None = None
    device_map: SourcedValue | None = None
    quantized: SourcedValue | None = None
    quantized_storage: bool = False
    loaded_early: SourcedValue | None = None
    makes_trainer: bool = False
    fabric: bool = False
    sets: set[tuple[str, ...]] = field(default_factory=set)
