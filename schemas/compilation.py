"""The `compile` section."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from dslint.schemas.base import PydanticSection
from dslint.schemas.marks import Open, Since, Until


class Compile(PydanticSection):
    """DeepCompile: PyTorch's compiler with passes that schedule ZeRO's communication and offload. The program calls `engine.compile()`."""

    forbids_since: ClassVar[str] = "0.13.2"

    deepcompile: Annotated[bool, Since("0.16.6")] = False
    """Let `engine.compile()` run DeepSpeed's passes; otherwise it only calls `torch.compile`."""

    passes: Annotated[list[Literal["z1", "z3", "autosp", "autotp"]] | None, Since("0.18.9")] = None
    """The passes to run. Default: those for the ZeRO stage."""

    free_activation: Annotated[bool, Since("0.16.6")] = False
    """Free activations after their last use."""

    free_activation_threshold: Annotated[int, Since("0.18.0")] = 10485760
    """The minimum size in bytes for `free_activation`."""

    offload_activation: Annotated[bool, Since("0.16.6")] = False
    """Move activations to pinned host memory between forward and backward. Cannot be combined with `offload_parameters` or
    `offload_opt_states`."""

    offload_activation_pin_memory: Annotated[bool, Since("0.19.6")] = True
    """Pin the host memory of offloaded activations: faster copies, but the memory cannot be swapped out."""

    offload_opt_states: Annotated[bool, Since("0.16.6")] = False
    """Move optimizer states and master weights to pinned host memory between optimizer steps. For one accumulation step; cannot
    be combined with `offload_parameters`."""

    offload_parameters: Annotated[bool, Since("0.16.6")] = False
    """Move unused parameters to host memory."""

    double_buffer: Annotated[bool, Since("0.16.6")] = True
    """Reduce gradients from one buffer while another is filled."""

    symmetric_memory: Annotated[bool, Since("0.16.6")] = False
    """Communicate through PyTorch's symmetric memory."""

    debug_log: Annotated[bool, Since("0.16.6")] = False
    """Write the compiled graphs to disk."""

    sync_before_reduce: Annotated[bool, Since("0.16.6")] = False
    """Wait for the GPU before each reduction. For debugging; slow."""

    sync_after_reduce: Annotated[bool, Since("0.16.6")] = False
    """Wait for the GPU after each reduction. For debugging; slow."""

    sync_before_allgather: Annotated[bool, Since("0.16.6")] = False
    """Wait for the GPU before each all-gather. For debugging; slow."""

    sync_after_allgather: Annotated[bool, Since("0.16.6")] = False
    """Wait for the GPU after each all-gather. For debugging; slow."""

    keep_int_input_tensors: Annotated[bool, Since("0.17.2")] = True
    """Keep integer inputs of the graph for the backward pass instead of recording where they come from."""

    keep_all_input_tensors: Annotated[bool, Since("0.17.2")] = False
    """Keep all inputs of the graph for the backward pass."""

    autoep_non_moe: Annotated[bool, Since("0.19.8")] = False
    """Compile the layers around those of AutoEP, but not AutoEP's layers."""

    enabled: Annotated[bool, Until("0.14.3", then="unknown", note="Call engine.compile() in the program.")] = False
    """Compile the module in `deepspeed.initialize`, as 0.13.2 to 0.14.3 did."""

    backend: Annotated[str, Until("0.14.3", then="unknown", note="Pass it to engine.compile().")] = "inductor"
    """The backend of `torch.compile`."""

    kwargs: Annotated[dict[str, Any], Open(), Until("0.14.3", then="unknown", note="Pass them to engine.compile().")] = Field(default={})
    """Arguments of `torch.compile`."""
