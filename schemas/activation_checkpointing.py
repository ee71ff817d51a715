"""The `activation_checkpointing` section."""

from __future__ import annotations

from typing import Annotated

from dslint.schemas.base import HandReadSection
from dslint.schemas.marks import Passes, Truthy


class ActivationCheckpointing(HandReadSection):
    """How `deepspeed.checkpointing` keeps the inputs of checkpointed layers. The engine itself checkpoints nothing.

    The section takes effect where the program calls `deepspeed.checkpointing.configure` with this config and wraps its layers in
    `deepspeed.checkpointing.checkpoint`, as Megatron-DeepSpeed does. Everywhere else it does nothing.
    """

    partition_activations: Annotated[bool, Truthy()] = False
    """Divide each checkpointed activation among the ranks of tensor parallelism and gather it again in the backward pass. Saves memory by
    their number, costs an all-gather for each; without tensor parallelism it divides nothing."""

    cpu_checkpointing: Annotated[bool, Truthy()] = False
    """Keep the checkpointed activations in host memory. Costs a transfer over PCIe in each direction for every one of them."""

    contiguous_memory_optimization: Annotated[bool, Truthy()] = False
    """Copy the checkpointed activations into one buffer that is allocated ahead, against fragmentation. Needs `partition_activations` and
    `number_checkpoints`."""

    number_checkpoints: Annotated[int | None, Passes("deepspeed.checkpointing multiplies buffer sizes with it as it stands")] = None
    """How many activations are checkpointed on a rank: the number of checkpointed layers. Sizes the contiguous buffer."""

    synchronize_checkpoint_boundary: Annotated[bool, Truthy()] = False
    """Wait for the GPU at the beginning and end of every checkpointed layer. For timing only: it slows training down."""

    profile: Annotated[bool, Truthy()] = False
    """Log how long the forward and backward of each checkpointed layer take."""
