"""DS4: the sizes that stage 3 works with: prefetch, live and persistent parameters, sub-groups."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import Any

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Release
from dslint.facts.gpus import in_words
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.rule import CannotJudge, Finding, bad, good, rule
from dslint.rules.helpers.activation import is_checkpointed
from dslint.rules.helpers.cost import late_gathers, single_updates
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.model import counted, trains_part
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER, OFFLOAD_PARAM
from dslint.rules.helpers.zero import STAGE, ZERO, related_stage

SUB_GROUPS = "deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3._create_fp16_sub_groups"
COORDINATOR = "deepspeed/runtime/zero/partitioned_param_coordinator.py, PartitionedParameterCoordinator"

PREFETCH = f"{ZERO}.stage3_prefetch_bucket_size"
LIVE = f"{ZERO}.stage3_max_live_parameters"
PERSISTENT = f"{ZERO}.stage3_param_persistence_threshold"
SUB_GROUP = f"{ZERO}.sub_group_size"
LINEAR = f"{ZERO}.memory_efficient_linear"

_PATCHED = Release(0, 19, 4)
"""The first release in which the key counts for a model that was built without `zero.Init`, too."""

LARGE_MATRIX = 10_000_000
"""Elements above which a parameter is certainly a weight matrix, and neither a bias nor a norm."""

UNLIMITED_SUB_GROUP = 100_000_000_000
"""Elements that no rank ever holds: a sub-group of this size is the whole partition."""

SMALL_SUB_GROUP = 1_000_000
"""Elements below which nearly every parameter may be its own sub-group."""

SMALL_PARTITION = 100_000
"""Elements that a rank holds of a weight matrix at least, if the model or the number of ranks is unknown: 1,024 x 1,024 over 8 ranks."""

ADAPTER_PARTITION = 1_000
"""The same for a matrix of a small adapter."""

FEW_LIVE_PARAMETERS = 1_000_000
"""Elements below which `stage3_max_live_parameters` admits hardly any module of a model."""

DEFAULT_REUSE_DISTANCE = 1_000_000_000
"""DeepSpeed's default of `stage3_max_reuse_distance`."""


@rule(
    "DS413",
    effect=Effect.SLOW,
    watches=("zero_optimization.stage3_prefetch_bucket_size",),
    pedantic=True,
    references=(f"{COORDINATOR}.fetch_sub_module",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 0}'),
    at="zero_optimization.stage3_prefetch_bucket_size",
    message="stage3_prefetch_bucket_size 0 disables prefetching: the GPU waits for the parameters of every module.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e7}}',
)
@good(trained('"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e7}'))
def no_prefetch(config: Config) -> Iterator[Finding]:
    """`stage3_prefetch_bucket_size: 0` disables prefetching, so each module waits for its parameters.

    With a prefetch bucket of 0 DeepSpeed gathers parameters when a module needs them, and the GPU waits meanwhile. Some configs contain 0 on purpose, for
    models that run their modules in a different order in every step.

    Write 5e7, the default, unless the order of modules changes.
    """
    if config.value(STAGE) == 3 and config.has(PREFETCH) and config.value(PREFETCH) == 0:
        yield Finding(
            PREFETCH,
            "stage3_prefetch_bucket_size 0 disables prefetching: the GPU waits for the parameters of every module.",
            help=f"Write 5e7, the default, unless the order of modules changes from step to step.{late_gathers(config)}",
            fix=write(config, PREFETCH, "5e7"),
        )


