"""DS4: how gradients are scaled, averaged and sent, and ZeRO++, which sends less."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Applicability, Effect, Phase, Severity
from dslint.rule import Finding, FixPlan, bad, good, rule, unsafe
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.zero import STAGE, ZERO, local_ranks, related_stage
from dslint.source.change import Rename

ENGINE = "deepspeed/runtime/engine.py"
STAGE_3 = "deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3.__init__"
HPZ = f"{ZERO}.zero_hpz_partition_size"
QUANTIZED = f"{ZERO}.zero_quantized_gradients"


@rule(
    "DS416",
    "scaled-gradients-with-reduce-scatter",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("gradient_predivide_factor", "prescale_gradients"),
    references=("deepspeed/runtime/zero/stage_1_and_2.py, DeepSpeedZeroOptimizer.__init__", STAGE_3),
)
@bad(trained('"prescale_gradients": true, "zero_optimization": {"stage": 2}'), at="prescale_gradients")
@bad(trained('"gradient_predivide_factor": 2, "zero_optimization": {"stage": 3}'), at="gradient_predivide_factor")
@good(trained('"prescale_gradients": true, "zero_optimization": {"stage": 2, "reduce_scatter": false}'))
@good(trained('"gradient_predivide_factor": 2, "zero_optimization": {"stage": 1}'))
@good(trained('"gradient_predivide_factor": 1.0, "zero_optimization": {"stage": 3}'))
def scaled_gradients_with_reduce_scatter(config: Config) -> Iterator[Finding]:
    """Gradients are to be scaled before they are averaged, at a ZeRO stage whose reduce-scatter cannot.

    At stages 2 and 3 gradients are averaged with reduce-scatter unless `reduce_scatter` is false. It supports neither `prescale_gradients` nor a
    `gradient_predivide_factor` other than 1, and DeepSpeed asserts so when it builds the optimizer.

    Remove them (averages of a few hundred ranks need no scaling in bf16 or fp32), or write `"reduce_scatter": false`.
    """
    stage = config.value(STAGE)
    if stage not in (2, 3) or config.value(f"{ZERO}.reduce_scatter") is not True:
        return
    op = config.value("gradient_allreduce_op")
    if isinstance(op, str) and op.lower() == "sum":
        return
    factor = config.value("gradient_predivide_factor")
    if isinstance(factor, int | float) and factor != 1:
        key, name = "gradient_predivide_factor", "gradient_predivide_factor != 1.0"
    elif config.value("prescale_gradients") is True:
        key, name = "prescale_gradients", "pre-scale gradients"
    else:
        return
    yield Finding(
        key,
        f'{key} {config.quote(key)} does not go with reduce_scatter, which stage {stage} uses: DeepSpeed raises AssertionError "{name} is not yet supported with ZeRO-{stage} with reduce scatter enabled".',
        help='Remove it, or write "reduce_scatter": false in zero_optimization.',
        fix=without(config, key, Applicability.UNSAFE),
        related=related_stage(config),
    )


@rule(
    "DS417",
    "predivide-factor-not-read",
    effect=Effect.IGNORED,
    watches=("gradient_predivide_factor", "prescale_gradients"),
    references=(f"{ENGINE}, DeepSpeedEngine.allreduce_bucket",),
)
@bad(trained('"gradient_predivide_factor": 8, "prescale_gradients": true'), at="gradient_predivide_factor")
@bad(trained('"gradient_predivide_factor": 8, "gradient_allreduce_op": "sum"'), at="gradient_predivide_factor")
@good(trained('"gradient_predivide_factor": 8'))
@good(trained('"prescale_gradients": true'))
def predivide_factor_not_read(config: Config) -> Iterator[Finding]:
    """The factor splits the division by the number of ranks, and here there is none to split.

    `gradient_predivide_factor` has a part of that division done before gradients are added up, and the rest after. With `prescale_gradients` all of it is done
    before; with `gradient_allreduce_op` "sum" there is no division.

    Keep one of the two.
    """
    factor, op = config.value("gradient_predivide_factor"), config.value("gradient_allreduce_op")
    if isinstance(op, str) and op.lower() == "sum" and config.value(STAGE) in (0, 1, 2):
        for key, neutral in (("gradient_predivide_factor", 1), ("prescale_gradients", False)):
            if config.has(key) and config.value(key) != neutral and config.value(key) is not UNKNOWN:
                yield Finding(
                    key,
                    f'{key} {config.quote(key)} is not read: gradient_allreduce_op "sum" adds gradients up and divides them by nothing.',
                    help="Keep one of the two.",
                    fix=without(config, key),
                    related=(("gradient_allreduce_op", "gradients are summed here"),),
                )
        return
    stage, scatters = config.value(STAGE), config.value(f"{ZERO}.reduce_scatter")
    if config.value("prescale_gradients") is not True or not isinstance(factor, int | float) or factor == 1:
        return
    if stage in (0, 1) or (stage == 2 and scatters is False):
        yield Finding(
            "gradient_predivide_factor",
            f"gradient_predivide_factor {config.quote('gradient_predivide_factor')} is not read beside prescale_gradients, which divides by the number of ranks before the sum.",
            help="Keep one of the two.",
            fix=without(config, "gradient_predivide_factor"),
            related=(("prescale_gradients", "gradients are divided before the sum here"),),
        )


@rule(
    "DS418",
    "unmanaged-accumulation-with-overlap",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("managed_gradient_accumulation",),
    references=(f"{ENGINE}, DeepSpeedEngine._do_sanity_check",),
)
@bad(
    trained('"managed_gradient_accumulation": false, "zero_optimization": {"stage": 1, "overlap_comm": true}'),
    at="managed_gradient_accumulation",
)
@bad(trained('"managed_gradient_accumulation": false, "compile": {"deepcompile": true}'), at="managed_gradient_accumulation")
@good(trained('"managed_gradient_accumulation": true, "zero_optimization": {"stage": 1, "overlap_comm": true}'))
def unmanaged_accumulation_with_overlap(config: Config) -> Iterator[Finding]:
    """The program manages accumulation itself, beside a setting that has to know where it ends.

    With `managed_gradient_accumulation: false` DeepSpeed learns only at `step()` that the micro batches are over. It then refuses `overlap_comm` at stages 0
    and 1, pipelines and DeepCompile, with an `AssertionError` in `deepspeed.initialize`.

    Remove one of the two.
    """
    key = "managed_gradient_accumulation"
    if config.release < (0, 19, 4) or config.value(key) is not False:
        return
    if config.value(STAGE) in (0, 1) and config.value(f"{ZERO}.overlap_comm") is True and config.has(f"{ZERO}.overlap_comm"):
        place, what = f"{ZERO}.overlap_comm", f"overlap_comm at stage {config.value(STAGE)}"
    elif config.value("compile.deepcompile") is True:
        place, what = "compile.deepcompile", "DeepCompile"
    else:
        return
    yield Finding(
        key,
        f"managed_gradient_accumulation false does not go with {what}: DeepSpeed raises an AssertionError in deepspeed.initialize.",
        help="Remove one of the two.",
        fix=write(config, place, "false"),
        related=((place, "does not go with it"),),
    )


@rule(
    "DS419",
    "communication-type-of-sequence-parallelism",
    effect=Effect.IGNORED,
    watches=("communication_data_type",),
    needs=("sequence_parallel",),
    references=(f"{ENGINE}, DeepSpeedEngine._configure_distributed_model",),
)
@bad(trained('"communication_data_type": "bf16", "bf16": {"enabled": true}'), at="communication_data_type", sequence_parallel=4)
@good(trained('"seq_parallel_communication_data_type": "bf16", "bf16": {"enabled": true}'), sequence_parallel=4)
@good(trained('"communication_data_type": "bf16", "bf16": {"enabled": true}'), sequence_parallel=1)
def communication_type_of_sequence_parallelism(config: Config) -> Iterator[Finding]:
    """With sequence parallelism gradients are sent in another key's type.

    Where several GPUs share a sequence, DeepSpeed takes `seq_parallel_communication_data_type`, which is fp32 unless it is written, and
    `communication_data_type` is not read.

    Write `seq_parallel_communication_data_type`.
    """
    key, other = "communication_data_type", "seq_parallel_communication_data_type"
    wanted, used = config.value(key), config.value(other)
    if (config.facts.sequence_parallel or 1) < 2 or not config.has(key) or not isinstance(wanted, str) or not isinstance(used, str):
        return
    if config.release >= (0, 11, 2) and wanted.lower() != used.lower():
        yield Finding(
            key,
            f"communication_data_type is not read with sequence parallelism: DeepSpeed takes {other}, which is {used}.",
            help=f'Write "{other}": {config.quote(key)} if that is meant.',
            fix=without(config, key) if config.has(other) else unsafe(f'rename to "{other}"', Rename((key,), other)),
        )


@rule(
    "DS420",
    "overlap-comm-with-pipeline",
    effect=Effect.IGNORED,
    watches=("zero_optimization.overlap_comm",),
    needs=("pipeline_parallel",),
    references=(f"{ENGINE}, DeepSpeedEngine._configure_zero_optimizer",),
)
@bad(trained('"zero_optimization": {"stage": 1, "overlap_comm": true}'), at="zero_optimization.overlap_comm", pipeline_parallel=4)
@good(trained('"zero_optimization": {"stage": 1, "overlap_comm": true}'), pipeline_parallel=1)
@good(trained('"zero_optimization": {"stage": 1, "overlap_comm": false}'), pipeline_parallel=4)
def overlap_comm_with_pipeline(config: Config) -> Iterator[Finding]:
    """`overlap_comm` is switched off in a pipeline.

    DeepSpeed warns "Pipeline parallelism does not support overlapped communication, will be disabled" and goes on without.

    Write false, or remove it.
    """
    key = f"{ZERO}.overlap_comm"
    if (config.facts.pipeline_parallel or 1) > 1 and config.value(STAGE) == 1 and config.has(key) and config.value(key) is True:
        yield Finding(
            key,
            f"overlap_comm does nothing with {config.facts.pipeline_parallel} pipeline stages: DeepSpeed warns and switches it off.",
            help="Write false, or remove it.",
            fix=without(config, key),
        )


@rule(
    "DS421",
    "hpz-larger-than-world",
    effect=Effect.IGNORED,
    watches=("zero_optimization.zero_hpz_partition_size",),
    needs=("world_size",),
    references=("deepspeed/utils/groups.py, _create_zero_param_parallel_group",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 16}'),
    at="zero_optimization.zero_hpz_partition_size",
    world_size=8,
)
@bad(
    trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 64}'),
    at="zero_optimization.zero_hpz_partition_size",
    world_size=32,
    nodes=4,
)
@good(trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}'), world_size=16)
def hpz_larger_than_world(config: Config) -> Iterator[Finding]:
    """ZeRO++'s secondary partition is larger than the number of GPUs.

    DeepSpeed takes the smaller of the two. The secondary copy of the parameters is then divided as the primary one is: it costs memory, and no gather stays
    within a node that did not before.

    Write the number of GPUs of a node, or remove it on a single node.
    """
    size, ranks = config.value(HPZ), config.facts.world_size
    if config.value(STAGE) == 3 and isinstance(size, int) and ranks is not None and size > max(ranks, 1):
        yield Finding(
            HPZ,
            f"zero_hpz_partition_size {size} is more than the world size {ranks:,}, and DeepSpeed takes {ranks:,}: a second copy of the parameters, divided as the first is.",
            help="Write the number of GPUs of a node, or remove it on a single node.",
            fix=_hpz_of_a_node(config),
        )


def _hpz_of_a_node(config: Config) -> FixPlan | None:
    """The number of GPUs of a node for the secondary partition; none on a single node."""
    local = local_ranks(config)
    if local is None or local < 2:
        return None
    return without(config, HPZ, Applicability.UNSAFE) if config.facts.nodes == 1 else write(config, HPZ, str(local))


@rule(
    "DS422",
    "hpz-on-one-node",
    effect=Effect.MEMORY,
    watches=("zero_optimization.zero_hpz_partition_size",),
    needs=("nodes",),
    references=("https://www.deepspeed.ai/tutorials/zeropp/", "deepspeed/runtime/zero/partition_parameters.py, Init._partition_param_sec"),
)
@bad(trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}'), at="zero_optimization.zero_hpz_partition_size", nodes=1)
@good(trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}'), nodes=2)
@good(trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 1}'), nodes=1)
def hpz_on_one_node(config: Config) -> Iterator[Finding]:
    """ZeRO++'s secondary partition on a single node costs memory and saves nothing.

    It keeps a second copy of the parameters within each node, so that the backward pass gathers over the links inside. On one node every gather stays inside
    anyway.

    Remove it.
    """
    size, ranks = config.value(HPZ), config.facts.world_size
    if (
        config.facts.nodes == 1
        and config.value(STAGE) == 3
        and isinstance(size, int)
        and size > 1
        and not (ranks is not None and size > ranks)
    ):
        yield Finding(
            HPZ,
            f"zero_hpz_partition_size {size} on one node keeps a second copy of the parameters, 2 bytes a parameter divided by {size}, to keep gathers inside the node, where they all are.",
            help="Remove it.",
            fix=without(config, HPZ, Applicability.UNSAFE),
        )


@rule(
    "DS423",
    "hpz-across-nodes",
    effect=Effect.SLOW,
    watches=("zero_optimization.zero_hpz_partition_size",),
    needs=("world_size", "nodes"),
    references=("https://www.deepspeed.ai/tutorials/zeropp/",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 16}'),
    at="zero_optimization.zero_hpz_partition_size",
    world_size=32,
    nodes=4,
)
@good(trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}'), world_size=32, nodes=4)
@good(trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}'), world_size=32, nodes=4)
def hpz_across_nodes(config: Config) -> Iterator[Finding]:
    """ZeRO++'s secondary partition crosses the border of a node.

    The groups are made of ranks in a row. Where their size does not divide the number of GPUs of a node, some of them reach into the next node, and the backward
    pass gathers over the network that the second copy was to spare.

    Write the number of GPUs of a node.
    """
    size, ranks, nodes = config.value(HPZ), config.facts.world_size, config.facts.nodes
    if not isinstance(size, int) or ranks is None or not nodes or nodes < 2 or ranks % nodes or not 1 < size <= ranks:
        return
    local = ranks // nodes
    if config.value(STAGE) == 3 and local % size and ranks % size == 0:
        yield Finding(
            HPZ,
            f"zero_hpz_partition_size {size} reaches across nodes of {local} GPUs each: the backward pass gathers over the network, and the second copy of the parameters was to spare that.",
            help=f"Write {local}, the number of GPUs of a node.",
            fix=_hpz_of_a_node(config),
            severity=Severity.WARNING,
        )


@rule(
    "DS424",
    "quantized-gradients-without-reduce-scatter",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.zero_quantized_gradients",),
    references=(STAGE_3,),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "zero_quantized_gradients": true, "reduce_scatter": false}'),
    at="zero_optimization.zero_quantized_gradients",
)
@good(trained('"zero_optimization": {"stage": 3, "zero_quantized_gradients": false, "reduce_scatter": false}'))
@good(trained('"zero_optimization": {"stage": 2, "zero_quantized_gradients": true, "reduce_scatter": false}'))
def quantized_gradients_without_reduce_scatter(config: Config) -> Iterator[Finding]:
    """ZeRO++'s quantized gradients need `reduce_scatter`.

    DeepSpeed raises `AssertionError: when enable all_to_all_reduce, reduce_scatter should also be enabled` when it builds the stage 3 optimizer.

    Remove `"reduce_scatter": false`; true is the default.
    """
    key = f"{ZERO}.reduce_scatter"
    if config.value(STAGE) == 3 and config.value(QUANTIZED) is True and config.value(key) is False:
        yield Finding(
            QUANTIZED,
            'zero_quantized_gradients needs reduce_scatter, which is false: DeepSpeed raises AssertionError "when enable all_to_all_reduce, reduce_scatter should also be enabled for data type checks".',
            help='Remove "reduce_scatter": false.',
            fix=without(config, key, Applicability.UNSAFE),
            related=((key, "reduce_scatter is false here"),),
        )


@rule(
    "DS425",
    "quantized-gradients-on-one-node",
    effect=Effect.IGNORED,
    watches=("zero_optimization.zero_quantized_gradients",),
    needs=("nodes",),
    references=("deepspeed/runtime/zero/stage3.py, __avg_scatter_grads",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "zero_quantized_gradients": true}'), at="zero_optimization.zero_quantized_gradients", nodes=1
)
@good(trained('"zero_optimization": {"stage": 3, "zero_quantized_gradients": true}'), nodes=4)
def quantized_gradients_on_one_node(config: Config) -> Iterator[Finding]:
    """ZeRO++'s quantized gradients are for more than one node; on one, gradients are reduced as always.

    DeepSpeed sends 4-bit gradients between nodes, where the number of ranks is at least twice the number of GPUs of a machine. Otherwise it takes the
    ordinary reduce-scatter.

    Remove it on a single node.
    """
    if config.facts.nodes == 1 and config.value(STAGE) == 3 and config.value(QUANTIZED) is True:
        yield Finding(
            QUANTIZED,
            "zero_quantized_gradients does nothing on one node: DeepSpeed reduces gradients in full precision there.",
            help="Remove it.",
            fix=without(config, QUANTIZED),
        )


@rule(
    "DS426",
    "hpz-with-offload",
    effect=Effect.ADVICE,
    watches=("zero_optimization.zero_hpz_partition_size",),
    references=("https://github.com/deepspeedai/DeepSpeed/issues/6926", "https://github.com/deepspeedai/DeepSpeed/issues/5059"),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8, "offload_param": {"device": "cpu"}}'),
    at="zero_optimization.zero_hpz_partition_size",
)
@good(trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}'))
@good(trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8, "offload_param": {"device": "none"}}'))
def hpz_with_offload(config: Config) -> Iterator[Finding]:
    """ZeRO++'s secondary partition beside offload has been seen to train nothing.

    Users report a constant loss and a gradient norm of 0 with the two together. The second copy also stays on the GPU, and takes back a part of the memory
    that offload frees.

    Keep one of the two, or watch that the loss falls and the gradient norm is not 0.
    """
    size = config.value(HPZ)
    devices = {name: config.value(f"{ZERO}.{name}.device") for name in ("offload_param", "offload_optimizer")}
    offloaded = next((name for name, device in devices.items() if device in ("cpu", "nvme")), None)
    if config.value(STAGE) == 3 and isinstance(size, int) and size > 1 and offloaded:
        yield Finding(
            HPZ,
            f"zero_hpz_partition_size {size} beside {offloaded}: users report a constant loss and a gradient norm of 0 with the two together, and no error.",
            help="Keep one of the two.",
            related=((f"{ZERO}.{offloaded}", "offloaded here"),),
            severity=Severity.WARNING,
        )


@rule(
    "DS427",
    "overlap-comm-and-nan",
    effect=Effect.ADVICE,
    watches=("zero_optimization.overlap_comm",),
    pedantic=True,
    references=("https://github.com/deepspeedai/DeepSpeed/issues/7188", "https://github.com/deepspeedai/DeepSpeed/issues/8061"),
)
@bad(trained('"zero_optimization": {"stage": 2, "overlap_comm": true}'), at="zero_optimization.overlap_comm")
@good(trained('"zero_optimization": {"stage": 2, "overlap_comm": false}'))
@good(trained('"zero_optimization": {"stage": 2, "overlap_comm": true, "contiguous_gradients": false}'))
def overlap_comm_and_nan(config: Config) -> Iterator[Finding]:
    """`overlap_comm` with `contiguous_gradients` at stages 1 and 2 has brought NaN in several releases.

    Gradients are copied into a bucket on one stream and reduced from it on another. Several threads report NaN, a loss of 0 or another loss than without
    overlap, most often with small buckets or `torch.compile`; fixes came one by one, until 0.19. For most trainings it is sound and faster.

    When the loss turns NaN, write `"overlap_comm": false` before anything else.
    """
    key = f"{ZERO}.overlap_comm"
    if (
        config.value(STAGE) in (1, 2)
        and config.value(key) is True
        and config.has(key)
        and config.value(f"{ZERO}.contiguous_gradients") is True
    ):
        yield Finding(
            key,
            f"overlap_comm with contiguous_gradients at stage {config.value(STAGE)} has been reported to bring NaN or a different loss, most often with small buckets or torch.compile.",
            help='If the loss turns NaN, write "overlap_comm": false first.',
        )


@rule(
    "DS428",
    "multi-rank-bucket-allreduce",
    effect=Effect.SILENT,
    watches=("zero_optimization.stage",),
    pedantic=True,
    references=("https://github.com/deepspeedai/DeepSpeed/issues/5242", "https://github.com/deepspeedai/DeepSpeed/issues/5347"),
)
@bad(trained('"zero_optimization": {"stage": 2}'), at="zero_optimization.stage", deepspeed="0.13.5")
@good(trained('"zero_optimization": {"stage": 2, "use_multi_rank_bucket_allreduce": false}'), deepspeed="0.13.5")
@good(trained('"zero_optimization": {"stage": 2}'), deepspeed="0.14.5")
def multi_rank_bucket_allreduce(config: Config) -> Iterator[Finding]:
    """Releases 0.12.4 to 0.14.0 reduce the buckets of several ranks in one operation, and users report wrong gradients.

    The way is on by default at stages 1 and 2 since 0.12.4. Threads of those releases report a loss of 0 and a gradient norm of NaN, which end when it is
    switched off.

    Write `"use_multi_rank_bucket_allreduce": false`, or take a newer release.
    """
    key = f"{ZERO}.use_multi_rank_bucket_allreduce"
    if (0, 12, 4) <= config.release <= (0, 14, 0) and config.value(STAGE) in (1, 2) and config.value(key) is True and config.has(STAGE):
        yield Finding(
            STAGE,
            f"DeepSpeed {config.release} reduces the buckets of several ranks in one operation by default, and users of 0.12.4 to 0.14.0 report a loss of 0 and a gradient norm of NaN with it.",
            help='Write "use_multi_rank_bucket_allreduce": false, or take a newer release.',
            fix=write(config, key, "false"),
            severity=Severity.WARNING,
        )
