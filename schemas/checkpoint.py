"""Checkpoints: `checkpoint` and `datastates_ckpt`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from dslint.schemas.base import HandReadSection
from dslint.schemas.marks import Folded, NullRaises, OutOfRange, Passes, Raises, Since, Truthy

_NO_UPPER = "AttributeError: 'NoneType' object has no attribute 'upper'"


class ParallelWrite(HandReadSection):
    """Who writes a checkpoint."""

    pipeline_stage: Annotated[
        bool | Annotated[int, Field(ge=0, le=1)],
        Raises("parse", "DeepSpeedConfigError: checkpoint::parallel_write::pipeline_stage value"),
        OutOfRange("parse", "DeepSpeedConfigError: checkpoint::parallel_write::pipeline_stage value"),
    ] = False
    """Let the data-parallel ranks of a pipeline stage share the writing of its layers."""


class Writer(HandReadSection):
    """The fast writer: checkpoints that go to disk beside training."""

    type: Annotated[
        Literal["MOCK", "PYTHON", "FAST"] | None, Folded(), Raises("parse", "AssertionError: writer contains invalid value")
    ] = "FAST"
    """How files are written: FAST by asynchronous I/O, PYTHON by Python's own files, MOCK not at all."""

    io_buffer_size: Annotated[int, Passes("the writer allocates it as it stands")] = 67108864
    """Bytes of the buffer between GPU and disk."""

    io_buffer_double: Annotated[bool, Truthy()] = True
    """Keep two buffers: one is filled while the other is written. Takes the memory twice."""

    io_multiplier: Annotated[int, Passes("the writer uses it as it stands")] = 1
    """Data-parallel ranks per writing rank, as a factor on the default choice."""

    data_parallel: Annotated[
        Literal["REPLICA", "SOCKET", "MACHINE"] | None, Folded(), Raises("parse", "AssertionError: writer contains invalid value")
    ] = None
    """Which data-parallel ranks share the writing of what they all hold."""

    show_statistics: Annotated[bool, Truthy()] = False
    """Print how fast the checkpoint was written."""

    decoupled: Annotated[bool, Truthy()] = False
    """Write in a process of its own while training goes on; costs host memory for a whole copy."""


class Checkpoint(HandReadSection):
    """How `save_checkpoint` and `load_checkpoint` work."""

    tag_validation: Annotated[
        Literal["WARN", "IGNORE", "FAIL"],
        Folded(),
        Raises("parse", "DeepSpeedConfigError: Checkpoint config contains invalid tag_validation"),
        NullRaises("parse", _NO_UPPER),
    ] = "WARN"
    """What to do when ranks give a checkpoint different tags."""

    load_universal: Annotated[bool, Truthy()] = False
    """Load a universal checkpoint: one that was converted to be resumed with another number of ranks or another kind of parallelism."""

    use_node_local_storage: Annotated[bool, Truthy()] = False
    """Checkpoints go to storage that each node has for itself: one rank of every node writes what otherwise rank 0 alone writes."""

    parallel_write: Annotated[ParallelWrite, Raises("parse", "AttributeError: 'str' object has no attribute 'get'")] = Field(
        default_factory=ParallelWrite
    )
    """Who writes a checkpoint."""

    checkpoint_serialization: Annotated[bool, Since("0.17.1"), Truthy()] = True
    """Write files in PyTorch's own format."""

    writer: Annotated[Writer | None, Since("0.17.1"), Raises("parse", "AttributeError: 'str' object has no attribute 'get'")] = None
    """The fast writer; absent: files are written by `torch.save`."""


class DataStates(HandReadSection):
    """The DataStates checkpoint engine, which copies to host memory and writes in the background. Anything but false turns it on.

    Its keys are those of the package, which DeepSpeed hands on unread.
    """

    model_config = ConfigDict(extra="allow")
    unknown_keys: ClassVar[str] = "open"
