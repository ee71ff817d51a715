"""Profiling: `flops_profiler`, `comms_logger`, `timers`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from dslint.schemas.base import HandReadSection, PydanticSection
from dslint.schemas.marks import ExactInt, FalsyPasses, NullRaises, Raises, ReadWith, Since, Truthy

_NOT_A_FLAG = Raises("parse", "TypeError: unsupported operand type(s) for |: 'bool' and 'str'", lets=("int",))


class FlopsProfiler(HandReadSection):
    """Counts the floating point operations, parameters and latency of every module at one training step, and prints a table."""

    enabled: Annotated[bool, _NOT_A_FLAG, NullRaises("parse", "TypeError: unsupported operand type(s) for |: 'bool' and 'NoneType'")] = (
        False
    )
    """Profile the step `profile_step`. It also enables `wall_clock_breakdown`."""

    recompute_fwd_factor: Annotated[
        float,
        Since("0.9.3"),
        ReadWith("enabled"),
        Raises("step", "TypeError: unsupported operand type(s) for +: 'int' and '{type}'", lets=("bool",)),
    ] = 0.0
    """The fraction of the forward pass that is recomputed in the backward pass: 1.0 with activation checkpointing."""

    profile_step: Annotated[
        int,
        ReadWith("enabled"),
        Raises("step", "TypeError: '>=' not supported between instances of 'int' and '{type}'", lets=("bool", "float")),
    ] = 1
    """The training step to profile. The first steps warm up and are not typical."""

    module_depth: Annotated[
        int,
        ReadWith("enabled"),
        ExactInt("0.0.0"),
        Raises("step", "TypeError: '{type}' object cannot be interpreted as an integer", lets=("bool",)),
    ] = -1
    """How deep into the tree of modules the summary goes; -1 is all the way."""

    top_modules: Annotated[
        int,
        ReadWith("enabled"),
        Raises("step", "TypeError: '<' not supported between instances of 'int' and '{type}'", lets=("bool", "float")),
    ] = 1
    """How many modules the summary names at each depth."""

    detailed: Annotated[bool, Truthy()] = True
    """Print the whole tree of modules."""

    output_file: Annotated[
        str | None,
        ReadWith("enabled"),
        FalsyPasses(),
        Raises("step", "TypeError: expected str, bytes or os.PathLike object, not {type}"),
    ] = None
    """The file to write to; absent: standard output."""


class CommsLogger(PydanticSection):
    """Logs every collective: its size, latency and bandwidth. It waits for each one, which slows training down."""

    drops_auto_since: ClassVar[str] = "0.15.0"

    enabled: bool = False
    """Log collectives."""

    prof_all: bool = True
    """Log all of them; otherwise only those in `prof_ops`."""

    prof_ops: list[Any] = Field(default=[])
    """The collectives to log where `prof_all` is false: "all_reduce", "all_gather", or names that the program gives."""

    verbose: bool = False
    """Print a line for each collective as it happens."""

    debug: bool = False
    """Add to each line the function that called the collective."""


class Throughput(PydanticSection):
    """The timer behind the samples per second that DeepSpeed prints."""

    forbids_since: ClassVar[str] = "0.14.3"

    enabled: Annotated[bool, Since("0.14.3")] = True
    """Measure the throughput."""

    synchronized: Annotated[bool, Since("0.14.3")] = True
    """Wait for the GPU before reading the clock: exact, and a little slower."""


class Timers(HandReadSection):
    """The engine's timers."""

    throughput: Annotated[
        Throughput,
        Since("0.14.3"),
        Raises(
            "parse", "TypeError: deepspeed.utils.config.DeepSpeedThroughputTimerConfig() argument after ** must be a mapping, not {type}"
        ),
    ] = Field(default_factory=Throughput)
    """The throughput timer."""
