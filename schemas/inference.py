"""Sections that concern inference inside a training config: `hybrid_engine` and `weight_quantization`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from dslint.schemas.base import PydanticSection
from dslint.schemas.marks import Bounds, Open, Since


class HybridEngine(PydanticSection):
    """One engine that trains and generates in turn, for reinforcement learning from feedback (DeepSpeed-Chat)."""

    enabled: bool = False
    """Build the hybrid engine."""

    max_out_tokens: Annotated[int, Bounds("0.19.6")] = Field(default=512, gt=0)
    """Prompt and answer together have at most this many tokens. Sizes the buffers of the generation kernels."""

    inference_tp_size: int = 1
    """Ranks that share a model in generation (tensor parallelism)."""

    release_inference_cache: bool = False
    """Free the generation buffers before each training step. Saves memory at the cost of allocating them each time."""

    pin_parameters: bool = True
    """Keep parameters gathered for generation in pinned host memory."""

    tp_gather_partition_size: int = 8
    """Layers that are gathered at once when the model is laid out for generation."""

    enable_cuda_graph: Annotated[bool, Since("0.19.6")] = False
    """Run generation as a CUDA graph."""


class WeightQuantization(PydanticSection):
    """Quantize weights when an inference engine loads them."""

    forbids_since: ClassVar[str] = "0.10.3"

    enabled: Annotated[bool, Since("0.10.3")] = True
    """Quantize."""

    num_bits: Annotated[int, Since("0.10.3")] = 8
    """Bits for each weight."""

    q_type: Annotated[Literal["asymmetric", "symmetric"], Since("0.10.3")] = "symmetric"
    """Whether the range of a group is centred on zero."""

    q_groups: Annotated[int, Since("0.10.3")] = 1
    """Groups that a weight matrix is divided into, each with its own scale."""

    quantized_initialization: Annotated[dict[str, Any], Since("0.10.3"), Open()] = Field(default={})
    """Quantize as the model is built, a layer at a time: num_bits, group_size, group_dim, symmetric."""

    post_init_quant: Annotated[dict[str, Any], Since("0.10.3"), Open()] = Field(default={})
    """Quantize after the model is built: by module name, num_bits, group_size, group_dim, symmetric."""
