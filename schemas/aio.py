"""The `aio` section."""

from __future__ import annotations

from typing import Annotated

from dslint.schemas.base import HandReadSection
from dslint.schemas.marks import Raises, Since, Truthy, Until

_NO_NUMBER = Raises("initialize", "TypeError: incompatible function arguments", lets=("bool",))


class Aio(HandReadSection):
    """How files are read and written when parameters or optimizer states are offloaded to NVMe. Without such offload it has no effect."""

    block_size: Annotated[int, _NO_NUMBER] = 1048576
    """Bytes that one request reads or writes."""

    queue_depth: Annotated[int, _NO_NUMBER] = 8
    """Concurrent requests."""

    intra_op_parallelism: Annotated[int, Since("0.16.4"), _NO_NUMBER] = 1
    """Threads that share one read or write."""

    thread_count: Annotated[int, Until("0.16.3", then="ignored", use="aio.intra_op_parallelism")] = 1
    """The former name of `intra_op_parallelism`."""

    single_submit: Annotated[bool, Truthy()] = False
    """Submit requests one by one instead of in batches."""

    overlap_events: Annotated[bool, Truthy()] = True
    """Submit requests while waiting for earlier ones."""

    use_gds: Annotated[bool, Since("0.15.0"), Truthy()] = False
    """Move data between NVMe and GPU directly (GPUDirect Storage) instead of through host memory."""