@rule(
    "DS432",
    effect=Effect.ADVICE,
    watches=("zero_optimization.stage3_prefetch_bucket_size",),
    references=(f"{COORDINATOR}.fetch_sub_module",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e8, "stage3_max_live_parameters": 1e8}'),
    at="zero_optimization.stage3_prefetch_bucket_size",
    message="stage3_prefetch_bucket_size 5e8 is larger than stage3_max_live_parameters 100,000,000: DeepSpeed uses the smaller of the two.",
)
@bad(
    trained('"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e6, "stage3_max_live_parameters": 2000}'),
    at="zero_optimization.stage3_max_live_parameters",
    message="stage3_max_live_parameters 2000 leaves no room to prefetch a module: DeepSpeed ignores stage3_prefetch_bucket_size 5e6, and the GPU waits for every module.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e6, "stage3_max_live_parameters": 1e9}}',
)
@good(trained('"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e7, "stage3_max_live_parameters": 1e8}'))
@good(trained('"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e8}'))
def prefetch_above_live_parameters(config: Config) -> Iterator[Finding]:
    """`stage3_prefetch_bucket_size` is larger than `stage3_max_live_parameters`, which limits it.

    Before each prefetch DeepSpeed uses the smaller of `stage3_prefetch_bucket_size` and what `stage3_max_live_parameters` leaves. Above that limit the
    prefetch size changes nothing, and the finding is reported only with `--pedantic`. A limit of less than a million elements is smaller than most modules:
    DeepSpeed then prefetches nothing, and the finding is a warning about the limit.

    Raise the limit to its default, 1e9, or write a prefetch size below it.
    """
    if config.is_auto(PREFETCH) or not (config.value(STAGE) == 3 and config.has(PREFETCH) and config.value(PREFETCH) > config.value(LIVE)):
        return
    if config.value(LIVE) < FEW_LIVE_PARAMETERS:
        yield Finding(
            LIVE,
            f"stage3_max_live_parameters {config.quote(LIVE)} leaves no room to prefetch a module: DeepSpeed ignores stage3_prefetch_bucket_size {config.quote(PREFETCH)}, and the GPU waits for every module.",
            help="Write 1e9, the default: it counts elements.",
            fix=write(config, LIVE, "1e9"),
            related=((PREFETCH, "the prefetch size is set here"),),
            effect=Effect.IGNORED,
        )
    else:
        default = "" if config.has(LIVE) else ", the default"
        yield Finding(
            PREFETCH,
            f"stage3_prefetch_bucket_size {config.quote(PREFETCH)} is larger than stage3_max_live_parameters {config.value(LIVE):,}{default}: DeepSpeed uses the smaller of the two.",
            help="Write a prefetch size well below stage3_max_live_parameters.",
            related=((LIVE, "the limit is set here"),) if config.has(LIVE) else (),
            pedantic=True,
        )


