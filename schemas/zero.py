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

_REMOVED_MICS = "MiCS is gone. ZeRO++'s secondary partition (zero_hpz_partition_size) also keeps gathers inside a node."


class OffloadParam(PydanticSection):
    """Keeps the parameters in CPU memory or on NVMe between their uses. ZeRO stage 3 only; below it the section does nothing.

    It frees 2 bytes a parameter over all GPUs of the job and pays with copies over PCIe in every forward and backward pass.
    """

    device: Literal["none", "cpu", "nvme"] = "none"
    """Where the parameters go: "cpu" or "nvme". Without this key the section changes nothing."""

    nvme_path: Annotated[str | None, IsPath()] = None
    """A directory on a local NVMe drive, for `device: "nvme"`, which fails without it."""

    buffer_count: int = Field(default=5, ge=0)
    """Buffers in CPU memory through which parameters are swapped in from NVMe. With `device: "nvme"` only."""

    buffer_size: int = Field(default=100_000_000, ge=0)
    """Elements (not bytes) in each of those buffers. The largest parameter's share of one GPU has to fit into one. With `device: "nvme"`
    only."""

    max_in_cpu: int = Field(default=1_000_000_000, ge=0)
    """Parameter elements that stay in CPU memory although the rest goes to NVMe. With `device: "nvme"` only."""

    pin_memory: Annotated[bool, Default("0", value=False), Default("0.19.5", value=True)] = True
    """Use page-locked CPU memory: faster copies that overlap with compute, and memory that the system cannot swap out. Mind `ulimit -l`."""


class OffloadOptimizer(PydanticSection):
    """Keeps the optimizer's state in CPU memory (at stage 3 also on NVMe) and runs the optimizer's step on the CPU. ZeRO stages 1 to 3.

    With Adam in mixed precision it moves 12 bytes a parameter off the GPUs. The step gets slower; the GPUs wait for it.
    """

    device: Literal["none", "cpu", "nvme"] = "none"
    """Where the optimizer's state goes: "cpu", or "nvme" at stage 3 (below it, "nvme" is CPU offload as well). Without this key the section
    changes nothing."""

    nvme_path: Annotated[str | None, IsPath()] = None
    """A directory on a local NVMe drive, for `device: "nvme"` at stage 3, which fails without it."""

    buffer_count: int = Field(default=4, ge=0)
    """Buffers in CPU memory through which states are swapped, at least one for each tensor that the optimizer holds a parameter: Adam has
    four (parameter, gradient, two moments). With `device: "nvme"` only."""

    pin_memory: Annotated[bool, Default("0", value=False), Default("0.19.5", value=True)] = True
    """Use page-locked CPU memory: faster copies that overlap with compute, and memory that the system cannot swap out. Mind `ulimit -l`."""

    pipeline_read: bool = False
    """Read the next tile from NVMe while the current one is updated. With `device: "nvme"` only."""

    pipeline_write: bool = False
    """Write the last tile back to NVMe while the current one is updated. With `device: "nvme"` only."""

    fast_init: bool = False
    """Set up the states on NVMe faster at the start. With `device: "nvme"` only."""

    ratio: Annotated[float, Since("0.12.3")] = Field(default=1.0, ge=0.0, le=1.0)
    """The part of the optimizer's state (0 to 1) that is offloaded; the rest is updated on the GPU. Less than 1 needs ZeRO stage 3 and
    DeepSpeed's CPU Adam."""

    super_offload: Annotated[bool, Since("0.18.0")] = False
    """Offload tuned for CPUs with a fast link to the GPU (Grace Hopper). ZeRO stage 3 and NVIDIA GPUs only."""

    cpuadam_cores_perc: Annotated[float, Since("0.18.0")] = Field(default=0.8, ge=0.0, le=1.0)
    """The part of the CPU's cores (0 to 1) that the optimizer may use. With `super_offload` only, where 0 fails."""


