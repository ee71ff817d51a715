"""Parallelism in addition to ZeRO: `tensor_parallel`, `expert_parallel`, `pipeline`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from dslint.schemas.base import HandReadSection, PydanticSection
from dslint.schemas.marks import AutoIsReal, Kind, Open, OutOfRange, Passes, Raises, ReadWith, Since, Truthy

_ON = ReadWith("enabled")
_USED_AS_IT_IS = Passes("DeepSpeed does not check it, and the replaced layers use it as it is")


def _refused(error: str, *lets: Kind) -> Raises:
    """What `validate_autoep_config` does with a wrong value: it runs in `deepspeed.initialize`, where the section is enabled."""
    return Raises("initialize", f"ValueError: {error}", lets=lets)


def _named(name: str) -> Raises:
    """A name that has to be a string."""
    return _refused(f"{name} must be a non-empty string")


_UNREAD = Passes("DeepSpeed never reads it")


class Tp(PydanticSection):
    """The tensor parallel ranks, for programs that build the groups themselves."""

    forbids_since: ClassVar[str] = "0.16.4"

    tp_size: Annotated[int, Since("0.16.4")] = 1
    """Ranks that share each layer."""

    tp_grain_size: Annotated[int, Since("0.16.4")] = 1
    """Partition sizes are multiples of this. Not used in training."""

    mpu: Annotated[Any, Since("0.16.4")] = None
    """A model parallel unit: an object that only a program can pass."""

    tp_group: Annotated[Any, Since("0.16.4")] = None
    """A process group: an object that only a program can pass."""


class TensorParallel(PydanticSection):
    """AutoTP: splits the layers of a Hugging Face model over GPUs without changes to its code."""

    forbids_since: ClassVar[str] = "0.16.4"

    autotp_size: Annotated[int, Since("0.16.4")] = 0
    """Ranks that share each layer; 0 is off. They see the same data: the data parallel size is the world size divided by this."""

    dtype: Annotated[Literal["auto"], Since("0.16.4")] = "auto"
    """A torch data type that only a program can pass; in a file every value except "auto" is rejected."""

    tp_overlap_comm: Annotated[bool, Since("0.16.6")] = False
    """Overlap all-reduce with computation."""

    vocab_parallel_lm_head: Annotated[bool | None, Since("0.19.8")] = None
    """Split the output layer by vocabulary. Default: if the model is known to support it."""

    vocab_parallel_ce_backend: Annotated[Literal["torch", "liger"], Since("0.19.8")] = "torch"
    """The implementation of cross entropy for a split output layer."""

    tensor_parallel: Annotated[Tp, Since("0.16.4")] = Field(default_factory=Tp, alias="tp")
    """The tensor parallel ranks, for programs that build the groups themselves."""

    injection_policy_tuple: Annotated[list[Any] | None, Since("0.16.4")] = None
    """Names of layers with outputs to sum up, for models that AutoTP does not know."""

    partition_config: Annotated[dict[str, Any] | None, Since("0.18.6"), Open()] = None
    """Name patterns of the layers to split by row and by column."""

    preset_model: Annotated[str | None, Since("0.18.6")] = None
    """A known architecture: llama, bloom, chatglm, mixtral, deepseek_v2, qwen2, phi3."""

    keep_module_on_host: Annotated[bool, Since("0.16.4")] = False
    """Keep loaded weights in host memory until they are split."""

    replace_with_kernel_inject: Annotated[bool, Since("0.16.4")] = Field(default=False, alias="kernel_inject")
    """Replace layers by inference kernels. Not for training."""


class ExpertParallel(HandReadSection):
    """AutoEP: distributes the experts of a mixture-of-experts model over GPUs without changes to its code."""

    enabled: Annotated[bool, Since("0.19.2"), Truthy()] = False
    """Distribute the experts."""

    autoep_size: Annotated[
        int,
        Since("0.19.2"),
        _ON,
        _refused("expert_parallel.autoep_size must be a positive integer", "bool"),
        OutOfRange("initialize", "ValueError: expert_parallel.autoep_size must be a positive integer"),
    ] = Field(default=1, ge=1)
    """Ranks that share the experts of a layer. Must divide the number of experts."""

    preset_model: Annotated[str | None, Since("0.19.2"), _ON, _refused("Unknown preset_model")] = None
    """A known architecture, for which DeepSpeed finds routers and experts itself."""

    moe_layer_pattern: Annotated[
        str | None, Since("0.19.2"), _ON, Raises("initialize", "TypeError: first argument must be string or compiled pattern")
    ] = None
    """A name pattern of the layers with experts."""

    router_pattern: Annotated[str | None, Since("0.19.2"), _ON, _named("router_pattern")] = None
    """The name of the router within such a layer."""

    expert_pattern: Annotated[str | None, Since("0.19.2"), _ON, _named("expert_pattern")] = None
    """The name of the experts within such a layer."""

    expert_w1: Annotated[str | None, Since("0.19.2"), _ON, _named("expert_w1")] = None
    """The name of an expert's gate projection."""

    expert_w2: Annotated[str | None, Since("0.19.2"), _ON, _named("expert_w2")] = None
    """The name of an expert's down projection."""

    expert_w3: Annotated[str | None, Since("0.19.2"), _ON, _named("expert_w3")] = None
    """The name of an expert's up projection; null where gate and up are one."""

    num_experts_attr: Annotated[str | None, Since("0.19.2"), _ON, _named("num_experts_attr")] = None
    """The attribute of the model's config with the number of experts."""

    top_k_attr: Annotated[str | None, Since("0.19.2"), _ON, _named("top_k_attr")] = None
    """The attribute of the model's config with the number of experts per token."""

    top_k: Annotated[int | Literal["auto"], Since("0.19.2"), AutoIsReal(), _ON, _USED_AS_IT_IS] = "auto"
    """Experts per token; "auto" uses the model's config."""

    score_func: Annotated[
        Literal["auto", "softmax", "sigmoid"],
        Since("0.19.2"),
        AutoIsReal(),
        _ON,
        _refused("score_func must be one of ('auto', 'softmax', 'sigmoid')"),
    ] = "auto"
    """How the router's scores are computed."""

    score_apply: Annotated[
        Literal["auto", "pre", "post"], Since("0.19.2"), AutoIsReal(), _ON, _refused("score_apply must be one of ('auto', 'pre', 'post')")
    ] = "auto"
    """Whether scores weigh an expert's input or its output."""

    route_norm: Annotated[bool | None, Since("0.19.2"), _ON, _USED_AS_IT_IS] = None
    """Whether the scores of the chosen experts are normalized to sum to one."""

    route_scale: Annotated[float, Since("0.19.2"), _ON, _USED_AS_IT_IS] = 1.0
    """A factor on the scores."""

    routed_scaling_factor: Annotated[
        float | Literal["auto"], Since("0.19.2"), AutoIsReal(), _ON, _refused("routed_scaling_factor must be a number or 'auto'", "bool")
    ] = "auto"
    """A factor on the routed experts' output; "auto" uses the model's config."""

    num_expert_groups: Annotated[
        int | None,
        Since("0.19.2"),
        _ON,
        Raises("initialize", "TypeError: '<' not supported between instances of 'str' and 'int'", lets=("bool", "float")),
        OutOfRange("initialize", "ValueError: num_expert_groups must be >= 1"),
    ] = Field(default=None, ge=1)
    """The number of expert groups."""

    num_limited_groups: Annotated[
        int | None,
        Since("0.19.2"),
        _ON,
        Raises("initialize", "TypeError: '<' not supported between instances of 'str' and 'int'", lets=("bool", "float")),
        OutOfRange("initialize", "ValueError: num_limited_groups must be >= 1"),
    ] = Field(default=None, ge=1)
    """The number of groups that a token may use."""

    has_shared_experts: Annotated[bool | None, Since("0.19.2"), _ON, _refused("has_shared_experts must be a boolean when set")] = None
    """Whether there are shared experts that process every token."""

    shared_experts_pattern: Annotated[str | None, Since("0.19.2"), _ON, _named("shared_experts_pattern")] = None
    """The name of the shared experts within a layer."""

    shared_experts_gate_pattern: Annotated[str | None, Since("0.19.2"), _ON, _named("shared_experts_gate_pattern")] = None
    """The name of the gate of the shared experts."""

    load_balance_coeff: Annotated[None, Since("0.19.2"), Raises("parse", "ValueError: load_balance_coeff")] = None
    """Not supported: any value except null raises."""

    use_grouped_mm: Annotated[bool, Since("0.19.2"), Truthy()] = True
    """Compute all experts of a rank in one grouped matrix product."""

    disable_triton_grouped_mm: Annotated[bool, Since("0.19.4"), Truthy()] = False
    """Do not use the Triton kernel for it."""

    combine_impl: Annotated[
        Literal["auto", "weighted_sum", "fused_weighted_sum", "legacy_bmm"],
        Since("0.19.2"),
        AutoIsReal(),
        _ON,
        _refused("combine_impl must be one of ('auto', 'weighted_sum', 'fused_weighted_sum', 'legacy_bmm')"),
    ] = "auto"
    """How the outputs of experts are combined."""

    row_weighting_impl: Annotated[
        Literal["auto", "eager", "fused"],
        Since("0.19.8"),
        AutoIsReal(),
        _ON,
        _refused("row_weighting_impl must be one of ('auto', 'eager', 'fused')"),
    ] = "auto"
    """How rows are weighted with DeepEP."""

    gate_up_impl: Annotated[
        Literal["separate", "fused"], Since("0.19.8"), _ON, _refused("gate_up_impl must be one of ('separate', 'fused')")
    ] = "separate"
    """Whether gate and up projection are one grouped matrix product."""

    expert_activation: Annotated[
        Literal["swiglu", "geglu_tanh", "swiglu_clamped", "swiglu_oai"] | None,
        Since("0.19.8"),
        _ON,
        _refused("expert_activation must be one of ('swiglu', 'geglu_tanh', 'swiglu_clamped', 'swiglu_oai')"),
    ] = None
    """The activation function of the experts; default: that of the model."""

    expert_tensor_parallel_size: Annotated[
        int,
        Since("0.19.3"),
        _ON,
        _refused("expert_parallel.expert_tensor_parallel_size must be a positive integer", "bool"),
        OutOfRange("initialize", "ValueError: expert_parallel.expert_tensor_parallel_size must be a positive integer"),
    ] = Field(default=1, ge=1)
    """Ranks that share a single expert. Only 1 is supported."""

    validate_folding_routing: Annotated[
        bool, Since("0.19.3"), _ON, _refused("expert_parallel.validate_folding_routing must be a boolean")
    ] = False
    """Check that tensor-parallel ranks route identically."""

    async_split_plan: Annotated[bool, Since("0.19.8"), _ON, _refused("expert_parallel.async_split_plan must be a boolean")] = False
    """Exchange the sizes of the all-to-all ahead of time."""

    comm_backend: Annotated[Literal["comm", "deepep"], Since("0.19.7"), _ON, _refused("comm_backend must be one of ('comm', 'deepep')")] = (
        "comm"
    )
    """How tokens move between ranks: DeepSpeed's collectives or the package DeepEP."""

    comm_max_tokens_per_rank: Annotated[
        int,
        Since("0.19.7"),
        _ON,
        _refused("comm_max_tokens_per_rank must be a non-negative integer", "bool"),
        OutOfRange("initialize", "ValueError: comm_max_tokens_per_rank must be a non-negative integer"),
    ] = Field(default=0, ge=0)
    """Tokens that a rank may receive, for DeepEP's buffers; must be above 0 with it."""

    comm_num_sm: Annotated[
        int,
        Since("0.19.7"),
        _ON,
        _refused("comm_num_sm must be a positive integer", "bool"),
        OutOfRange("initialize", "ValueError: comm_num_sm must be a positive integer"),
    ] = Field(default=12, ge=1)
    """GPU multiprocessors reserved for DeepEP."""

    comm_qp_margin: Annotated[
        int,
        Since("0.19.7"),
        _ON,
        _refused("comm_qp_margin must be a non-negative integer", "bool"),
        OutOfRange("initialize", "ValueError: comm_qp_margin must be a non-negative integer"),
    ] = Field(default=4, ge=0)
    """Queue pairs reserved by DeepEP."""


class Pipeline(HandReadSection):
    """Settings of the pipeline engine, which is used if the model is a `PipelineModule`."""

    stages: Annotated[Any, AutoIsReal(), _UNREAD] = "auto"
    """Not read: the number of stages is an argument of `PipelineModule`."""

    partition: Annotated[Any, _UNREAD] = "best"
    """Not read: the partitioning is an argument of `PipelineModule`."""

    seed_layers: Annotated[Any, _UNREAD] = False
    """Not read: an argument of `PipelineModule`."""

    activation_checkpoint_interval: Annotated[int, Passes("the pipeline engine compares it with 0 without a check")] = 0
    """Layers between two activation checkpoints; 0 keeps the argument of `PipelineModule`."""

    pipe_partitioned: Annotated[bool, Since("0.12.3"), Passes("the pipeline engine raises AssertionError if it is not a boolean")] = True
    """Partition activations between stages over tensor-parallel ranks."""

    grad_partitioned: Annotated[bool, Since("0.12.3"), Passes("the pipeline engine raises AssertionError if it is not a boolean")] = True
    """Partition gradients between stages over tensor-parallel ranks."""

    use_reentrant: Annotated[bool, Since("0.10.3"), Truthy()] = True
    """Use the reentrant form of activation checkpointing."""