@rule(
    "DS433",
    effect=Effect.ADVICE,
    pedantic=True,
    watches=("zero_optimization.stage3_allgather_sequential",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._configure_zero_optimizer",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "stage3_allgather_sequential": true, "stage3_prefetch_bucket_size": 5e7}'),
    at="zero_optimization.stage3_prefetch_bucket_size",
    message="stage3_allgather_sequential overrides stage3_prefetch_bucket_size 5e7: DeepSpeed sets it to 1.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "stage3_allgather_sequential": true}}',
)
@good(trained('"zero_optimization": {"stage": 3, "stage3_allgather_sequential": true}'))
@good(trained('"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e7}'))
def prefetch_of_sequential_allgather(config: Config) -> Iterator[Finding]:
    """`stage3_allgather_sequential` overrides the prefetch size.

    It gathers parameters one by one to use little memory. For this DeepSpeed sets the prefetch bucket to 1 element, and logs it at level info.

    Remove `stage3_prefetch_bucket_size`.
    """
    sequential = f"{ZERO}.stage3_allgather_sequential"
    if config.release >= (0, 18, 5) and config.value(STAGE) == 3 and config.value(sequential) is True and config.has(PREFETCH):
        if config.is_auto(PREFETCH) or config.value(PREFETCH) in (0, 1):
            return
        yield Finding(
            PREFETCH,
            f"stage3_allgather_sequential overrides stage3_prefetch_bucket_size {config.quote(PREFETCH)}: DeepSpeed sets it to 1.",
            help="Remove it.",
            fix=without(config, PREFETCH),
            related=((sequential, "parameters are gathered one by one here"),),
        )


@rule(
    "DS437",
    effect=Effect.ADVICE,
    watches=("zero_optimization.stage3_max_live_parameters",),
    pedantic=True,
    references=(f"{COORDINATOR}.release_sub_module",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e6}'),
    at="zero_optimization.stage3_max_live_parameters",
    message="stage3_max_live_parameters 1e6 only limits the prefetch: DeepSpeed keeps gathered parameters according to stage3_max_reuse_distance, 1,000,000,000 by default.",
)
@good(trained('"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e9}'))
@good(trained('"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e6, "stage3_max_reuse_distance": 1e6}'))
def live_parameters_free_nothing(config: Config) -> Iterator[Finding]:
    """`stage3_max_live_parameters` limits the prefetch, but frees no memory.

    DeepSpeed releases gathered parameters if the model does not need them again within `stage3_max_reuse_distance` elements. With the default, 1e9, DeepSpeed
    gathers a whole model of that size and keeps it from the forward to the backward pass, for any number of live parameters. Measured on a model in bf16 on
    8 ranks: lowering the live parameters from 1e9 to 1e6 did not change the peak, and a reuse distance of 0 reduced it to a third.

    Lower `stage3_max_reuse_distance` as well.
    """
    reuse = f"{ZERO}.stage3_max_reuse_distance"
    lowered = config.has(LIVE) and config.value(LIVE) < DEFAULT_REUSE_DISTANCE
    if config.value(STAGE) == 3 and lowered and config.value(reuse) >= DEFAULT_REUSE_DISTANCE:
        yield Finding(
            LIVE,
            f"stage3_max_live_parameters {config.quote(LIVE)} only limits the prefetch: DeepSpeed keeps gathered parameters according to stage3_max_reuse_distance, {config.value(reuse):,}{'' if config.has(reuse) else ' by default'}.",
            help='Lower "stage3_max_reuse_distance" as well.',
            related=((reuse, "the reuse distance is set here"),) if config.has(reuse) else related_stage(config),
        )


def _model_config(hidden: int) -> Any:
    return {"model_type": "llama", "hidden_size": hidden, "num_hidden_layers": 4}


@rule(
    "DS434",
    effect=Effect.MEMORY,
    watches=("zero_optimization.stage3_param_persistence_threshold",),
    references=("deepspeed/runtime/zero/parameter_offload.py, DeepSpeedZeRoOffload.mark_persistent_parameters",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1e9}'),
    at="zero_optimization.stage3_param_persistence_threshold",
    message="stage3_param_persistence_threshold 1e9 defeats stage 3: DeepSpeed keeps every matrix up to 31,622 x 31,622 whole on every GPU.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1e5}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 5000000}'),
    at="zero_optimization.stage3_param_persistence_threshold",
    model=_model_config(2048),
    message="stage3_param_persistence_threshold 5000000 defeats stage 3: DeepSpeed keeps every matrix up to 2,236 x 2,236 whole on every GPU, and the hidden size of config.json is 2,048.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 20480}}',
)
@good(trained('"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1e5}'))
@good(trained('"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 5000000}'), model=_model_config(4096))
@good(trained('"zero_optimization": {"stage": 3}'), model=_model_config(128))
@good(trained('"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1e9, "stage3_model_persistence_threshold": 1e6}'))
def persistence_defeats_stage_3(config: Config) -> Iterator[Finding]:
    """A large `stage3_param_persistence_threshold` keeps weight matrices whole on every GPU.

    DeepSpeed gathers parameters with fewer elements than the threshold once and keeps them. The setting exists for biases and norms, which cost more to gather
    than they save. A threshold above the size of the weight matrices also keeps those: stage 3 then uses the memory of stage 2.

    Write 1e5 to 1e6, or 10 times the hidden size.
    """
    threshold, total = config.value(PERSISTENT), config.value(f"{ZERO}.stage3_model_persistence_threshold")
    if not config.value(STAGE) >= 3 or not isinstance(threshold, int) or not isinstance(total, int) or total < threshold:
        return
    if not config.has(PERSISTENT):
        return  # the default keeps only matrices whole that are smaller than 317 x 317
    model = config.facts.model
    hidden = model.hidden_size if model is not None else None
    if threshold <= (hidden * hidden if hidden is not None else LARGE_MATRIX):
        return
    side = isqrt(threshold)
    yield Finding(
        PERSISTENT,
        f"stage3_param_persistence_threshold {config.quote(PERSISTENT)} defeats stage 3: DeepSpeed keeps every matrix up to {side:,} x {side:,} whole on every GPU"
        f"{f', and the hidden size of {model} is {hidden:,}' if hidden is not None else ''}.",
        help=f"Write {10 * hidden:,}, 10 times the hidden size." if hidden else "Write 1e5, the default, or 10 times the hidden size.",
        fix=write(config, PERSISTENT, str(10 * hidden) if hidden else "1e5"),
    )


@rule(
    "DS435",
    effect=Effect.ADVICE,
    watches=("zero_optimization.sub_group_size",),
    references=(SUB_GROUPS, "https://github.com/deepspeedai/DeepSpeed/issues/1145"),
    pedantic=True,
)
@bad(
    trained('"zero_optimization": {"stage": 3, "sub_group_size": 1e12}'),
    at="zero_optimization.sub_group_size",
    message="sub_group_size 1e12 is more elements than a GPU holds, so it limits nothing: if a GPU has more than 1e9 elements, the optimizer step needs more memory than with the default.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "sub_group_size": 1e9}}',
)
@good(trained('"zero_optimization": {"stage": 3, "sub_group_size": 1e9}'))
@good(trained('"zero_optimization": {"stage": 2, "sub_group_size": 1e12}'))
def sub_group_unbounded(config: Config) -> Iterator[Finding]:
    """A huge `sub_group_size` lets the optimizer update the whole partition of a GPU at once.

    At stage 3 the optimizer step handles `sub_group_size` elements at a time, which limits its working memory (fp32 gradients, buffers for NVMe) to one
    sub-group. Old documentation shows 1e12, which is more than any GPU holds: there is one sub-group. This makes a difference only if a GPU holds
    more than 1e9 elements of the partitioned model; the step then needs memory for all of them at once.

    Write 1e9, the default, or less if the step runs out of memory.
    """
    size = config.value(SUB_GROUP)
    if config.value(STAGE) == 3 and isinstance(size, int) and size >= UNLIMITED_SUB_GROUP and not runs_without_optimizer(config):
        yield Finding(
            SUB_GROUP,
            f"sub_group_size {config.quote(SUB_GROUP)} is more elements than a GPU holds, so it limits nothing: if a GPU has more than 1e9 elements, the optimizer step needs more memory than with the default.",
            help="Write 1e9, the default, which limits the fp32 gradients of the step to 3.7 GiB.",
            fix=write(config, SUB_GROUP, "1e9"),
        )


@rule(
    "DS436",
    effect=Effect.SLOW,
    watches=("zero_optimization.sub_group_size",),
    references=(SUB_GROUPS,),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "sub_group_size": 0}'),
    at="zero_optimization.sub_group_size",
    message="sub_group_size 0 makes nearly every parameter its own sub-group: the optimizer updates them one by one.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "sub_group_size": 1e9}}',
)
@good(trained('"zero_optimization": {"stage": 3, "sub_group_size": 1e8}'))
@good(trained('"zero_optimization": {"stage": 2, "sub_group_size": 0}'))
@good(trained('"zero_optimization": {"stage": 3, "sub_group_size": 500000}'), model=_model_config(1024), world_size=8)
@good(trained('"zero_optimization": {"stage": 3, "sub_group_size": 500000}'))
@bad(
    trained('"zero_optimization": {"stage": 3, "sub_group_size": 500000}'),
    at="zero_optimization.sub_group_size",
    model=_model_config(4096),
    world_size=8,
    message="sub_group_size 500000 makes nearly every parameter its own sub-group: the optimizer updates them one by one.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "sub_group_size": 1e9}}',
)
def tiny_sub_group(config: Config) -> Iterator[Finding]:
    """With a tiny `sub_group_size` the optimizer updates the parameters nearly one by one.

    `sub_group_size` counts elements. DeepSpeed closes a sub-group when it holds that many, so 0 makes every parameter a sub-group: each needs its own
    optimizer step and its own copies.

    Write 1e9, the default.
    """
    size = config.value(SUB_GROUP)
    if not (config.value(STAGE) == 3 and isinstance(size, int) and 0 <= size < SMALL_SUB_GROUP) or runs_without_optimizer(config):
        return
    if size < _partition_of_matrix(config):
        yield Finding(
            SUB_GROUP,
            f"sub_group_size {config.quote(SUB_GROUP)} makes nearly every parameter its own sub-group: the optimizer updates them one by one.",
            help="Write 1e9, the default: it counts elements." + single_updates(config),
            fix=write(config, SUB_GROUP, "1e9"),
            pedantic=config.value(f"{OFFLOAD_OPTIMIZER}.device") not in ("cpu", "nvme"),  # a launch for each tensor: milliseconds per step
        )


