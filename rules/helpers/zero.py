"""What rules about ZeRO share: its section, the stage, the keys that only stage 3 reads, ranks of a node."""

from __future__ import annotations

from dslint.config import UNKNOWN, Config
from dslint.rules.helpers.keys import is_set
from dslint.source.tree import Scalar

ZERO = "zero_optimization"
STAGE = f"{ZERO}.stage"

STAGE_3_KEYS = tuple(
    f"{ZERO}.{name}"
    for name in (
        "stage3_max_live_parameters",
        "stage3_max_reuse_distance",
        "stage3_prefetch_bucket_size",
        "stage3_param_persistence_threshold",
        "stage3_model_persistence_threshold",
        "stage3_gather_16bit_weights_on_model_save",
        "stage3_module_granularity_threshold",
        "sub_group_size",
        "zero_hpz_partition_size",
        "zero_quantized_weights",
        "zero_quantized_nontrainable_weights",
        "zero_quantized_gradients",
        "stage3_allgather_sequential",
        "stage3_use_all_reduce_for_fetch_params",
        "save_muon_momentum_buffer_in_memory",
        "log_trace_cache_warnings",
        "enable_sanity_checks",
        "leaf_module",
    )
)
"""Keys that only the stage 3 optimizer reads."""


def excludes_stage_3(config: Config) -> bool:
    """Whether the arguments of the training (DS921), or tensor parallelism in an old release (DS835), exclude stage 3: no advice names it."""
    if config.release < (0, 19, 4) and config.value("tensor_parallel.autotp_size") > 1:
        return True
    return config.arguments is not None and bool(config.arguments.value("auto_find_batch_size") is True)


def requires_zero(config: Config) -> bool:
    """Whether another setting works only with ZeRO, so that no advice names stage 0: DS303, DS316, DS820."""
    keys = (*IN_HALF_PRECISION, "bf16.bf16_optimizer_states", "checkpoint.load_universal")
    return config.has("data_types.grad_accum_dtype") or any(config.has(key) and config.value(key) is True for key in keys)


def stage_place(config: Config) -> str:
    """The key of the ZeRO stage, as far as it is written: the place of a finding about the stage."""
    return STAGE if config.has(STAGE) else ZERO if config.has(ZERO) else ""


IN_HALF_PRECISION = ("fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads")
"""Keys for master weights and gradients in half precision."""


ACCUMULATION = "managed_gradient_accumulation"
"""Whether DeepSpeed, and not the program, manages gradient accumulation."""


def requires_managed_accumulation(config: Config) -> str | None:
    """The key with which DeepSpeed has to manage gradient accumulation itself; None if there is none (DS418).

    What is written counts also where the release ignores the section `compile`: another one may read it.
    """
    overlap, deepcompile = f"{ZERO}.overlap_comm", "compile.deepcompile"
    if config.value(STAGE) in (0, 1) and config.value(overlap) is True and config.has(overlap):
        return overlap
    return deepcompile if config.value(deepcompile) is True or config.literal(deepcompile) is True else None


ZERO_INIT = r"deepspeed\.(runtime\.zero\.)?(zero|partition_parameters)\.Init"
"""The call that partitions a model while it is built, whatever the stage of the config that it reads."""

INIT_KEYS = (f"{ZERO}.memory_efficient_linear",)
"""Keys that only `deepspeed.zero.Init` reads, which partitions a model for stage 3."""

BELOW_STAGE_3_KEYS = {
    f"{ZERO}.allgather_bucket_size": None,
    f"{ZERO}.use_multi_rank_bucket_allreduce": True,
    f"{ZERO}.round_robin_gradients": False,
    f"{ZERO}.parameter_alignment": False,
    f"{ZERO}.ignore_unused_parameters": True,
}
"""Keys that the optimizer of stages 1 and 2 reads and that of stage 3 does not, with the value that changes nothing at stage 3 (None: none does)."""

EVERY_STAGE_KEYS = tuple(
    f"{ZERO}.{name}"
    for name in (
        "overlap_comm",
        "reduce_bucket_size",
        "contiguous_gradients",
        "reduce_scatter",
        "load_from_fp32_weights",
        "elastic_checkpoint",  # at stage 3 the engine reads it, when it loads a checkpoint
    )
)
"""Keys that are read at stages 1, 2 and 3."""

ZEROPP_FEATURES = {
    f"{ZERO}.zero_hpz_partition_size": 1,
    f"{ZERO}.zero_quantized_weights": False,
    f"{ZERO}.zero_quantized_nontrainable_weights": False,
    f"{ZERO}.zero_quantized_gradients": False,
}
"""The features of ZeRO++, with the value that leaves each off."""

DTYPE_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
"""Bytes of an element of a data type."""


def related_stage(config: Config) -> tuple[tuple[str, str], ...]:
    """Where the stage is written, as a related place of a finding; empty where the stage is the default."""
    return ((STAGE, "the stage is set here"),) if config.has(STAGE) else ()


def is_stage_written(config: Config) -> bool:
    """Whether the stage is a literal. A stage that a program computes may be another one in the next run, with the same other keys."""
    node = config.node(STAGE)
    return isinstance(node, Scalar) and node.style != "computed"


def is_feature(config: Config, key: str) -> bool:
    """Whether a key switches on a feature of ZeRO++."""
    return key in ZEROPP_FEATURES and is_set(config, key) and config.value(key) not in (ZEROPP_FEATURES[key], UNKNOWN)


def is_read(config: Config, key: str) -> bool:
    """Whether DeepSpeed reads a key at the ZeRO stage that the config sets; true of keys that no stage decides."""
    if not is_stage_written(config):
        return True
    stage = config.value(STAGE)
    by_stage_1_and_2 = key in BELOW_STAGE_3_KEYS and stage in (0, 3)
    by_stage_3 = key in (*STAGE_3_KEYS, *INIT_KEYS) and stage in (0, 1, 2)
    return not (by_stage_1_and_2 or by_stage_3 or (key in EVERY_STAGE_KEYS and stage == 0))


def local_ranks(config: Config) -> int | None:
    """How many ranks share a node; None where the world size or the number of nodes is unknown, or the nodes hold different numbers."""
    ranks = config.facts.world_size
    nodes = 1 if ranks == 1 else config.facts.nodes
    return ranks // nodes if ranks and nodes and ranks % nodes == 0 else None


USUAL_RANKS = 8
"""The most ranks that a machine usually has; estimates assume as many where the number of machines is not known."""


def assumed_local_ranks(config: Config) -> int | None:
    """How many ranks share a machine, at most 8 where the number of machines is not known."""
    launch = config.setup.launch if config.setup is not None else None
    ranks = config.facts.world_size
    if config.facts.nodes is not None or not ranks or (launch is not None and launch.hosts):
        return local_ranks(config)
    return min(ranks, USUAL_RANKS)


def ranks_assumed(config: Config) -> str:
    """For a message: how many ranks share a machine, and which option states it; "" if that is known."""
    local = assumed_local_ranks(config)
    return f" ({local} ranks on a node assumed; pass --nodes)" if local != local_ranks(config) else ""
