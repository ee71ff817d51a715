"""DS3: settings that depend on `BF16_Optimizer`, which runs ZeRO stage 1 in bf16 with gradients accumulated in fp32."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without
from dslint.rules.helpers.keys import in_file_order, is_on
from dslint.rules.helpers.model import may_be_pipelined
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER
from dslint.rules.helpers.precision import ENGINE, bf16_section, uses_bf16_optimizer
from dslint.rules.helpers.zero import STAGE

OFFLOAD_DEVICE = f"{OFFLOAD_OPTIMIZER}.device"

IGNORED_KEYS = (
    "zero_optimization.overlap_comm",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.parameter_alignment",
    "zero_optimization.use_multi_rank_bucket_allreduce",
    "bf16.check_grad_overflow",
)
"""Settings of ZeRO stage 1 that DeepSpeed does not pass to `BF16_Optimizer`."""


@rule(
    "DS328",
    effect=Effect.IGNORED,
    references=(f"{ENGINE}, DeepSpeedEngine._do_optimizer_sanity_check",),
    watches=("data_types.grad_accum_dtype",),
)
@bad(
    trained(
        '"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8, "overlap_comm": true}'
    ),
    at="zero_optimization.reduce_bucket_size",
    message="ZeRO stage 1 in bf16 with grad_accum_dtype fp32 runs in DeepSpeed's BF16_Optimizer, which ignores reduce_bucket_size, overlap_comm and keeps a whole fp32 gradient on every GPU.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1, "overlap_comm": true}}',
)
@good(
    trained(
        '"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}'
    )
)
@good(trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8, "overlap_comm": true}'))
def ignored_by_bf16_optimizer(config: Config) -> Iterator[Finding]:
    """ZeRO stage 1 in bf16 with fp32 accumulation runs in another optimizer, which ignores these settings.

    For this combination DeepSpeed uses `BF16_Optimizer` instead of the ZeRO optimizer. It keeps a whole fp32 gradient on every rank (4 bytes
    per parameter, not divided by the number of GPUs), and has neither buckets nor offload to NVMe.

    Use stage 2, which reads the settings and also divides the fp32 gradients. Or remove the settings: pipelines require stage 1 or 0.
    """
    if not uses_bf16_optimizer(config):
        return
    ignored = [key for key in IGNORED_KEYS if is_on(config, key)]
    if config.value(OFFLOAD_DEVICE) == "nvme":
        ignored.append(OFFLOAD_DEVICE)
    if not ignored:
        return
    first, *_ = ordered = in_file_order(config, ignored)
    names = ", ".join("offload_optimizer" if key == OFFLOAD_DEVICE else key.rpartition(".")[2] for key in ordered)
    yield Finding(
        first,
        f"ZeRO stage 1 in bf16 with grad_accum_dtype fp32 runs in DeepSpeed's BF16_Optimizer, which ignores {names} and keeps a whole fp32 gradient on every GPU.",
        help="Remove them." if may_be_pipelined(config) or config.value("prescale_gradients") is True else _STAGE_2,
        fix=without(config, first) if first != OFFLOAD_DEVICE else None,
        related=(("data_types.grad_accum_dtype", "fp32 accumulation is set here"), (STAGE, "the stage is set here")),
    )


_STAGE_2 = 'Set "stage": 2, which reads the settings and divides the fp32 gradients but excludes pipelines, or remove them.'


@rule(
    "DS329",
    effect=Effect.IGNORED,
    references=(f"{ENGINE}, DeepSpeedEngine._configure_zero_optimizer",),
    watches=(
        "bf16.check_grad_overflow",
        "bf16.immediate_grad_update",
        "bfloat16.check_grad_overflow",
        "bfloat16.immediate_grad_update",
    ),
)
@bad(
    trained('"bf16": {"enabled": true, "check_grad_overflow": true}, "zero_optimization": {"stage": 3}'),
    at="bf16.check_grad_overflow",
    message="DeepSpeed reads check_grad_overflow only at ZeRO stages 1 and 2; at stage 3 it does not check for overflows.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
)
@bad(
    trained('"bf16": {"enabled": true, "immediate_grad_update": true}, "zero_optimization": {"stage": 2}'),
    at="bf16.immediate_grad_update",
    message="DeepSpeed ignores immediate_grad_update at ZeRO stage 2: only BF16_Optimizer reads it, which runs stage 1 with grad_accum_dtype fp32.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
)
@good(trained('"bf16": {"enabled": true, "check_grad_overflow": true}, "zero_optimization": {"stage": 2}'))
@good(
    trained(
        '"bf16": {"enabled": true, "immediate_grad_update": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1}'
    )
)
def bf16_setting_not_read(config: Config) -> Iterator[Finding]:
    """A setting of bf16 that the optimizer of this ZeRO stage does not read.

    Only stages 1 and 2 read `check_grad_overflow`. Only `BF16_Optimizer`, which runs ZeRO stage 1 with `grad_accum_dtype` "fp32" and
    pipelines, reads `immediate_grad_update`.

    Remove the setting.
    """
    section, stage = bf16_section(config), config.value(STAGE)
    if config.enabled(section) is not True:
        return
    key = f"{section}.check_grad_overflow"
    if config.has(key) and config.value(key) is True and stage in (0, 3):
        yield Finding(
            key,
            f"DeepSpeed reads check_grad_overflow only at ZeRO stages 1 and 2; at stage {stage} it does not check for overflows.",
            help="Remove it.",
            fix=without(config, key),
        )
    key = f"{section}.immediate_grad_update"
    if (
        config.has(key)
        and config.value(key) is True
        and stage in (1, 2, 3)
        and not (uses_bf16_optimizer(config) or may_be_pipelined(config))
    ):
        yield Finding(
            key,
            f"DeepSpeed ignores immediate_grad_update at ZeRO stage {stage}: only BF16_Optimizer reads it, which runs stage 1 with grad_accum_dtype fp32.",
            help="Remove it.",
            fix=without(config, key),
        )
