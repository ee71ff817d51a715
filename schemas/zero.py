"""ZeRO: `zero_optimization` with its offload, ZenFlow and leaf module sections."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from dslint.schemas.base import PydanticSection
from dslint.schemas.marks import AutoIsReal, Bounds, Default, Deprecated, IsPath, Since, StrStandsFor, Until

DEFAULT_LEAF_CLASSES = (
    "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
    "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
    "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
)

_REMOVED_MICS = "MiCS was removed. ZeRO++'s secondary partition (zero_hpz_partition_size) also keeps gathers within a node."


class OffloadParam(PydanticSection):
    """Keeps parameters in CPU memory or on NVMe between uses. Requires ZeRO stage 3; at lower stages the section has no effect.

    It frees 2 bytes per parameter over all GPUs of the job, at the cost of copies over PCIe in every forward and backward pass.
    """

    device: Literal["none", "cpu", "nvme"] = "none"
    """Where the parameters go: "cpu" or "nvme". Without this key the section has no effect."""

    nvme_path: Annotated[str | None, IsPath()] = None
    """A directory on a local NVMe drive, for `device: "nvme"`, which fails without it."""

    buffer_count: int = Field(default=5, ge=0)
    """The number of buffers in CPU memory for swapping parameters in from NVMe. Only with `device: "nvme"`."""

    buffer_size: int = Field(default=100_000_000, ge=0)
    """Elements (not bytes) of each of these buffers. The largest parameter's share of one GPU must fit into one. Only with
    `device: "nvme"`."""

    max_in_cpu: int = Field(default=1_000_000_000, ge=0)
    """Parameter elements that stay in CPU memory although the rest goes to NVMe. Only with `device: "nvme"`."""

    pin_memory: Annotated[bool, Default("0", value=False), Default("0.19.5", value=True)] = True
    """Use pinned CPU memory: faster copies that overlap with compute, but the system cannot swap it out. Check `ulimit -l`."""


class OffloadOptimizer(PydanticSection):
    """Keeps optimizer states in CPU memory (at stage 3 also on NVMe) and runs the optimizer step on the CPU. ZeRO stages 1 to 3.

    With Adam in mixed precision it moves 12 bytes per parameter off the GPUs. The step gets slower, and the GPUs wait for it.
    """

    device: Literal["none", "cpu", "nvme"] = "none"
    """Where optimizer states go: "cpu", or "nvme" at stage 3 (below it, "nvme" is CPU offload as well). Without this key the section
    has no effect."""

    nvme_path: Annotated[str | None, IsPath()] = None
    """A directory on a local NVMe drive, for `device: "nvme"` at stage 3, which fails without it."""

    buffer_count: int = Field(default=4, ge=0)
    """The number of buffers in CPU memory for swapping states, at least one per tensor that the optimizer keeps for a parameter: Adam has
    four (parameter, gradient, two moments). Only with `device: "nvme"`."""

    pin_memory: Annotated[bool, Default("0", value=False), Default("0.19.5", value=True)] = True
    """Use pinned CPU memory: faster copies that overlap with compute, but the system cannot swap it out. Check `ulimit -l`."""

    pipeline_read: bool = False
    """Read the next tile from NVMe while the current one is updated. Only with `device: "nvme"`."""

    pipeline_write: bool = False
    """Write the last tile back to NVMe while the current one is updated. Only with `device: "nvme"`."""

    fast_init: bool = False
    """Set up the states on NVMe faster at the start. Only with `device: "nvme"`."""

    ratio: Annotated[float, Since("0.12.3")] = Field(default=1.0, ge=0.0, le=1.0)
    """The fraction of optimizer states (0 to 1) that is offloaded; the rest is updated on the GPU. Less than 1 requires ZeRO stage 3 and
    DeepSpeed's CPU Adam."""

    super_offload: Annotated[bool, Since("0.18.0")] = False
    """Offload tuned for CPUs with a fast link to the GPU (Grace Hopper). ZeRO stage 3 and NVIDIA GPUs only."""

    cpuadam_cores_perc: Annotated[float, Since("0.18.0")] = Field(default=0.8, ge=0.0, le=1.0)
    """The fraction of CPU cores (0 to 1) that the optimizer may use. Only with `super_offload`, where 0 fails."""


