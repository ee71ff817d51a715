"""DS4: the sizes that ZeRO works in: buckets, prefetch, live and persistent parameters, sub-groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase, Severity
from dslint.rule import Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.precision import dtype_of, model_dtype, uses_bf16_optimizer
from dslint.rules.helpers.zero import DTYPE_BYTES, STAGE, ZERO, related_stage

STAGE_1_AND_2 = "deepspeed/runtime/zero/stage_1_and_2.py, DeepSpeedZeroOptimizer"
STAGE_3 = "deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3"
COORDINATOR = "deepspeed/runtime/zero/partitioned_param_coordinator.py, PartitionedParameterCoordinator"

LARGE_SHARE = 0.1
"""The part of a GPU's memory from which buffers of a fixed size are worth a word."""

TINY_BUCKET = 100_000
"""Elements in a bucket below which a collective costs more in latency than in transfer."""

LARGE_TENSOR = 10_000_000
"""Elements of a parameter that is no bias and no norm: those stay whole for good, and those that are larger had better not."""

UNBOUNDED = 100_000_000_000
"""Elements in a sub-group that no rank ever has: the whole partition is one."""

SMALL_SUB_GROUP = 1_000_000


@rule(
    "DS429",
    "odd-allgather-bucket",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.allgather_bucket_size",),
    references=(f"{STAGE_1_AND_2}.__init__",),
)
@bad(trained('"zero_optimization": {"stage": 2, "allgather_bucket_size": 500000001}'), at="zero_optimization.allgather_bucket_size")
@good(trained('"zero_optimization": {"stage": 2, "allgather_bucket_size": 500000000}'))
@good(trained('"zero_optimization": {"stage": 3, "allgather_bucket_size": 500000001}'))
def odd_allgather_bucket(config: Config) -> Iterator[Finding]:
    """`allgather_bucket_size` has to be even at ZeRO stages 1 and 2.

    The buffers begin at multiples of 4 bytes, two elements of half precision, and DeepSpeed asserts that the bucket ends there too.

    Write an even number.
    """
    key = f"{ZERO}.allgather_bucket_size"
    size = config.value(key)
    if isinstance(size, int) and size % 2 and config.value(STAGE) in (1, 2) and not uses_bf16_optimizer(config):
        yield Finding(
            key,
            f'allgather_bucket_size {config.quote(key)} is odd: DeepSpeed raises AssertionError "allgather_bucket_size must be a multiple of nccl_start_alignment_factor, 2".',
            help=f"Write an even number, such as {size + 1}.",
            fix=write(config, key, str(size + 1), Applicability.SAFE),
        )


@rule(
    "DS430",
    "tiny-reduce-bucket",
    effect=Effect.SLOW,
    watches=("zero_optimization.reduce_bucket_size",),
    references=(f"{STAGE_1_AND_2}.reduce_independent_p_g_buckets_and_remove_grads",),
)
@bad(trained('"zero_optimization": {"stage": 2, "reduce_bucket_size": 1000}'), at="zero_optimization.reduce_bucket_size")
@good(trained('"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e7}'))
@good(trained('"zero_optimization": {"stage": 0, "reduce_bucket_size": 1000}'))
def tiny_reduce_bucket(config: Config) -> Iterator[Finding]:
    """Gradients are reduced in so small portions that the network waits more than it sends.

    `reduce_bucket_size` counts elements. Each bucket is a collective operation of its own, with a latency of tens of microseconds; a parameter that is larger
    than the bucket is reduced by itself.

    Write 5e7 or more; 5e8 is the default.
    """
    key = f"{ZERO}.reduce_bucket_size"
    size = config.value(key)
    if 0 < size < TINY_BUCKET and config.value(STAGE) >= 1 and not uses_bf16_optimizer(config):
        yield Finding(
            key,
            f"reduce_bucket_size {config.quote(key)} reduces gradients {size:,} elements at a time: nearly every parameter becomes a collective operation of its own.",
            help="Write 5e7 or more; it counts elements, and 5e8 is the default.",
            fix=write(config, key, "5e7"),
            severity=Severity.WARNING,
        )


