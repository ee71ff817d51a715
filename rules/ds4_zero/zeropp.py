"""DS4: partitions that stay within a node (ZeRO++'s secondary partition, MiCS), and ZeRO++'s quantized gradients."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.rule import Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.cost import slower
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.keys import in_file_order
from dslint.rules.helpers.precision import model_dtype
from dslint.rules.helpers.zero import (
    DTYPE_BYTES,
    STAGE,
    ZERO,
    ZEROPP_FEATURES,
    excludes_stage_3,
    is_feature,
    is_stage_written,
    local_ranks,
    related_stage,
)

TUTORIAL = "https://www.deepspeed.ai/tutorials/zeropp/"
STAGE_3 = "deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3"
SECONDARY = f"{ZERO}.zero_hpz_partition_size"
QUANTIZED_GRADIENTS = f"{ZERO}.zero_quantized_gradients"


def _secondary_size_of_a_node(config: Config) -> FixPlan | None:
    """Write the number of GPUs of a node as the size of the secondary partition; on a single node remove the key."""
    local = local_ranks(config)
    if local is None or local < 2:
        return None
    return without(config, SECONDARY, Applicability.UNSAFE) if config.facts.nodes == 1 else write(config, SECONDARY, str(local))


@rule(
    "DS445",
    effect=Effect.IGNORED,
    watches=tuple(ZEROPP_FEATURES),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._configure_zero_optimizer", TUTORIAL),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "zero_quantized_weights": true, "zero_quantized_gradients": true}}',
    at="zero_optimization.zero_quantized_weights",
    message="ZeRO stage 2 does not read zero_quantized_weights, zero_quantized_gradients: DeepSpeed uses them only at stage 3.",
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "zero_quantized_weights": true}}')
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "zero_quantized_weights": false, "zero_hpz_partition_size": 1}}'
)
def zeropp_below_stage_3(config: Config) -> Iterator[Finding]:
    """The features of ZeRO++ do nothing below ZeRO stage 3.

    ZeRO++ quantizes what stage 3 communicates, and keeps a second partition of its parameters within a node. The other stages do not read these keys: the training
    communicates as much as without them.

    Set the stage to 3, or remove them.
    """
    stage = config.value(STAGE)
    if not is_stage_written(config):
        return
    unread = [key for key in in_file_order(config, ZEROPP_FEATURES) if stage in (0, 1, 2) and is_feature(config, key)]
    if unread:
        names = ", ".join(config.name_of(key).removeprefix(f"{ZERO}.") for key in unread)
        them = "it" if len(unread) == 1 else "them"
        yield Finding(
            unread[0],
            f"ZeRO stage {stage} does not read {names}: DeepSpeed uses {them} only at stage 3.",
            help=f"Remove {them}." if excludes_stage_3(config) else f"Set {config.assignment(STAGE, '3')}, or remove {them}.",
            related=(*related_stage(config), *((key, "also not read") for key in unread[1:])),
        )


@rule(
    "DS404",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.zero_hpz_partition_size",),
    needs=("world_size",),
    references=("deepspeed/utils/groups.py, _create_zero_param_parallel_group",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 3}}',
    at="zero_optimization.zero_hpz_partition_size",
    world_size=8,
    message="zero_hpz_partition_size 3 does not divide the world size 8: DeepSpeed raises an AssertionError in deepspeed.initialize.",
)
@bad(
    trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 6}'),
    at="zero_optimization.zero_hpz_partition_size",
    world_size=16,
    nodes=2,
    message="zero_hpz_partition_size 6 does not divide the world size 16: DeepSpeed raises an AssertionError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}',
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}}',
    world_size=8,
)
def hpz_not_a_divisor(config: Config) -> Iterator[Finding]:
    """The size of ZeRO++'s secondary partition does not divide the world size.

    `zero_hpz_partition_size` ranks, usually those of one node, hold a whole copy of the parameters together. The size must divide the world size: DeepSpeed
    asserts this when it builds the groups.

    Write the number of GPUs of a node.
    """
    size, ranks = config.value(SECONDARY), config.facts.world_size
    if isinstance(size, int) and ranks is not None and 1 < size < ranks and ranks % size and config.value(STAGE) == 3:
        yield Finding(
            SECONDARY,
            f"zero_hpz_partition_size {size} does not divide the world size {ranks:,}: DeepSpeed raises an AssertionError in deepspeed.initialize.",
            help="Write the number of GPUs of a node.",
            fix=write(config, SECONDARY, str(local)) if (local := local_ranks(config)) else None,
        )


@rule(
    "DS415",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.mics_shard_size",),
    needs=("world_size",),
    untried="the newest release has removed the setting and rejects it while parsing",
    references=("deepspeed/runtime/zero/mics_utils.py, _generate_mics_config, until 0.19.6",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "mics_shard_size": 3}'),
    at="zero_optimization.mics_shard_size",
    world_size=8,
    deepspeed="0.16.9",
    message='mics_shard_size 3 does not divide the world size 8: DeepSpeed raises AssertionError "dp group size is not dividable by dp_shard_size" in deepspeed.initialize.',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "mics_shard_size": 6}'),
    at="zero_optimization.mics_shard_size",
    world_size=16,
    nodes=2,
    deepspeed="0.16.9",
    message='mics_shard_size 6 does not divide the world size 16: DeepSpeed raises AssertionError "dp group size is not dividable by dp_shard_size" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "mics_shard_size": 8}}',
)
@good(trained('"zero_optimization": {"stage": 3, "mics_shard_size": 4}'), world_size=8, deepspeed="0.16.9")
@good(trained('"zero_optimization": {"stage": 3, "mics_shard_size": -1}'), world_size=8, deepspeed="0.16.9")
def mics_not_a_divisor(config: Config) -> Iterator[Finding]:
    """The size of the MiCS groups does not divide the world size.

    MiCS divides the ranks into groups of equal size. Releases that still have it raise `AssertionError: dp group size is not dividable by dp_shard_size`.
    Newer ones reject the key; ZeRO++'s `zero_hpz_partition_size` replaces it.

    Write a divisor of the world size, usually the number of GPUs of a node.
    """
    key, ranks = f"{ZERO}.mics_shard_size", config.facts.world_size
    size = config.value(key) if config.has(key) and config.release < (0, 19, 7) else 0
    if isinstance(size, int) and size > 0 and ranks is not None and ranks % size and config.value(STAGE) == 3:
        yield Finding(
            key,
            f'mics_shard_size {size} does not divide the world size {ranks:,}: DeepSpeed raises AssertionError "dp group size is not dividable by dp_shard_size" in deepspeed.initialize.',
            help=f"Write a divisor of {ranks:,}, usually the number of GPUs of a node.",
            fix=write(config, key, str(local)) if (local := local_ranks(config)) else None,
        )


@rule(
    "DS421",
    effect=Effect.IGNORED,
    watches=("zero_optimization.zero_hpz_partition_size",),
    needs=("world_size",),
    references=("deepspeed/utils/groups.py, _create_zero_param_parallel_group",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 16}'),
    at="zero_optimization.zero_hpz_partition_size",
    world_size=8,
    message="zero_hpz_partition_size 16 is larger than the world size 8, so DeepSpeed uses 8: the second copy of the parameters is divided exactly as the first.",
)
@bad(
    trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 64}'),
    at="zero_optimization.zero_hpz_partition_size",
    world_size=32,
    nodes=4,
    message="zero_hpz_partition_size 64 is larger than the world size 32, so DeepSpeed uses 32: the second copy of the parameters is divided exactly as the first.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}',
)
@good(trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}'), world_size=16)
def hpz_larger_than_world(config: Config) -> Iterator[Finding]:
    """ZeRO++'s secondary partition is larger than the number of GPUs.

    DeepSpeed uses the smaller of the two numbers. It then divides the secondary copy of the parameters exactly as the primary one: the copy costs memory, and
    no additional gather stays within a node.

    Write the number of GPUs of a node, or remove the key on a single node.
    """
    size, ranks = config.value(SECONDARY), config.facts.world_size
    if config.value(STAGE) == 3 and isinstance(size, int) and ranks is not None and size > ranks > 1:  # one rank has nothing to divide
        yield Finding(
            SECONDARY,
            f"zero_hpz_partition_size {size} is larger than the world size {ranks:,}, so DeepSpeed uses {ranks:,}: the second copy of the parameters is divided exactly as the first.",
            help="Write the number of GPUs of a node, or remove it on a single node.",
            fix=_secondary_size_of_a_node(config),
        )


@rule(
    "DS422",
    effect=Effect.MEMORY,
    watches=("zero_optimization.zero_hpz_partition_size",),
    needs=("nodes",),
    references=(TUTORIAL, "deepspeed/runtime/zero/partition_parameters.py, Init._partition_param_sec"),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}'),
    at="zero_optimization.zero_hpz_partition_size",
    nodes=1,
    message="zero_hpz_partition_size 8 keeps a second copy of the parameters (4 bytes for each, divided by 8) so that gathers stay inside the node; on one node they always do.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3}}',
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}'),
    at="zero_optimization.zero_hpz_partition_size",
    nodes=1,
    message="zero_hpz_partition_size 8 keeps a second copy of the parameters (2 bytes for each, divided by 8) so that gathers stay inside the node; on one node they always do.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
)
@good(trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}'), nodes=2)
@good(trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 1}'), nodes=1)
def hpz_on_one_node(config: Config) -> Iterator[Finding]:
    """On a single node ZeRO++'s secondary partition costs memory and saves no communication.

    ZeRO++ keeps a second copy of the parameters within each node, so that the backward pass gathers over the links inside the node. On one node every gather
    stays inside it anyway.

    Remove it, unless another launch of the same config uses several nodes.
    """
    size, ranks = config.value(SECONDARY), config.facts.world_size
    larger_than_world = ranks is not None and isinstance(size, int) and size > ranks
    if config.facts.nodes == 1 and config.value(STAGE) == 3 and isinstance(size, int) and size > 1 and not larger_than_world:
        dtype = model_dtype(config)
        bytes_each = f"{DTYPE_BYTES[dtype]} bytes for each, " if dtype is not None else ""
        yield Finding(
            SECONDARY,
            f"zero_hpz_partition_size {size} keeps a second copy of the parameters ({bytes_each}divided by {size}) so that gathers stay inside the node; on one node they always do.",
            help="Remove it, unless another launch of this config uses several nodes.",
            fix=without(config, SECONDARY, Applicability.UNSAFE),
        )


@rule(
    "DS423",
    effect=Effect.SLOW,
    watches=("zero_optimization.zero_hpz_partition_size",),
    needs=("world_size", "nodes"),
    references=(TUTORIAL,),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 16}'),
    at="zero_optimization.zero_hpz_partition_size",
    world_size=32,
    nodes=4,
    message="zero_hpz_partition_size 16 spans nodes of 8 GPUs each: the backward pass gathers over the network, which the second copy of the parameters should prevent.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}',
)
@good(trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}'), world_size=32, nodes=4)
@good(trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}'), world_size=32, nodes=4)
def hpz_across_nodes(config: Config) -> Iterator[Finding]:
    """ZeRO++'s secondary partition spans more than one node.

    DeepSpeed builds the groups from consecutive ranks. If their size does not divide the number of GPUs of a node, some groups include GPUs of the next node,
    and the backward pass gathers over the network, which the second copy of the parameters should prevent.

    Write the number of GPUs of a node.
    """
    size, ranks, nodes = config.value(SECONDARY), config.facts.world_size, config.facts.nodes
    if not isinstance(size, int) or ranks is None or not nodes or nodes < 2 or ranks % nodes or not 1 < size <= ranks:
        return
    local = ranks // nodes
    if config.value(STAGE) == 3 and local % size and ranks % size == 0 and not runs_without_optimizer(config):
        yield Finding(
            SECONDARY,
            f"zero_hpz_partition_size {size} spans nodes of {local} GPUs each: the backward pass gathers over the network, which the second copy of the parameters should prevent.",
            help=f"Write {local}, the number of GPUs of a node."
            + slower(config, lambda job: job.but(secondary=local), lambda job: job.but(secondary=1)),
            fix=_secondary_size_of_a_node(config),
            costly=True,
        )


@rule(
    "DS426",
    effect=Effect.ADVICE,
    watches=("zero_optimization.zero_hpz_partition_size",),
    references=("https://github.com/deepspeedai/DeepSpeed/issues/6926", "https://github.com/deepspeedai/DeepSpeed/issues/5059"),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8, "offload_param": {"device": "cpu"}}'),
    at="zero_optimization.zero_hpz_partition_size",
    message="zero_hpz_partition_size 8 with offload_param may stop the training from making progress: users report a constant loss and a gradient norm of 0, without an error.",
)
@good(trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}'))
@good(trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8, "offload_param": {"device": "none"}}'))
def hpz_with_offload(config: Config) -> Iterator[Finding]:
    """With ZeRO++'s secondary partition and offload together, users report training that makes no progress.

    They report a constant loss and a gradient norm of 0. The second copy of the parameters also stays on the GPU and uses part of the memory that offload frees.

    Remove one of the two, or check that the loss decreases and the gradient norm is not 0.
    """
    size = config.value(SECONDARY)
    devices = {name: config.value(f"{ZERO}.{name}.device") for name in ("offload_param", "offload_optimizer")}
    offload = next((name for name, device in devices.items() if device in ("cpu", "nvme")), None)
    if config.value(STAGE) == 3 and isinstance(size, int) and size > 1 and offload and not runs_without_optimizer(config):
        yield Finding(
            SECONDARY,
            f"zero_hpz_partition_size {size} with {offload} may stop the training from making progress: users report a constant loss and a gradient norm of 0, without an error.",
            help="Remove one of the two.",
            related=((f"{ZERO}.{offload}", "offload is set here"),),
            certain=False,
            costly=True,
        )


@rule(
    "DS424",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.zero_quantized_gradients",),
    references=(f"{STAGE_3}.__init__",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "zero_quantized_gradients": true, "reduce_scatter": false}'),
    at="zero_optimization.zero_quantized_gradients",
    message='zero_quantized_gradients requires reduce_scatter, which is false: DeepSpeed raises AssertionError "when enable all_to_all_reduce, reduce_scatter should also be enabled for data type checks".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "zero_quantized_gradients": true}}',
)
@good(trained('"zero_optimization": {"stage": 3, "zero_quantized_gradients": false, "reduce_scatter": false}'))
@good(trained('"zero_optimization": {"stage": 2, "zero_quantized_gradients": true, "reduce_scatter": false}'))
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "zero_quantized_gradients": true, "reduce_scatter": false}}',
    program="import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config='ds_config.json')\n",
    integration="deepspeed",
)
def quantized_gradients_without_reduce_scatter(config: Config) -> Iterator[Finding]:
    """ZeRO++'s quantized gradients require `reduce_scatter`.

    DeepSpeed raises `AssertionError: when enable all_to_all_reduce, reduce_scatter should also be enabled` when it builds the stage 3 optimizer.

    Remove `"reduce_scatter": false`. The default is true.
    """
    key = f"{ZERO}.reduce_scatter"
    unsupported = config.value(STAGE) == 3 and config.value(QUANTIZED_GRADIENTS) is True and config.value(key) is False
    if unsupported and not runs_without_optimizer(config):
        yield Finding(
            QUANTIZED_GRADIENTS,
            'zero_quantized_gradients requires reduce_scatter, which is false: DeepSpeed raises AssertionError "when enable all_to_all_reduce, reduce_scatter should also be enabled for data type checks".',
            help='Remove "reduce_scatter": false.',
            fix=without(config, key, Applicability.UNSAFE),
            related=((key, "reduce_scatter is false here"),),
        )


@rule(
    "DS425",
    effect=Effect.ADVICE,
    pedantic=True,
    watches=("zero_optimization.zero_quantized_gradients",),
    needs=("nodes",),
    references=(f"{STAGE_3}.__avg_scatter_grads",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "zero_quantized_gradients": true}'),
    at="zero_optimization.zero_quantized_gradients",
    nodes=1,
    message="zero_quantized_gradients does nothing on one node: DeepSpeed reduces gradients there in full precision.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3}}',
)
@good(trained('"fp16": {"enabled": true}, "zero_optimization": {"stage": 3, "zero_quantized_gradients": true}'), nodes=4)
def quantized_gradients_on_one_node(config: Config) -> Iterator[Finding]:
    """On one node DeepSpeed does not use ZeRO++'s quantized gradients.

    DeepSpeed sends 4-bit gradients between nodes, if the number of ranks is at least twice the number of GPUs of a node. Otherwise it uses the ordinary
    reduce-scatter.

    Remove it on a single node.
    """
    if config.facts.nodes == 1 and config.value(STAGE) == 3 and config.value(QUANTIZED_GRADIENTS) is True:
        yield Finding(
            QUANTIZED_GRADIENTS,
            "zero_quantized_gradients does nothing on one node: DeepSpeed reduces gradients there in full precision.",
            help="Remove it.",
            fix=without(config, QUANTIZED_GRADIENTS),
        )


_SEVERAL_NODES = '"zero_optimization": {"stage": 3, "zero_quantized_gradients": true}'


@rule(
    "DS447",
    effect=Effect.SILENT,
    watches=("zero_optimization.zero_quantized_gradients",),
    references=(
        f"{STAGE_3}.__avg_scatter_grads",
        "deepspeed/runtime/comm/coalesced_collectives.py, all_to_all_quant_reduce",
        "csrc/quantization/pt_binding.cpp, ds_swizzle_quant",
    ),
)
@bad(
    trained('"bf16": {"enabled": true}, ' + _SEVERAL_NODES),
    at="zero_optimization.zero_quantized_gradients",
    nodes=4,
    message="zero_quantized_gradients reads gradients as fp16, and DeepSpeed sends them in bf16 here: between nodes it reduces wrong numbers, without an error.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
)
@bad(
    trained('"bf16": {"enabled": true}, ' + _SEVERAL_NODES),
    at="zero_optimization.zero_quantized_gradients",
    message="zero_quantized_gradients reads gradients as fp16, and DeepSpeed sends them in bf16 here: on several nodes it may reduce wrong numbers, without an error.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
)
@bad(
    trained('"fp16": {"enabled": true}, "communication_data_type": "fp32", ' + _SEVERAL_NODES),
    at="zero_optimization.zero_quantized_gradients",
    nodes=2,
    message="zero_quantized_gradients reads gradients as fp16, and DeepSpeed sends them in fp32 here: between nodes it reduces wrong numbers, without an error.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "fp16": {"enabled": true}, "communication_data_type": "fp32", "zero_optimization": {"stage": 3}}',
)
@good(trained('"bf16": {"enabled": true}, ' + _SEVERAL_NODES), nodes=1)
@good(trained('"fp16": {"enabled": true}, ' + _SEVERAL_NODES), nodes=4)
@good(trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "zero_quantized_gradients": true}'), nodes=4)
def quantized_gradients_not_fp16(config: Config) -> Iterator[Finding]:
    """ZeRO++'s quantized gradients know only fp16.

    Between nodes DeepSpeed quantizes the gradients with a kernel that reads their memory as fp16, whatever their data type is. They have that of
    `communication_data_type`, which is the one of the training by default. In bf16 or fp32 the kernel reads other numbers, and the
    optimizer gets wrong gradients. On one node DeepSpeed does not quantize gradients.

    Remove `zero_quantized_gradients`, or train in fp16.
    """
    is_used = config.value(STAGE) == 3 and config.value(QUANTIZED_GRADIENTS) is True and config.value(f"{ZERO}.reduce_scatter") is True
    is_used = is_used and config.value("expert_parallel.enabled") is not True  # which excludes them
    sent, several = _data_type_sent(config), config.facts.nodes is not None
    if is_used and sent in ("bf16", "fp32") and config.facts.nodes != 1 and not runs_without_optimizer(config):
        where = "between nodes it reduces" if several else "on several nodes it may reduce"
        yield Finding(
            QUANTIZED_GRADIENTS,
            f"zero_quantized_gradients reads gradients as fp16, and DeepSpeed sends them in {sent} here: {where} wrong numbers, without an error.",
            help="Remove it, or train in fp16.",
            fix=without(config, QUANTIZED_GRADIENTS, Applicability.UNSAFE),
            certain=several,
        )


def _data_type_sent(config: Config) -> str:
    """The data type in which DeepSpeed sends gradients; "" if it is not known. Source: deepspeed/runtime/engine.py, communication_data_type."""
    key = "communication_data_type"
    if config.has(key):
        return {"fp16": "fp16", "fp32": "fp32", "bfp16": "bf16", "bf16": "bf16"}.get(str(config.value(key)).lower(), "")
    fp16, bf16 = config.value("fp16.enabled"), config.value("bf16.enabled")
    return "fp16" if fp16 is True else "bf16" if bf16 is True else "fp32" if fp16 is False and bf16 is False else ""