class ZenFlow(PydanticSection):
    """ZenFlow: the most important gradient columns are applied on the GPU at once, the rest on the CPU in the background.

    For CPU offload, which otherwise makes the GPU wait. The section enables it even if it is empty (`{}`).
    """

    forbids_since: ClassVar[str] = "0.17.5"

    topk_ratio: Annotated[float, Bounds("0.19.5", ge=0.0, le=1.0)] = Field(default=0.1, gt=0.0, lt=1.0)
    """The fraction of gradient columns (above 0, below 1) that counts as important."""

    select_strategy: Annotated[Literal["auto", "step", "epoch"], AutoIsReal()] = "auto"
    """When important columns are selected again: after a number of steps, of epochs, or automatically."""

    select_interval: Annotated[Literal["auto"] | int, AutoIsReal()] = "auto"
    """Steps or epochs (by `select_strategy`) between two selections. A number if and only if the strategy is not "auto"."""

    update_interval: Annotated[Literal["auto"] | Annotated[int, Field(ge=1)], AutoIsReal(), Bounds("0.19.5")] = "auto"
    """Steps between two updates of the less important parameters. It replaces `gradient_accumulation_steps`."""

    overlap_step: bool = False
    """Run the CPU part of the optimizer step in parallel with the next forward and backward passes."""

    offload: bool = False
    """Also keep the selective optimizer's states in CPU memory. Requires `overlap_comm: true`."""

    auto_ratio: float = Field(default=0.99, ge=0.0, le=1.0)
    """For `update_interval: "auto"`: the fraction of the gradient norm (0 to 1) below which waiting gradients are applied."""

    full_warm_up_rounds: int = 0
    """Rounds at the start in which all gradients are applied."""

    pt_reserved_cores_perc: Annotated[float, Since("0.17.6")] = Field(default=0.5, ge=0.0, le=1.0)
    """The fraction of CPU cores (0 to 1) for PyTorch; ZenFlow's workers use the others."""

    steps_per_epoch: int | None = None
    """Filled in by DeepSpeed while it runs; not for config files."""