def bucket_bytes(config: Config) -> tuple[int, int] | None:
    """How many gradient buckets ZeRO allocates on every GPU, and the bytes of one. None where it allocates none, or that cannot be known.

    At stages 1 and 2 one of the model's type, two with `overlap_comm`; at stage 3 one of the type that is communicated. They are allocated whole, whatever
    the size of the model.
    """
    stage, size, dtype = config.value(STAGE), config.value(f"{ZERO}.reduce_bucket_size"), model_dtype(config)
    contiguous = config.value(f"{ZERO}.contiguous_gradients")
    if not isinstance(size, int) or dtype is None or contiguous is not True or uses_bf16_optimizer(config):
        return None
    if stage in (1, 2):
        overlap = config.value(f"{ZERO}.overlap_comm")
        return (2 if overlap else 1, size * DTYPE_BYTES[dtype]) if isinstance(overlap, bool) else None
    if stage == 3:
        sent = dtype_of(config, "communication_data_type") or dtype
        return 1, size * DTYPE_BYTES.get(sent, DTYPE_BYTES[dtype])
    return None


@rule(
    "DS431",
    "large-buckets",
    effect=Effect.MEMORY,
    watches=("zero_optimization.stage",),
    needs=("gpu_memory",),
    references=(f"{STAGE_1_AND_2}._configure_ipg_buffers", "https://huggingface.co/docs/transformers/deepspeed"),
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 1e9}'),
    at="zero_optimization.reduce_bucket_size",
    gpu="rtx4090",
)
@good(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 2e8}'),
    gpu="rtx4090",
)
@good(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 1e9}'),
    gpu="h100",
)
def large_buckets(config: Config) -> Iterator[Finding]:
    """The gradient buckets take a large part of the GPU's memory.

    `reduce_bucket_size` counts elements, and the buffer is allocated whole, however small the model is. At stages 1 and 2 `overlap_comm` takes a second one, so
    that one is filled while the other is reduced.

    Write a smaller `reduce_bucket_size`, 2e8 or 1e8, or `"overlap_comm": false`.
    """
    from dslint.facts.gpus import in_words

    memory, buckets = config.facts.gpu_memory, bucket_bytes(config)
    key = next((key for key in (f"{ZERO}.reduce_bucket_size", f"{ZERO}.overlap_comm", STAGE) if config.has(key)), None)
    if memory is None or buckets is None or key is None:
        return
    count, size = buckets
    if count * size <= LARGE_SHARE * memory:
        return
    shown = f"{count} x {in_words(size)} = {in_words(count * size)}" if count > 1 else in_words(size)
    default = "" if key.endswith("bucket_size") else " (the default, 5e8 elements)"
    yield Finding(
        key,
        f"The gradient bucket{'s take' if count > 1 else ' takes'} {shown}{default}, {count * size / memory:.0%} of the {in_words(memory)} of the GPU, whatever the size of the model."
        + (" overlap_comm doubles it." if count > 1 else ""),
        help='Write a smaller "reduce_bucket_size", such as 1e8' + (', or "overlap_comm": false.' if count > 1 else "."),
        fix=_smaller(config, count, size),
    )


SMALLER_BUCKET = 100_000_000
"""Elements of a bucket that is still large enough to send at full speed."""


def _smaller(config: Config, count: int, size: int) -> FixPlan | None:
    """A smaller bucket, where it is small enough for the GPU; `count` and `size` (bytes) are those of the buckets there are."""
    elements, memory = config.value(f"{ZERO}.reduce_bucket_size"), config.facts.gpu_memory or 0
    fits = count * size // elements * SMALLER_BUCKET <= LARGE_SHARE * memory
    return write(config, f"{ZERO}.reduce_bucket_size", "1e8") if fits else None