def _partition_of_matrix(config: Config) -> int:
    """The elements that a rank holds of a weight matrix of the model; a sub-group holds at least one such partition."""
    if trains_part(config):
        return ADAPTER_PARTITION
    hidden, ranks = config.facts.model.hidden_size if config.facts.model is not None else None, config.facts.world_size
    return hidden * hidden // ranks if hidden and ranks else SMALL_PARTITION


@rule(
    "DS446",
    effect=Effect.MEMORY,
    watches=(LINEAR,),
    references=("deepspeed/runtime/zero/linear.py, LinearFunctionForZeroStage3",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "memory_efficient_linear": false}'),
    at=LINEAR,
    message="memory_efficient_linear false keeps the gathered weights of all linear layers on the GPU from the forward to the backward, unless the model uses activation checkpointing.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "memory_efficient_linear": true}}',
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "memory_efficient_linear": false}'),
    at=LINEAR,
    model={
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
    },
    message="memory_efficient_linear false keeps the gathered weights of all linear layers on the GPU from the forward to the backward, 12.3 GiB, unless the model uses activation checkpointing.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "memory_efficient_linear": true}}',
)
@good(trained('"zero_optimization": {"stage": 3, "memory_efficient_linear": true}'))
@good(
    trained('"zero_optimization": {"stage": 3, "memory_efficient_linear": false}'),
    program="import deepspeed\nfrom transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('m')\n"
    "model.gradient_checkpointing_enable()\nengine, *_ = deepspeed.initialize(model=model, config='ds_config.json')\n",
    integration="deepspeed",
)
@good(trained('"zero_optimization": {"stage": 2, "memory_efficient_linear": false}'))
@good(trained('"zero_optimization": {"stage": 3, "memory_efficient_linear": false}'), world_size=1)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "memory_efficient_linear": false}}',
    program="import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config='ds_config.json')\n",
    integration="deepspeed",
)
def plain_linear_layers(config: Config) -> Iterator[Finding]:
    """With `memory_efficient_linear` off, stage 3 does not free the gathered weights of linear layers after their forward.

    torch's linear layer saves a view of its weight for the backward, and the view keeps the gathered weight alive after DeepSpeed has
    released it. So at the end of the forward all linear layers are on every GPU whole. DeepSpeed replaces `torch.nn.functional.linear` with
    one that gathers the weight again. With activation checkpointing only the layers of one block are kept.

    Before DeepSpeed 0.19.4 only `zero.Init` replaces it: a model that is built first and partitioned by `deepspeed.initialize` has torch's
    linear layers, whatever the config says.
    """
    if not config.value(STAGE) >= 3 or config.value(LINEAR) is not False:
        return
    if is_checkpointed(config) or runs_without_optimizer(config):
        return  # without a backward nothing is kept
    if config.value("compile.deepcompile") is True:
        return  # which schedules the gathers itself
    if config.facts.world_size == 1 and config.value(f"{OFFLOAD_PARAM}.device") not in ("cpu", "nvme"):
        return  # the whole weights are on the GPU anyway
    size = _linear_weights(config)
    value = "Set it to true, the default" + (", and build the model under deepspeed.zero.Init" if config.release < _PATCHED else "")
    yield Finding(
        LINEAR,
        "memory_efficient_linear false keeps the gathered weights of all linear layers on the GPU from the forward to the backward"
        f"{f', {in_words(size)}' if size else ''}, unless the model uses activation checkpointing.",
        help=f"{value}, or enable activation checkpointing.",
        fix=write(config, LINEAR, "true"),
    )


def _linear_weights(config: Config) -> int | None:
    """The bytes of the weights of all linear layers, if the model is known."""
    if config.facts.model is None:
        return None
    try:
        model = counted(config.facts.model)
    except CannotJudge:
        return None
    half = config.value("bf16.enabled") is True or config.value("fp16.enabled") is True
    return (2 if half else 4) * sum(weight.size for weight in model.weights[len(model.first) :] if weight.is_linear)
