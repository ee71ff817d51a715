"""DS4: ZeRO and communication."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule

SOURCE = "deepspeed/runtime/config.py, DeepSpeedConfig._do_error_check"
STAGE = "zero_optimization.stage"


@rule("DS401", "summed-gradients-unsupported", effect=Effect.CRASH, phase=Phase.PARSE, references=(SOURCE,))
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "gradient_allreduce_op": "sum", "zero_optimization": {"stage": 3}}',
    at="gradient_allreduce_op",
)
@bad('{"train_micro_batch_size_per_gpu": 4, "gradient_allreduce_op": "sum", "compile": {"deepcompile": true}}', at="gradient_allreduce_op")
@good('{"train_micro_batch_size_per_gpu": 4, "gradient_allreduce_op": "sum", "zero_optimization": {"stage": 2}}')
def summed_gradients_unsupported(config: Config) -> Iterator[Finding]:
    """Gradients are to be summed instead of averaged, where DeepSpeed cannot.

    `gradient_allreduce_op: "sum"` is implemented for ZeRO stages 0 to 2 without ZenFlow and DeepCompile; elsewhere DeepSpeed raises a
    `ValueError` while it parses the config.

    Leave the key out, which averages, and scale the loss in the program if a sum is meant.
    """
    op = config.value("gradient_allreduce_op")
    if not isinstance(op, str) or op.lower() != "sum":
        return
    if config.value(STAGE) == 3:
        what, where = "ZeRO stage 3", STAGE
    elif config.has("zero_optimization.zenflow") and config.quote("zero_optimization.zenflow") not in ("null", '"auto"'):
        what, where = "ZenFlow", "zero_optimization.zenflow"
    elif config.value("compile.deepcompile") is True:
        what, where = "DeepCompile", "compile.deepcompile"
    else:
        return
    yield Finding(
        "gradient_allreduce_op",
        f"gradient_allreduce_op {config.quote('gradient_allreduce_op')} does not go with {what}: DeepSpeed raises ValueError \"gradient_allreduce_op='sum' is not supported with {what}\".",
        help="Leave the key out: gradients are then averaged.",
        related=((where, f"{what} is set here"),),
    )


@rule("DS402", "zero-without-stage", effect=Effect.SILENT, references=("deepspeed/runtime/zero/config.py, DeepSpeedZeroConfig",))
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"overlap_comm": true, "reduce_bucket_size": 5e8}}', at="zero_optimization"
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0, "overlap_comm": true}}')
@good('{"train_micro_batch_size_per_gpu": 4}')
def zero_without_stage(config: Config) -> Iterator[Finding]:
    """ZeRO's settings are written, but not its stage, which is 0: ZeRO stays off.

    Without `stage` DeepSpeed takes 0 and partitions nothing. Buckets and offload beside it do nothing; no error, no warning.

    Write the stage: 1 partitions optimizer states, 2 gradients too, 3 parameters too. `"stage": 0` says that none is meant.
    """
    members = getattr(config.node("zero_optimization"), "members", None)
    if members is None or config.has(STAGE) or config.resolved(STAGE).value is UNKNOWN:
        return
    if any(violation.raises or violation.meant == ("zero_optimization", "stage") for violation in config.violations):
        return
    yield Finding(
        "zero_optimization",
        "zero_optimization has no stage, which makes it 0: ZeRO stays off"
        + (", and the other settings here do nothing." if members else "."),
        help='Add "stage": 1, 2 or 3; or 0, if ZeRO is to be off.',
        on="key",
        effect=None if members else Effect.ADVICE,
    )


STAGE_3_ALONE = tuple(
    f"zero_optimization.{name}"
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
    )
)
"""Keys that only the stage 3 optimizer reads."""


@rule(
    "DS403",
    "stage-3-keys-below-stage-3",
    effect=Effect.IGNORED,
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._configure_zero_optimizer",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "stage3_prefetch_bucket_size": 5e7, "sub_group_size": 1e9}}',
    at="zero_optimization.stage3_prefetch_bucket_size",
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e7}}')
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}}')
def stage_3_keys_below_stage_3(config: Config) -> Iterator[Finding]:
    """Settings of ZeRO stage 3, at a stage that does not read them.

    Keys that begin with `stage3_`, `sub_group_size`, and ZeRO++'s partitions and quantization are read by the stage 3 optimizer alone. At stages 1 and 2 they
    do nothing; often they show that stage 3 was meant.

    Set `"stage": 3`, or remove them.
    """
    stage = config.value(STAGE)
    if not (stage < 3 and config.has(STAGE)):
        return
    written = [key for key in STAGE_3_ALONE if config.has(key) and config.quote(key) not in ("false", '"auto"', "null")]
    if not written:
        return
    written.sort(key=lambda key: config.document.lookup(tuple(key.split("."))).span.start)  # type: ignore[union-attr]
    names = ", ".join(key.partition(".")[2] for key in written)
    yield Finding(
        written[0],
        f"At ZeRO stage {stage} nothing reads {names}: {'it is' if len(written) == 1 else 'they are'} for stage 3 alone.",
        help=f'Set "stage": 3, or remove {"it" if len(written) == 1 else "them"}.',
        related=((STAGE, "the stage is set here"), *((key, "not read either") for key in written[1:])),
    )


@rule(
    "DS404",
    "hpz-not-a-divisor",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    needs=("world_size",),
    references=("deepspeed/runtime/zero/config.py, zero_hpz_partition_size",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 3}}',
    at="zero_optimization.zero_hpz_partition_size",
    world_size=8,
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}}',
    world_size=8,
)
def hpz_not_a_divisor(config: Config) -> Iterator[Finding]:
    """ZeRO++'s secondary partition does not divide the world size.

    `zero_hpz_partition_size` ranks, as a rule those of a node, keep a whole copy of the parameters among them. They have to divide the world size:
    DeepSpeed asserts it when it builds the groups.

    Write the number of GPUs of a node.
    """
    key = "zero_optimization.zero_hpz_partition_size"
    size, ranks = config.value(key), config.facts.world_size
    if isinstance(size, int) and ranks is not None and 1 < size < ranks and ranks % size and config.value(STAGE) == 3:
        yield Finding(
            key,
            f"zero_hpz_partition_size {size} does not divide the world size {ranks:,}; DeepSpeed raises an AssertionError in deepspeed.initialize.",
            help="Write the number of GPUs of a node.",
        )