@rule(
    "DS432",
    "prefetch-above-live-parameters",
    effect=Effect.IGNORED,
    watches=("zero_optimization.stage3_prefetch_bucket_size",),
    references=(f"{COORDINATOR}.fetch_sub_module",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e8, "stage3_max_live_parameters": 1e8}'),
    at="zero_optimization.stage3_prefetch_bucket_size",
)
@good(trained('"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e7, "stage3_max_live_parameters": 1e8}'))
@good(trained('"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e8}'))
def prefetch_above_live_parameters(config: Config) -> Iterator[Finding]:
    """More parameters are to be fetched ahead than may be live at all.

    Before each prefetch DeepSpeed takes the smaller of `stage3_prefetch_bucket_size` and what `stage3_max_live_parameters` leaves. Above the limit the
    prefetch size changes nothing, and little or nothing is fetched ahead while a large module is in use.

    Write a prefetch size well below the limit, or raise the limit.
    """
    ahead, live = f"{ZERO}.stage3_prefetch_bucket_size", f"{ZERO}.stage3_max_live_parameters"
    if config.value(STAGE) == 3 and config.has(ahead) and config.value(ahead) > config.value(live):
        default = "" if config.has(live) else ", the default"
        yield Finding(
            ahead,
            f"stage3_prefetch_bucket_size {config.quote(ahead)} is more than may be live, stage3_max_live_parameters {config.value(live):,}{default}: DeepSpeed takes the smaller of the two.",
            help="Write a prefetch size well below stage3_max_live_parameters.",
            related=((live, "the limit is set here"),) if config.has(live) else (),
        )