class LeafModule(PydanticSection):
    """Modules that ZeRO stage 3 fetches as a whole instead of submodule by submodule.

    Needed if not every submodule runs in every pass, such as the experts of a mixture-of-experts block: otherwise gathers would
    differ between ranks and hang the job.
    """

    forbids_since: ClassVar[str] = "0.18.0"

    classes: Annotated[list[str], StrStandsFor()] = Field(default_factory=lambda: list(DEFAULT_LEAF_CLASSES))
    """Class names, with or without module path. This list replaces the built-in one (Mixtral and Qwen MoE blocks)."""

    names: Annotated[list[str], StrStandsFor()] = Field(default_factory=list)
    """Full names of modules in the model, as in `model.named_modules()`."""

    name_suffixes: Annotated[list[str], StrStandsFor()] = Field(default_factory=list)
    """Suffixes of module names."""

    @field_validator("classes", "names", "name_suffixes", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class ZeroOptimization(PydanticSection):
    """ZeRO: partitions over the data-parallel GPUs what each would otherwise hold as a full copy.

    In mixed precision with Adam a parameter needs about 16 bytes: 2 for itself, 2 for its gradient, 12 for the optimizer. Stage 1 partitions
    the 12, stage 2 also the gradients, stage 3 also the parameters. Stages 1 and 2 cost almost no speed; stage 3 gathers parameters in every
    pass.
    """

    stage: Literal[0, 1, 2, 3] = 0
    """What is partitioned: 0 nothing (ZeRO is off), 1 optimizer states, 2 also gradients, 3 also parameters."""

    contiguous_gradients: bool = True
    """Copy gradients into one flat buffer as they appear, which avoids fragmentation. Stages 1 and 2 with offload always do this."""

    reduce_scatter: bool = True
    """Average gradients with reduce or reduce-scatter, which sends each one only to its rank, instead of all-reduce."""

    reduce_bucket_size: Annotated[int, Bounds("0.19.5", ge=0)] = Field(default=500_000_000, gt=0)
    """Gradient elements (not bytes) reduced at a time. The buffer needs this many elements of the gradient type, twice with `overlap_comm`:
    500 million in bf16 are 1 GB each."""

    use_multi_rank_bucket_allreduce: Annotated[bool, Since("0.12.4")] = True
    """Reduce the buckets of several ranks in one all-reduce instead of one operation per rank. Helps small models on many GPUs. Stages 1 and
    2."""

    allgather_partitions: bool = True
    """Accepted, but not read: updated parameters are always gathered with all-gather."""

    allgather_bucket_size: int = Field(default=500_000_000, ge=0)
    """Parameter elements (not bytes) gathered at a time after the optimizer step. Stages 1 and 2, where it must be even."""

    overlap_comm: bool | None = None
    """Reduce gradients while the backward pass runs: faster, but needs a second bucket of `reduce_bucket_size`. Default: true at stage
    3, false below."""

    compute_grad_norm: Annotated[bool, Since("0.19.7")] = True
    """Compute the global gradient norm in every step. False saves a little time at stages 1 and 2 and requires `gradient_clipping` 0; other
    stages reject it."""

    load_from_fp32_weights: bool = True
    """When loading a checkpoint, use its fp32 master weights (exact) instead of its half precision weights."""

    elastic_checkpoint: bool = False
    """An old checkpoint format that can be loaded with another number of GPUs, for stages 1 and 2. Universal checkpoints
    (`checkpoint.load_universal`) replace it; stage 3 ignores it."""

    offload_param: OffloadParam | None = None
    """Parameters in CPU memory or on NVMe. Stage 3 only."""

    offload_optimizer: OffloadOptimizer | None = None
    """Optimizer states and the optimizer step on the CPU."""

    zenflow: Annotated[ZenFlow | None, Since("0.17.5")] = None
    """Asynchronous updates for CPU offload. Enabled if present."""

    sub_group_size: int = Field(default=1_000_000_000, ge=0)
    """Parameter elements updated at a time by the optimizer step. Smaller groups need less temporary memory, which matters with offload.
    Stage 3 only."""

    cpu_offload_param: Annotated[
        bool | None,
        Deprecated("0.7.0", use="zero_optimization.offload_param", values=((True, {"device": "cpu"}), (False, None))),
    ] = None
    """The old switch for parameter offload to the CPU."""

    cpu_offload_use_pin_memory: Annotated[
        bool | None,
        Deprecated(
            "0.7.0",
            mapped=False,
            note="Write pin_memory inside offload_param and offload_optimizer.",
        ),
    ] = None
    """Ignored; replaced by `pin_memory` of the offload sections."""

    cpu_offload: Annotated[
        bool | None,
        Deprecated("0.7.0", use="zero_optimization.offload_optimizer", values=((True, {"device": "cpu"}), (False, None))),
    ] = None
    """The old switch for optimizer offload to the CPU."""

    cpu_offload_params: Annotated[bool | None, Until("0.6.7", then="unknown", use="zero_optimization.offload_param")] = None
    """A spelling from before 0.7.0."""

    prefetch_bucket_size: int = Field(default=50_000_000, ge=0, alias="stage3_prefetch_bucket_size")
    """Parameter elements fetched before their use: more hides more of the gather time, but needs more memory. Stage 3 only."""

    param_persistence_threshold: int = Field(default=100_000, ge=0, alias="stage3_param_persistence_threshold")
    """Parameters with fewer elements than this stay whole on every GPU. A smaller value saves memory, but causes many small gathers. Stage 3
    only."""

    model_persistence_threshold: int = Field(default=9_223_372_036_854_775_807, ge=0, alias="stage3_model_persistence_threshold")
    """The most elements that may stay whole on every GPU, all small parameters together. Stage 3 only."""

    max_live_parameters: int = Field(default=1_000_000_000, ge=0, alias="stage3_max_live_parameters")
    """The most gathered parameter elements on a GPU at a time. Less saves memory, but gathers more often. Stage 3 only."""

    max_reuse_distance: int = Field(default=1_000_000_000, ge=0, alias="stage3_max_reuse_distance")
    """A gathered parameter that is needed again within this many elements is kept. Less saves memory, but gathers more often. Stage 3
    only."""

    gather_16bit_weights_on_model_save: bool = Field(default=False, alias="stage3_gather_16bit_weights_on_model_save")
    """Gather the whole model in half precision when saving it. Otherwise a stage 3 run saves only shards, which require `zero_to_fp32.py`.
    Needs memory for the whole model on rank 0 while saving."""

    module_granularity_threshold: Annotated[int, Since("0.16.0")] = Field(default=0, alias="stage3_module_granularity_threshold")
    """Modules with fewer parameters per submodule than this are fetched as a whole, which avoids the overhead of many small gathers.
    0 disables it. Stage 3 only."""

    use_all_reduce_for_fetch_params: Annotated[bool, Since("0.14.3")] = Field(default=False, alias="stage3_use_all_reduce_for_fetch_params")
    """Gather parameters with all-reduce: less CPU work, more communication. Stage 3 only."""

    allgather_sequential: Annotated[bool, Since("0.18.5")] = Field(default=False, alias="stage3_allgather_sequential")
    """Gather parameters one by one, without the flat buffer: lower peak memory, smaller messages. It also sets the prefetch bucket to 1.
    Stage 3 only."""

    stage3_gather_fp16_weights_on_model_save: Annotated[
        bool, Deprecated("0.7.0", use="zero_optimization.stage3_gather_16bit_weights_on_model_save")
    ] = False
    """The old name of `stage3_gather_16bit_weights_on_model_save`."""

    ignore_unused_parameters: bool = True
    """Accept parameters without a gradient. False raises at the first one; it is read only at stages 1 and 2 with offload."""

    legacy_stage1: bool = False
    """The first implementation of stage 1, which was removed: true fails if ZeRO is enabled."""

    round_robin_gradients: bool = False
    """With CPU offload at stages 1 and 2: distribute gradient copies over the ranks. Faster with many accumulation steps."""

    parameter_alignment: Annotated[bool, Since("0.19.7")] = False
    """Start every parameter at an address divisible by 16 bytes in the flat buffers of stages 1 and 2. The padding needs memory, and
    checkpoints work only in runs with the same value."""

    zero_hpz_partition_size: Annotated[int, Since("0.10.0")] = Field(default=1, ge=0)
    """ZeRO++: ranks that share a secondary partition of the parameters, usually the GPUs of a node, so that the backward pass gathers within the
    node. Must divide the world size. Stage 3 only."""

    zero_quantized_weights: Annotated[bool, Since("0.10.0")] = False
    """ZeRO++: gather parameters in 8 bits, half of what bf16 sends. Stage 3 only."""

    zero_quantized_nontrainable_weights: Annotated[bool, Since("0.10.2")] = False
    """Store and send frozen parameters in 8 bits. For LoRA and similar methods. Stage 3 only."""

    zero_quantized_gradients: Annotated[bool, Since("0.10.0")] = False
    """ZeRO++: reduce gradients in 4 bits through all-to-all. Stage 3 on more than one node only; on a single node it has no effect."""

    memory_efficient_linear: bool = True
    """Replace `torch.nn.functional.linear` with one that keeps no copy of the gathered weight for the backward pass. Stage 3 only."""

    pipeline_loading_checkpoint: Annotated[bool, Since("0.10.1")] = False
    """Load a checkpoint one rank after the other, which needs less CPU memory but more time. Stage 3 only; loading fails at other stages."""

    override_module_apply: Annotated[bool, Since("0.10.1")] = True
    """Replace `torch.nn.Module.apply` with one that gathers the parameters first. Stage 3 only."""

    log_trace_cache_warnings: Annotated[bool, Since("0.16.4")] = False
    """Log when the recorded order of modules becomes invalid, which disables prefetching. Stage 3 only."""

    enable_sanity_checks: Annotated[bool, Since("0.17.6")] = False
    """Check internal states while training, for debugging DeepSpeed itself. Slow. Stage 3 only."""

    save_muon_momentum_buffer_in_memory: Annotated[bool, Since("0.18.9")] = False
    """With the Muon optimizer and NVMe offload: keep the momentum in memory instead of on NVMe. Stage 3 only."""

    leaf_module: Annotated[LeafModule | None, Since("0.18.0")] = Field(default_factory=LeafModule)
    """Modules to fetch as a whole. Stage 3 only."""

    mics_shard_size: Annotated[int, Since("0.9.2"), Until("0.19.6", then="raises", note=_REMOVED_MICS)] = -1
    """MiCS: the number of ranks that share one partitioned copy of the model."""

    mics_hierarchical_params_gather: Annotated[bool, Since("0.9.2"), Until("0.19.6", then="raises", note=_REMOVED_MICS)] = False
    """MiCS: gather within the node first."""

    zeropp_loco_param: Annotated[
        dict[str, Any] | None,
        Since("0.16.2"),
        Until("0.19.7", then="raises", note="Without it zero_quantized_gradients works as in ZeRO++, without error feedback."),
    ] = None
    """LoCo: error feedback for quantized gradients."""
