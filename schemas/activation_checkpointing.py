"""The `activation_checkpointing` section."""

from __future__ import annotations

from typing import Annotated

from dslint.schemas.base import HandReadSection
from dslint.schemas.marks import Passes, Truthy


class ActivationCheckpointing(HandReadSection):
    """How `deepspeed.checkpointing` keeps the inputs of checkpointed layers. The engine itself does not checkpoint activations.

    The section takes effect only if the program calls `deepspeed.checkpointing.configure` with this config and wraps its layers in
    `deepspeed.checkpointing.checkpoint`, as Megatron-DeepSpeed does.
    """

    partition_activations: Annotated[bool, Truthy()] = False
    """Partition each checkpointed activation over the tensor-parallel ranks and gather it in the backward pass. Reduces memory by
    their number and costs an all-gather each; without tensor parallelism it has no effect."""

    cpu_checkpointing: Annotated[bool, Truthy()] = False
    """Keep the checkpointed activations in host memory. Costs a transfer over PCIe in each direction for each of them."""

    contiguous_memory_optimization: Annotated[bool, Truthy()] = False
    """Copy the checkpointed activations into one preallocated buffer, against fragmentation. Requires `partition_activations` and
    `number_checkpoints`."""

    number_checkpoints: Annotated[int | None, Passes("deepspeed.checkpointing multiplies buffer sizes with it without a check")] = None
    """How many activations are checkpointed on a rank: the number of checkpointed layers. Sizes the contiguous buffer."""

    synchronize_checkpoint_boundary: Annotated[bool, Truthy()] = False
    """Wait for the GPU at the beginning and end of every checkpointed layer. For timing only: it slows training down."""

    profile: Annotated[bool, Truthy()] = False
    """Log how long the forward and backward of each checkpointed layer take."""