@rule(
    "DS433",
    "prefetch-of-sequential-allgather",
    effect=Effect.IGNORED,
    watches=("zero_optimization.stage3_allgather_sequential",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._configure_zero_optimizer",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "stage3_allgather_sequential": true, "stage3_prefetch_bucket_size": 5e7}'),
    at="zero_optimization.stage3_prefetch_bucket_size",
)
@good(trained('"zero_optimization": {"stage": 3, "stage3_allgather_sequential": true}'))
@good(trained('"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e7}'))
def prefetch_of_sequential_allgather(config: Config) -> Iterator[Finding]:
    """`stage3_allgather_sequential` overrides the prefetch size.

    Gathering parameters one by one is to keep little memory in use, and DeepSpeed sets the prefetch bucket to 1 element for it, with a line at log level info.

    Remove `stage3_prefetch_bucket_size`.
    """
    key, other = f"{ZERO}.stage3_prefetch_bucket_size", f"{ZERO}.stage3_allgather_sequential"
    if config.release >= (0, 18, 5) and config.value(STAGE) == 3 and config.value(other) is True and config.has(key):
        if config.quote(key) == '"auto"' or config.value(key) in (0, 1):
            return
        yield Finding(
            key,
            f"stage3_prefetch_bucket_size {config.quote(key)} is overridden: stage3_allgather_sequential sets it to 1.",
            help="Remove it.",
            fix=without(config, key),
            related=((other, "gathering one by one is set here"),),
        )


def _model(hidden: int) -> Any:
    from dslint.facts.model_config import describe

    return describe({"model_type": "llama", "hidden_size": hidden, "num_hidden_layers": 4})


@rule(
    "DS434",
    "persistence-defeats-stage-3",
    effect=Effect.MEMORY,
    watches=("zero_optimization.stage3_param_persistence_threshold", "fact:model"),
    references=("deepspeed/runtime/zero/parameter_offload.py, DeepSpeedZeRoOffload.mark_persistent_parameters",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1e9}'),
    at="zero_optimization.stage3_param_persistence_threshold",
)
@bad(
    trained('"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 5000000}'),
    at="zero_optimization.stage3_param_persistence_threshold",
    model=_model(2048),
)
@good(trained('"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1e5}'))
@good(trained('"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 5000000}'), model=_model(4096))
@good(trained('"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1e9, "stage3_model_persistence_threshold": 1e6}'))
def persistence_defeats_stage_3(config: Config) -> Iterator[Finding]:
    """So large parameters stay whole on every GPU that stage 3 partitions next to nothing.

    Parameters with fewer elements than `stage3_param_persistence_threshold` are gathered once and kept. It is meant for biases and norms, whose gathers cost more
    than they save. A threshold above the size of the weight matrices keeps those as well: the memory of stage 2 at the price of stage 3.

    Write 1e5 to 1e6, or 10 times the hidden size.
    """
    key = f"{ZERO}.stage3_param_persistence_threshold"
    threshold, total = config.value(key), config.value(f"{ZERO}.stage3_model_persistence_threshold")
    if not config.value(STAGE) == 3 or not isinstance(threshold, int) or not isinstance(total, int) or total < threshold:  # noqa: SIM201
        return
    model = config.facts.model
    hidden = model.hidden_size if model is not None else None
    if hidden is not None and threshold > hidden * hidden:
        what = f"{model}'s matrices of {hidden:,} x {hidden:,} = {hidden * hidden:,} elements are smaller, and stay"
    elif hidden is None and threshold > LARGE_TENSOR:
        what = f"every matrix up to {int(threshold**0.5):,} x {int(threshold**0.5):,} stays"
    else:
        return
    yield Finding(
        key,
        f"stage3_param_persistence_threshold {config.quote(key)} defeats stage 3: {what} whole on every GPU.",
        help=f"Write {10 * hidden:,}, 10 times the hidden size." if hidden else "Write 1e5, the default, or 10 times the hidden size.",
        fix=write(config, key, str(10 * hidden) if hidden else "1e5"),
    )


@rule(
    "DS435",
    "sub-group-unbounded",
    effect=Effect.MEMORY,
    watches=("zero_optimization.sub_group_size",),
    references=(f"{STAGE_3}._create_fp16_sub_groups", "https://github.com/deepspeedai/DeepSpeed/issues/1145"),
)
@bad(trained('"zero_optimization": {"stage": 3, "sub_group_size": 1e12}'), at="zero_optimization.sub_group_size")
@good(trained('"zero_optimization": {"stage": 3, "sub_group_size": 1e9}'))
@good(trained('"zero_optimization": {"stage": 2, "sub_group_size": 1e12}'))
def sub_group_unbounded(config: Config) -> Iterator[Finding]:
    """The optimizer updates the whole partition of a GPU in one piece.

    At stage 3 the step goes through sub-groups of `sub_group_size` elements, so that its working memory (fp32 gradients, buffers for NVMe) is that of one of
    them. 1e12, which old documentation shows, is more than any GPU holds: there is one sub-group, and the step needs memory for all of it at once.

    Write 1e9, the default; less if the step runs out of memory.
    """
    key = f"{ZERO}.sub_group_size"
    size = config.value(key)
    if config.value(STAGE) == 3 and isinstance(size, int) and size >= UNBOUNDED:
        yield Finding(
            key,
            f"sub_group_size {config.quote(key)} is more elements than a GPU ever holds: the optimizer's step works on its whole partition at once, with 4 bytes of fp32 gradient for each element.",
            help="Write 1e9, the default, which bounds them to 4 GB.",
            fix=write(config, key, "1e9"),
        )


@rule(
    "DS436",
    "tiny-sub-group",
    effect=Effect.SLOW,
    watches=("zero_optimization.sub_group_size",),
    references=(f"{STAGE_3}._create_fp16_sub_groups",),
)
@bad(trained('"zero_optimization": {"stage": 3, "sub_group_size": 0}'), at="zero_optimization.sub_group_size")
@good(trained('"zero_optimization": {"stage": 3, "sub_group_size": 1e8}'))
@good(trained('"zero_optimization": {"stage": 2, "sub_group_size": 0}'))
def tiny_sub_group(config: Config) -> Iterator[Finding]:
    """The optimizer's step goes through the parameters nearly one by one.

    `sub_group_size` counts elements. A sub-group is closed as soon as it holds that many, so that 0 makes one of every parameter: each is an optimizer step of
    its own, with its own copies.

    Write 1e9, the default.
    """
    key = f"{ZERO}.sub_group_size"
    size = config.value(key)
    if config.value(STAGE) == 3 and isinstance(size, int) and 0 <= size < SMALL_SUB_GROUP:
        yield Finding(
            key,
            f"sub_group_size {config.quote(key)} makes a sub-group of nearly every parameter: the optimizer's step takes them one by one.",
            help="Write 1e9, the default; it counts elements.",
            fix=write(config, key, "1e9"),
        )


@rule(
    "DS437",
    "live-parameters-free-nothing",
    effect=Effect.ADVICE,
    watches=("zero_optimization.stage3_max_live_parameters",),
    pedantic=True,
    references=(f"{COORDINATOR}.release_sub_module",),
)
@bad(trained('"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e6}'), at="zero_optimization.stage3_max_live_parameters")
@good(trained('"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e9}'))
@good(trained('"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e6, "stage3_max_reuse_distance": 1e6}'))
def live_parameters_free_nothing(config: Config) -> Iterator[Finding]:
    """`stage3_max_live_parameters` throttles the prefetch and frees nothing by itself.

    What is gathered is released when the same parameters are not needed again within `stage3_max_reuse_distance` elements. With its default, 1e9, a model of
    that size is gathered whole and kept from the forward to the backward pass, whatever the number of live parameters. Measured on a model in bf16 on 8 ranks:
    1e6 live parameters in place of 1e9 left the peak where it was, a reuse distance of 0 brought it to a third.

    Lower `stage3_max_reuse_distance` as well.
    """
    live, reuse = f"{ZERO}.stage3_max_live_parameters", f"{ZERO}.stage3_max_reuse_distance"
    least = config.value(live)
    if config.value(STAGE) == 3 and config.has(live) and least < 1_000_000_000 and config.value(reuse) >= 1_000_000_000:
        yield Finding(
            live,
            f"stage3_max_live_parameters {config.quote(live)} only throttles the prefetch: what is gathered is kept by stage3_max_reuse_distance, {config.value(reuse):,}{'' if config.has(reuse) else ' by default'}.",
            help='Lower "stage3_max_reuse_distance" as well.',
            related=((reuse, "the reuse distance is set here"),) if config.has(reuse) else related_stage(config),
        )


@rule(
    "DS413",
    "no-prefetch",
    effect=Effect.SLOW,
    watches=("zero_optimization.stage3_prefetch_bucket_size",),
    references=(f"{COORDINATOR}.fetch_sub_module",),
    pedantic=True,
)
@bad(trained('"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 0}'), at="zero_optimization.stage3_prefetch_bucket_size")
@good(trained('"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e7}'))
def no_prefetch(config: Config) -> Iterator[Finding]:
    """Nothing is fetched ahead at stage 3: each module waits for its parameters.

    With a prefetch bucket of 0 parameters are gathered when a module asks for them, and the GPU waits meanwhile. Some write 0 on purpose, for models whose
    modules run in another order every time.

    Write 5e7, the default, unless that is why.
    """
    key = f"{ZERO}.stage3_prefetch_bucket_size"
    if config.value(STAGE) == 3 and config.has(key) and config.value(key) == 0:
        yield Finding(
            key,
            "stage3_prefetch_bucket_size 0 fetches nothing ahead: the GPU waits for every module's parameters.",
            help="Write 5e7, the default, unless the order of modules changes from step to step.",
            fix=write(config, key, "5e7"),
        )