class ZenFlow(PydanticSection):
    """ZenFlow: the most important gradient columns are applied on the GPU at once, the rest on the CPU in the background.

    For CPU offload, which otherwise makes the GPU wait. The mere presence of the section, even `{}`, turns it on.
    """

    forbids_since: ClassVar[str] = "0.17.5"

    topk_ratio: Annotated[float, Bounds("0.19.5", ge=0.0, le=1.0)] = Field(default=0.1, gt=0.0, lt=1.0)
    """The part of the gradient columns (between 0 and 1, both excluded) that counts as important."""

    select_strategy: Annotated[Literal["auto", "step", "epoch"], AutoIsReal()] = "auto"
    """When the important columns are chosen again: every so many steps, every so many epochs, or as ZenFlow sees fit."""

    select_interval: Annotated[Literal["auto"] | int, AutoIsReal()] = "auto"
    """Steps or epochs (by `select_strategy`) between two choices. A number exactly where the strategy is not "auto"."""

    update_interval: Annotated[Literal["auto"] | Annotated[int, Field(ge=1)], AutoIsReal(), Bounds("0.19.5")] = "auto"
    """Steps between two updates of the less important parameters. It takes the place of `gradient_accumulation_steps`."""

    overlap_step: bool = False
    """Run the CPU's part of the optimizer's step beside the next forward and backward passes."""

    offload: bool = False
    """Keep the selective optimizer's states in CPU memory too. Needs `overlap_comm: true`."""

    auto_ratio: float = Field(default=0.99, ge=0.0, le=1.0)
    """For `update_interval: "auto"`: the part of the gradient norm (0 to 1) below which the waiting gradients are applied."""

    full_warm_up_rounds: int = 0
    """Rounds at the start in which every gradient is applied, with no choice."""

    pt_reserved_cores_perc: Annotated[float, Since("0.17.6")] = Field(default=0.5, ge=0.0, le=1.0)
    """The part of the CPU's cores (0 to 1) left to PyTorch; ZenFlow's workers take the others."""

    steps_per_epoch: int | None = None
    """Filled in by DeepSpeed while it runs; not for config files."""


