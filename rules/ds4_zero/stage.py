"""DS4: ZeRO and communication."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Integration
from dslint.rule import Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.zero import STAGE, STAGE_3_KEYS, local_ranks

SOURCE = "deepspeed/runtime/config.py, DeepSpeedConfig._do_error_check"


@rule(
    "DS401",
    "summed-gradients-unsupported",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    watches=("gradient_allreduce_op",),
    references=(SOURCE,),
)
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
        fix=without(config, "gradient_allreduce_op", Applicability.UNSAFE),
        related=((where, f"{what} is set here"),),
    )


@rule(
    "DS402",
    "zero-without-stage",
    effect=Effect.SILENT,
    watches=("zero_optimization",),
    references=("deepspeed/runtime/zero/config.py, DeepSpeedZeroConfig",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"overlap_comm": true, "reduce_bucket_size": 5e8}}', at="zero_optimization"
)
@bad('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"offload_param": {"device": "cpu"}}}', at="zero_optimization")
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
        fix=_stage_3(config),
        on="key",
        effect=None if members else Effect.ADVICE,
    )


def _stage_3(config: Config) -> FixPlan | None:
    """Write stage 3, where a setting is written that means it."""
    offloads = config.value("zero_optimization.offload_param.device") in ("cpu", "nvme")
    meant = offloads or any(config.has(key) and config.quote(key) not in ("false", '"auto"', "null") for key in STAGE_3_KEYS)
    return write(config, STAGE, "3") if meant else None


@rule(
    "DS403",
    "stage-3-keys-below-stage-3",
    effect=Effect.IGNORED,
    watches=STAGE_3_KEYS,
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
    if stage not in (1, 2):
        return
    written = [key for key in STAGE_3_KEYS if config.has(key) and config.quote(key) not in ("false", '"auto"', "null")]
    if not written:
        return
    written.sort(key=lambda key: config.document.lookup(tuple(key.split("."))).span.start)  # type: ignore[union-attr]
    names = ", ".join(key.partition(".")[2] for key in written)
    yield Finding(
        written[0],
        f"At ZeRO stage {stage} nothing reads {names}: {'it is' if len(written) == 1 else 'they are'} for stage 3 alone.",
        help=f'Set "stage": 3, or remove {"it" if len(written) == 1 else "them"}.',
        fix=without(config, written[0]),
        related=((STAGE, "the stage is set here"), *((key, "not read either") for key in written[1:])),
    )


@rule(
    "DS404",
    "hpz-not-a-divisor",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.zero_hpz_partition_size",),
    needs=("world_size",),
    references=("deepspeed/runtime/zero/config.py, zero_hpz_partition_size",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 3}}',
    at="zero_optimization.zero_hpz_partition_size",
    world_size=8,
)
@bad(
    trained('"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 6}'),
    at="zero_optimization.zero_hpz_partition_size",
    world_size=16,
    nodes=2,
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
            fix=write(config, key, str(local)) if (local := local_ranks(config)) else None,
        )


@rule(
    "DS439",
    "stage-is-a-boolean",
    effect=Effect.SILENT,
    watches=("zero_optimization.stage",),
    references=("deepspeed/runtime/zero/config.py, ZeroStageEnum",),
)
@bad(trained('"zero_optimization": {"stage": true}'), at=STAGE)
@good(trained('"zero_optimization": {"stage": 1}'))
@good(trained('"zero_optimization": {"stage": false}'))
def stage_is_a_boolean(config: Config) -> Iterator[Finding]:
    """The ZeRO stage is `true`, which counts as 1.

    ZeRO has stages, and no switch. DeepSpeed looks `true` up among the numbers 0 to 3 and finds 1: optimizer states are divided, gradients and parameters are not.

    Write the stage that is meant.
    """
    if getattr(config.node(STAGE), "value", None) is True and config.release >= (0, 15, 0):
        yield Finding(
            STAGE,
            "stage true is stage 1 to DeepSpeed: optimizer states are divided among the GPUs, gradients and parameters are not.",
            help='Write "stage": 1, 2 or 3.',
            fix=write(config, STAGE, "1"),
        )


@rule(
    "DS440",
    "allgather-partitions-not-read",
    effect=Effect.IGNORED,
    watches=("zero_optimization.allgather_partitions",),
    references=("deepspeed/runtime/zero/config.py, allgather_partitions",),
)
@bad(trained('"zero_optimization": {"stage": 2, "allgather_partitions": false}'), at="zero_optimization.allgather_partitions")
@good(trained('"zero_optimization": {"stage": 2, "allgather_partitions": true}'))
@good(trained('"zero_optimization": {"stage": 0, "allgather_partitions": false}'))
def allgather_partitions_not_read(config: Config) -> Iterator[Finding]:
    """`allgather_partitions: false` is to broadcast updated parameters, and has not done so since 0.5.9.

    The key belonged to the first implementation of ZeRO stage 1. DeepSpeed still accepts it, and always gathers.

    Remove it.
    """
    key = "zero_optimization.allgather_partitions"
    if config.has(key) and config.value(key) is False and config.value(STAGE) in (1, 2, 3):
        yield Finding(
            key,
            "allgather_partitions false changes nothing: DeepSpeed 0.5.9 and newer always gather.",
            help="Remove it.",
            fix=without(config, key),
        )


@rule(
    "DS441",
    "zero-is-a-boolean",
    effect=Effect.SILENT,
    watches=("zero_optimization",),
    references=("deepspeed/runtime/zero/config.py, read_zero_config_deprecated",),
)
@bad(trained('"zero_optimization": true'), at="zero_optimization")
@bad('{"train_batch_size": "auto", "zero_optimization": false}', at="zero_optimization", integration="transformers")
@good(trained('"zero_optimization": {"stage": 1}'))
@good(trained('"zero_optimization": false'))
def zero_is_a_boolean(config: Config) -> Iterator[Finding]:
    """`zero_optimization` is `true`, as in the first releases, which means stage 1 and nothing else.

    DeepSpeed still reads the form, with a warning: optimizer states are divided, gradients and parameters are not. The Hugging Face
    integrations look for the stage in it and raise an `AttributeError`, for `false` as well.

    Write a section with the stage that is meant.
    """
    value = getattr(config.node("zero_optimization"), "value", None)
    if not isinstance(value, bool):
        return
    refused = config.facts.integration in (Integration.TRANSFORMERS, Integration.ACCELERATE)
    if not value and not refused:
        return
    meaning = "stage 1 to DeepSpeed: gradients and parameters are not divided" if value else "stage 0 to DeepSpeed"
    raised = f", and {config.facts.integration.label} raises AttributeError \"'bool' object has no attribute 'get'\"" if refused else ""  # type: ignore[union-attr]
    yield Finding(
        "zero_optimization",
        f"zero_optimization {config.quote('zero_optimization')} is {meaning}{raised}.",
        help='Write "zero_optimization": {"stage": N} with the stage that is meant.',
        fix=write(config, "zero_optimization", f'{{"stage": {int(value)}}}', Applicability.SAFE),
        effect=Effect.CRASH if refused else None,
        phase=Phase.LOAD if refused else None,
    )
