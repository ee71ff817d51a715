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
    """The passes to run. Absent: those that go with the ZeRO stage."""

    free_activation: Annotated[bool, Since("0.16.6")] = False
    """Free activations as soon as their last use is over."""

    free_activation_threshold: Annotated[int, Since("0.18.0")] = 10485760
    """Bytes from which on `free_activation` frees an activation."""

    offload_activation: Annotated[bool, Since("0.16.6")] = False
    """Move activations to pinned host memory between forward and backward. Not together with `offload_parameters` or
    `offload_opt_states`."""

    offload_activation_pin_memory: Annotated[bool, Since("0.19.6")] = True
    """Pin the host memory of offloaded activations: faster copies, but the memory cannot be swapped out."""

    offload_opt_states: Annotated[bool, Since("0.16.6")] = False
    """Move optimizer states and master weights to pinned host memory between optimizer steps. Meant for one accumulation step; not
    together with `offload_parameters`."""

    offload_parameters: Annotated[bool, Since("0.16.6")] = False
    """Move parameters to host memory while they are not used."""

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
    """Compile the layers around those of AutoEP, and leave AutoEP's own as they are."""

    enabled: Annotated[bool, Until("0.14.3", then="unknown", note="Call engine.compile() in the program.")] = False
    """Compile the module in `deepspeed.initialize`, as 0.13.2 to 0.14.3 did."""

    backend: Annotated[str, Until("0.14.3", then="unknown", note="Pass it to engine.compile().")] = "inductor"
    """The backend of `torch.compile`."""

    kwargs: Annotated[dict[str, Any], Open(), Until("0.14.3", then="unknown", note="Pass them to engine.compile().")] = Field(default={})
    """Arguments of `torch.compile`."""
