"""DS4: keys that DeepSpeed does not read at the config's ZeRO stage, or rejects there."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, without_all
from dslint.rules.helpers.keys import in_file_order, is_on, is_set
from dslint.rules.helpers.precision import uses_bf16_optimizer
from dslint.rules.helpers.zero import (
    BELOW_STAGE_3_KEYS,
    EVERY_STAGE_KEYS,
    STAGE,
    STAGE_3_KEYS,
    ZERO,
    excludes_stage_3,
    is_feature,
    is_stage_written,
    related_stage,
)

ENGINE = "deepspeed/runtime/engine.py, DeepSpeedEngine"


def _names(config: Config, keys: list[str]) -> str:
    return ", ".join(config.name_of(key).removeprefix(f"{ZERO}.") for key in keys)


def _related_unread(keys: list[str]) -> tuple[tuple[str, str], ...]:
    return tuple((key, "also not read") for key in keys)


@rule(
    "DS403",
    effect=Effect.ADVICE,
    pedantic=True,
    watches=STAGE_3_KEYS,
    references=(f"{ENGINE}._configure_zero_optimizer",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "stage3_prefetch_bucket_size": 5e7, "sub_group_size": 1e9}}',
    at="zero_optimization.stage3_prefetch_bucket_size",
    message="ZeRO stage 2 does not read stage3_prefetch_bucket_size, sub_group_size: DeepSpeed uses them only at stage 3.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e7}}')
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}}')
def stage_3_keys_below_stage_3(config: Config) -> Iterator[Finding]:
    """Settings of stage 3 do nothing at stage 1 or 2.

    These keys are about parameters that stage 3 partitions, and about its optimizer step. The optimizer of stages 1 and 2 does not read them. Configs that were
    copied from stage 3 have them, and lose nothing. Features of ZeRO++ below stage 3 are DS445.

    Set `"stage": 3`, or remove them.
    """
    stage = config.value(STAGE)
    if stage not in (1, 2) or not is_stage_written(config):
        return
    unread = [key for key in in_file_order(config, STAGE_3_KEYS) if is_on(config, key) and not is_feature(config, key)]
    if unread:
        them = "it" if len(unread) == 1 else "them"
        yield Finding(
            unread[0],
            f"ZeRO stage {stage} does not read {_names(config, unread)}: DeepSpeed uses {them} only at stage 3.",
            help=f"Remove {them}." if excludes_stage_3(config) else f"Set {config.assignment(STAGE, '3')}, or remove {them}.",
            fix=without_all(unread),
            related=(*related_stage(config), *_related_unread(unread[1:])),
        )


@rule(
    "DS405",
    effect=Effect.ADVICE,
    pedantic=True,
    watches=tuple(BELOW_STAGE_3_KEYS),
    references=(f"{ENGINE}._configure_zero_optimizer",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "allgather_bucket_size": 5e8}'),
    at="zero_optimization.allgather_bucket_size",
    message="ZeRO stage 3 does not read allgather_bucket_size: DeepSpeed uses it only at stages 1 and 2.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "round_robin_gradients": true, "ignore_unused_parameters": false}'),
    at="zero_optimization.round_robin_gradients",
    message="ZeRO stage 3 does not read round_robin_gradients, ignore_unused_parameters: DeepSpeed uses them only at stages 1 and 2.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3}}',
)
@good(trained('"zero_optimization": {"stage": 2, "allgather_bucket_size": 5e8, "round_robin_gradients": true}'))
@good(trained('"zero_optimization": {"stage": 3, "ignore_unused_parameters": true, "round_robin_gradients": false}'))
@good(trained('"zero_optimization": {"stage": 3, "elastic_checkpoint": true}'))
def stage_2_keys_at_stage_3(config: Config) -> Iterator[Finding]:
    """Settings of ZeRO stages 1 and 2 do nothing at stage 3.

    Stage 3 has its own optimizer. It gathers parameters when a module needs them, in portions that the `stage3_` keys set, and not in buckets after the step.

    Remove them. At stage 3, `stage3_prefetch_bucket_size` and `stage3_max_live_parameters` limit the gathering.
    """
    if not config.value(STAGE) >= 3:
        return
    unread = [
        key
        for key in in_file_order(config, BELOW_STAGE_3_KEYS)
        if is_set(config, key) and not config.value(key) == BELOW_STAGE_3_KEYS[key]  # noqa: SIM201 - UNKNOWN is neither equal nor unequal
    ]
    if unread:
        yield Finding(
            unread[0],
            f"ZeRO stage 3 does not read {_names(config, unread)}: DeepSpeed uses {'it' if len(unread) == 1 else 'them'} only at stages 1 and 2.",
            help=f"Remove {'it' if len(unread) == 1 else 'them'}.",
            fix=without_all(unread),
            related=(*related_stage(config), *_related_unread(unread[1:])),
        )


@rule(
    "DS406",
    effect=Effect.ADVICE,
    pedantic=True,
    watches=("zero_optimization.stage",),
    references=(f"{ENGINE}.zero_optimization",),
)
@bad(
    trained('"zero_optimization": {"stage": 0, "overlap_comm": true, "reduce_bucket_size": 5e8}'),
    at="zero_optimization.overlap_comm",
    message="ZeRO is off at stage 0: DeepSpeed does not read overlap_comm, reduce_bucket_size.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 0}}',
)
@good(trained('"zero_optimization": {"stage": 1, "overlap_comm": true, "reduce_bucket_size": 5e8}'))
@good(trained('"zero_optimization": {"stage": 0}'))
def zero_settings_at_stage_0(config: Config) -> Iterator[Finding]:
    """At stage 0 ZeRO is off, and its other settings do nothing.

    At stage 0 every rank holds the whole model, its gradients and the optimizer states, and averages gradients as plain data parallelism does. Only the ZeRO
    optimizers read buckets, overlap and the other keys of the section.

    Set the stage to 1, 2 or 3, or remove the other settings.
    """
    if not (config.value(STAGE) == 0 and is_stage_written(config)):
        return
    ignores_unused = f"{ZERO}.ignore_unused_parameters"
    unread = [
        key
        for key in in_file_order(config, (*EVERY_STAGE_KEYS, *BELOW_STAGE_3_KEYS, *STAGE_3_KEYS))
        if is_on(config, key) and not (key == ignores_unused and config.literal(key) is True) and not is_feature(config, key)
    ]
    if unread:
        yield Finding(
            unread[0],
            f"ZeRO is off at stage 0: DeepSpeed does not read {_names(config, unread)}.",
            help=f"Set the stage to 1, 2 or 3, or remove {'it' if len(unread) == 1 else 'them'}.",
            fix=without_all(unread),
            related=(*related_stage(config), *_related_unread(unread[1:])),
        )


@rule(
    "DS407",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.legacy_stage1",),
    references=(f"{ENGINE}._configure_zero_optimizer",),
)
@bad(
    trained('"zero_optimization": {"stage": 1, "legacy_stage1": true}'),
    at="zero_optimization.legacy_stage1",
    message='legacy_stage1 true selects an implementation that DeepSpeed has removed: it raises Exception "The deprecated version of ZeRO Stage 1 is not supported in deepspeed >= 0.5.9".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 1}}',
)
@good(trained('"zero_optimization": {"stage": 1, "legacy_stage1": false}'))
@good(trained('"zero_optimization": {"stage": 0, "legacy_stage1": true}'))
@good(
    trained(
        '"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1, "legacy_stage1": true}'
    )
)
def legacy_stage_1(config: Config) -> Iterator[Finding]:
    """`legacy_stage1` selects the first implementation of ZeRO stage 1, which DeepSpeed has removed.

    DeepSpeed 0.5.9 and newer raise `Exception: The deprecated version of ZeRO Stage 1 is not supported` in `deepspeed.initialize`, at every stage from 1 on.

    Remove it.
    """
    key = f"{ZERO}.legacy_stage1"
    if config.value(key) is True and config.value(STAGE) >= 1 and not uses_bf16_optimizer(config):  # which ignores the section
        yield Finding(
            key,
            'legacy_stage1 true selects an implementation that DeepSpeed has removed: it raises Exception "The deprecated version of ZeRO Stage 1 is not supported in deepspeed >= 0.5.9".',
            help="Remove it.",
            fix=without(config, key),
        )


@rule(
    "DS438",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    watches=("zero_optimization.pipeline_loading_checkpoint",),
    untried="the error appears only when a checkpoint is loaded",
    references=(f"{ENGINE}._load_zero_checkpoint",),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "pipeline_loading_checkpoint": true}'),
    at="zero_optimization.pipeline_loading_checkpoint",
    message='pipeline_loading_checkpoint works only at ZeRO stage 3, and the stage is 2: the first resume raises AssertionError "Only stage3 support for pipeline checkpoint loading".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}}',
)
@good(trained('"zero_optimization": {"stage": 3, "pipeline_loading_checkpoint": true}'))
def pipeline_loading_below_stage_3(config: Config) -> Iterator[Finding]:
    """`pipeline_loading_checkpoint` works only at ZeRO stage 3, and DeepSpeed checks it only when it loads a checkpoint.

    Training starts and saves checkpoints. The first resume raises `AssertionError: Only stage3 support for pipeline checkpoint loading`.

    Remove it, or set the stage to 3.
    """
    key, stage = f"{ZERO}.pipeline_loading_checkpoint", config.value(STAGE)
    if config.value(key) is True and stage in (1, 2) and config.release >= (0, 10, 1):
        yield Finding(
            key,
            f'pipeline_loading_checkpoint works only at ZeRO stage 3, and the stage is {stage}: the first resume raises AssertionError "Only stage3 support for pipeline checkpoint loading".',
            help='Remove it, or set "stage": 3.',
            fix=without(config, key),
            related=related_stage(config),
        )


@rule(
    "DS440",
    effect=Effect.ADVICE,
    watches=("zero_optimization.allgather_partitions",),
    references=("deepspeed/runtime/zero/config.py, DeepSpeedZeroConfig.allgather_partitions",),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "allgather_partitions": false}'),
    at="zero_optimization.allgather_partitions",
    message="DeepSpeed 0.5.9 and newer ignore allgather_partitions false: they always gather the updated parameters.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}}',
)
@good(trained('"zero_optimization": {"stage": 2, "allgather_partitions": true}'))
@good(trained('"zero_optimization": {"stage": 0, "allgather_partitions": false}'))
def allgather_partitions_not_read(config: Config) -> Iterator[Finding]:
    """`allgather_partitions: false` no longer makes DeepSpeed broadcast the updated parameters.

    The key belonged to the first implementation of ZeRO stage 1. DeepSpeed 0.5.9 and newer still accept it, but always gather.

    Remove it.
    """
    key = f"{ZERO}.allgather_partitions"
    if config.has(key) and config.value(key) is False and config.value(STAGE) in (1, 2, 3):
        yield Finding(
            key,
            "DeepSpeed 0.5.9 and newer ignore allgather_partitions false: they always gather the updated parameters.",
            help="Remove it.",
            fix=without(config, key),
        )