class LeafModule(PydanticSection):
    """Modules that ZeRO stage 3 fetches as a whole instead of submodule by submodule.

    Needed where not every submodule runs in every pass, such as the experts of a mixture-of-experts block, whose gathers would otherwise
    differ between ranks and hang the job.
    """

    forbids_since: ClassVar[str] = "0.18.0"

    classes: Annotated[list[str], StrStandsFor()] = Field(default_factory=lambda: list(DEFAULT_LEAF_CLASSES))
    """Class names, bare or with their module path. Writing this list replaces the built-in one (Mixtral and Qwen MoE blocks)."""

    names: Annotated[list[str], StrStandsFor()] = Field(default_factory=list)
    """Full names of modules in the model, as `model.named_modules()` spells them."""

    name_suffixes: Annotated[list[str], StrStandsFor()] = Field(default_factory=list)
    """Endings of module names."""

    @field_validator("classes", "names", "name_suffixes", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class ZeroOptimization(PydanticSection):
    """ZeRO: splits what every GPU would otherwise hold a full copy of over the data-parallel GPUs.

    In mixed precision with Adam a parameter costs about 16 bytes: 2 for itself, 2 for its gradient, 12 for the optimizer. Stage 1 splits
    the 12, stage 2 the gradients too, stage 3 the parameters too. Stages 1 and 2 cost next to no speed; stage 3 gathers parameters in every
    pass.
    """

    stage: Literal[0, 1, 2, 3] = 0
    """What is split: 0 nothing (ZeRO is off), 1 the optimizer's state, 2 also gradients, 3 also parameters."""

    contiguous_gradients: bool = True
    """Copy gradients into one flat buffer as they appear, which avoids fragmented memory. Stages 1 and 2 with offload always do."""

    reduce_scatter: bool = True
    """Average gradients with reduce or reduce-scatter, which sends each one only where it belongs, instead of all-reduce."""

    reduce_bucket_size: Annotated[int, Bounds("0.19.5", ge=0)] = Field(default=500_000_000, gt=0)
    """Gradient elements (not bytes) reduced in one go. The buffer costs this many times the gradient's width, twice with `overlap_comm`:
    500 million in bf16 are 1 GB each."""

    use_multi_rank_bucket_allreduce: Annotated[bool, Since("0.12.4")] = True
    """Reduce the buckets of several ranks in one all-reduce instead of one operation a rank. Helps small models on many GPUs. Stages 1 and
    2."""

    allgather_partitions: bool = True
    """Accepted, and read by nothing: updated parameters are always gathered with all-gather."""

    allgather_bucket_size: int = Field(default=500_000_000, ge=0)
    """Parameter elements (not bytes) gathered in one go after the optimizer's step. Stages 1 and 2, where it must be even."""

    overlap_comm: bool | None = None
    """Reduce gradients while the backward pass still runs: faster, and takes a second bucket of `reduce_bucket_size`. Absent: true at stage
    3, false below."""

    compute_grad_norm: Annotated[bool, Since("0.19.7")] = True
    """Compute the global gradient norm in every step. False saves a little time at stages 1 and 2 and needs `gradient_clipping` 0; it is
    refused at other stages."""

    load_from_fp32_weights: bool = True
    """When a checkpoint is loaded, take the master weights from its fp32 copies (exact) rather than from the half precision weights."""

    elastic_checkpoint: bool = False
    """An old checkpoint format that loads at another number of GPUs, for stages 1 and 2. Universal checkpoints
    (`checkpoint.load_universal`) replace it; stage 3 ignores it."""

    offload_param: OffloadParam | None = None
    """Parameters in CPU memory or on NVMe. Stage 3 only."""

    offload_optimizer: OffloadOptimizer | None = None
    """The optimizer's state, and its step, on the CPU."""

    zenflow: Annotated[ZenFlow | None, Since("0.17.5")] = None
    """Asynchronous updates for CPU offload. Present means on."""

    sub_group_size: int = Field(default=1_000_000_000, ge=0)
    """Parameter elements updated in one piece by the optimizer's step. Smaller pieces need less working memory, and matter with offload.
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
    """Ignored. `pin_memory` of the offload sections does this now."""

    cpu_offload: Annotated[
        bool | None,
        Deprecated("0.7.0", use="zero_optimization.offload_optimizer", values=((True, {"device": "cpu"}), (False, None))),
    ] = None
    """The old switch for optimizer offload to the CPU."""

    cpu_offload_params: Annotated[bool | None, Until("0.6.7", then="unknown", use="zero_optimization.offload_param")] = None
    """A spelling from before 0.7.0."""

    prefetch_bucket_size: int = Field(default=50_000_000, ge=0, alias="stage3_prefetch_bucket_size")
    """Parameter elements fetched ahead of their use: more hides more of the gather's time and takes more memory. Stage 3 only."""

    param_persistence_threshold: int = Field(default=100_000, ge=0, alias="stage3_param_persistence_threshold")
    """Parameters with fewer elements than this stay whole on every GPU. A smaller value saves memory and makes many small gathers. Stage 3
    only."""

    model_persistence_threshold: int = Field(default=9_223_372_036_854_775_807, ge=0, alias="stage3_model_persistence_threshold")
    """The most elements that may stay whole on every GPU, all small parameters together. Stage 3 only."""

    max_live_parameters: int = Field(default=1_000_000_000, ge=0, alias="stage3_max_live_parameters")
    """The most gathered parameter elements that a GPU holds at a time. Less saves memory and gathers more often. Stage 3 only."""

    max_reuse_distance: int = Field(default=1_000_000_000, ge=0, alias="stage3_max_reuse_distance")
    """A gathered parameter that is needed again within this many elements is kept. Less saves memory and gathers more often. Stage 3
    only."""

    gather_16bit_weights_on_model_save: bool = Field(default=False, alias="stage3_gather_16bit_weights_on_model_save")
    """Collect the whole model in half precision when it is saved. Without it a stage 3 run saves only shards, which need `zero_to_fp32.py`.
    Takes the memory of the whole model on rank 0 while saving."""

    module_granularity_threshold: Annotated[int, Since("0.16.0")] = Field(default=0, alias="stage3_module_granularity_threshold")
    """Modules with fewer parameters for each submodule than this are fetched as a whole, which saves the overhead of many small gathers.
    0 turns it off. Stage 3 only."""

    use_all_reduce_for_fetch_params: Annotated[bool, Since("0.14.3")] = Field(default=False, alias="stage3_use_all_reduce_for_fetch_params")
    """Gather parameters with all-reduce: less work for the CPU, more to send. Stage 3 only."""

    allgather_sequential: Annotated[bool, Since("0.18.5")] = Field(default=False, alias="stage3_allgather_sequential")
    """Gather parameters one by one, without the flat buffer: lower peak memory, smaller messages. It also sets the prefetch bucket to 1.
    Stage 3 only."""

    stage3_gather_fp16_weights_on_model_save: Annotated[
        bool, Deprecated("0.7.0", use="zero_optimization.stage3_gather_16bit_weights_on_model_save")
    ] = False
    """The old name of `stage3_gather_16bit_weights_on_model_save`."""

    ignore_unused_parameters: bool = True
    """Let parameters without a gradient pass. False stops the run at the first one, and is heeded at stages 1 and 2 with offload only."""

    legacy_stage1: bool = False
    """The first implementation of stage 1, which is gone: true fails wherever ZeRO is on."""

    round_robin_gradients: bool = False
    """With CPU offload at stages 1 and 2: spread the copying of gradients over the ranks in turn. Pays off with many accumulation steps."""

    parameter_alignment: Annotated[bool, Since("0.19.7")] = False
    """Start every parameter at an address divisible by 16 bytes in the flat buffers of stages 1 and 2. The padding costs memory, and the
    checkpoints fit only runs with the same value."""

    zero_hpz_partition_size: Annotated[int, Since("0.10.0")] = Field(default=1, ge=0)
    """ZeRO++: ranks that share a second copy of the parameters, usually the GPUs of a node, so that the backward pass gathers inside the
    node. Must divide the world size. Stage 3 only."""

    zero_quantized_weights: Annotated[bool, Since("0.10.0")] = False
    """ZeRO++: gather parameters in 8 bits, half of what bf16 sends. Stage 3 only."""

    zero_quantized_nontrainable_weights: Annotated[bool, Since("0.10.2")] = False
    """Store frozen parameters in 8 bits, in memory as well as on the wire. For LoRA and its like. Stage 3 only."""

    zero_quantized_gradients: Annotated[bool, Since("0.10.0")] = False
    """ZeRO++: reduce gradients in 4 bits through all-to-all. Stage 3 on more than one node only; on a single node nothing changes."""

    memory_efficient_linear: bool = True
    """Replace `torch.nn.functional.linear` with one that keeps no copy of the gathered weight for the backward pass. Stage 3 only."""

    pipeline_loading_checkpoint: Annotated[bool, Since("0.10.1")] = False
    """Load a checkpoint rank after rank, which takes less CPU memory and longer. Stage 3 only; loading fails at other stages."""

    override_module_apply: Annotated[bool, Since("0.10.1")] = True
    """Replace `torch.nn.Module.apply` with one that gathers the parameters first. Stage 3 only."""

    log_trace_cache_warnings: Annotated[bool, Since("0.16.4")] = False
    """Say when the recorded order of modules no longer holds, which costs prefetching. Stage 3 only."""

    enable_sanity_checks: Annotated[bool, Since("0.17.6")] = False
    """Check internal states while training, for hunting bugs in DeepSpeed itself. Slow. Stage 3 only."""

    save_muon_momentum_buffer_in_memory: Annotated[bool, Since("0.18.9")] = False
    """With the Muon optimizer and NVMe offload: keep the momentum in memory rather than on the drive. Stage 3 only."""

    leaf_module: Annotated[LeafModule | None, Since("0.18.0")] = Field(default_factory=LeafModule)
    """Modules to fetch as a whole. Stage 3 only."""

    mics_shard_size: Annotated[int, Since("0.9.2"), Until("0.19.6", then="raises", note=_REMOVED_MICS)] = -1
    """MiCS: ranks over which the model was split, with full copies beside each other."""

    mics_hierarchical_params_gather: Annotated[bool, Since("0.9.2"), Until("0.19.6", then="raises", note=_REMOVED_MICS)] = False
    """MiCS: gather inside the node first."""

    zeropp_loco_param: Annotated[
        dict[str, Any] | None,
        Since("0.16.2"),
        Until("0.19.7", then="raises", note="Without it zero_quantized_gradients works as plain ZeRO++ does, with no error feedback."),
    ] = None
    """LoCo: error feedback for quantized gradients."""
