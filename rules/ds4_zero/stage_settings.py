"""DS4: settings of ZeRO at a stage, a number of GPUs or a model that they are not for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase, Severity
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER
from dslint.rules.helpers.zero import STAGE, STAGE_3_KEYS, ZERO, related_stage

ENGINE = "deepspeed/runtime/engine.py, DeepSpeedEngine._configure_zero_optimizer"
STAGE_1_AND_2 = "deepspeed/runtime/zero/stage_1_and_2.py, DeepSpeedZeroOptimizer"

BELOW_STAGE_3_ALONE = tuple(
    f"{ZERO}.{name}"
    for name in (
        "allgather_bucket_size",
        "use_multi_rank_bucket_allreduce",
        "round_robin_gradients",
        "parameter_alignment",
        "ignore_unused_parameters",
        "elastic_checkpoint",
    )
)
"""Keys that the optimizer of stages 1 and 2 reads, and that of stage 3 does not."""

AT_EVERY_STAGE = tuple(
    f"{ZERO}.{name}" for name in ("overlap_comm", "reduce_bucket_size", "contiguous_gradients", "reduce_scatter", "load_from_fp32_weights")
)
"""Keys that the optimizers of stages 1, 2 and 3 read."""


def in_order(config: Config, keys: tuple[str, ...]) -> list[str]:
    """Those of the keys that are written with something in them, in the order of the file; null and "auto" are nothing."""
    written = [key for key in keys if config.has(key) and config.quote(key) not in ('"auto"', "null")]
    return sorted(written, key=lambda key: config.document.lookup(tuple(key.split("."))).span.start)  # type: ignore[union-attr]


def is_default(config: Config, key: str, default: Any) -> bool:
    """Whether a key is written with the value it would have anyway."""
    return bool(config.value(key) == default)


def _named(keys: list[str]) -> str:
    return ", ".join(key.partition(".")[2] for key in keys)


@rule("DS405", "stage-2-keys-at-stage-3", effect=Effect.IGNORED, watches=BELOW_STAGE_3_ALONE, references=(ENGINE,))
@bad(trained('"zero_optimization": {"stage": 3, "allgather_bucket_size": 5e8}'), at="zero_optimization.allgather_bucket_size")
@bad(
    trained('"zero_optimization": {"stage": 3, "round_robin_gradients": true, "ignore_unused_parameters": false}'),
    at="zero_optimization.round_robin_gradients",
)
@good(trained('"zero_optimization": {"stage": 2, "allgather_bucket_size": 5e8, "round_robin_gradients": true}'))
@good(trained('"zero_optimization": {"stage": 3, "ignore_unused_parameters": true, "round_robin_gradients": false}'))
def stage_2_keys_at_stage_3(config: Config) -> Iterator[Finding]:
    """Settings of ZeRO stages 1 and 2, at stage 3, which does not read them.

    Stage 3 has an optimizer of its own. It gathers parameters as they are needed, in portions that the `stage3_` keys set, and not in buckets after the step.

    Remove them; what bounds the gathering at stage 3 are `stage3_prefetch_bucket_size` and `stage3_max_live_parameters`.
    """
    if not config.value(STAGE) == 3:  # noqa: SIM201 - UNKNOWN is neither equal nor unequal
        return
    defaults = {f"{ZERO}.use_multi_rank_bucket_allreduce": True, f"{ZERO}.ignore_unused_parameters": True}
    written = [
        key
        for key in in_order(config, BELOW_STAGE_3_ALONE)
        if key.endswith("bucket_size") or not is_default(config, key, defaults.get(key, False))
    ]
    if written:
        one = len(written) == 1
        yield Finding(
            written[0],
            f"At ZeRO stage 3 nothing reads {_named(written)}: {'it is' if one else 'they are'} for stages 1 and 2.",
            help=f"Remove {'it' if one else 'them'}.",
            fix=without(config, written[0]),
            related=(*related_stage(config), *((key, "not read either") for key in written[1:])),
            severity=Severity.INFO,
        )


@rule(
    "DS406",
    "zero-settings-at-stage-0",
    effect=Effect.IGNORED,
    watches=("zero_optimization.stage",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine.zero_optimization",),
)
@bad(trained('"zero_optimization": {"stage": 0, "overlap_comm": true, "reduce_bucket_size": 5e8}'), at="zero_optimization.overlap_comm")
@good(trained('"zero_optimization": {"stage": 1, "overlap_comm": true, "reduce_bucket_size": 5e8}'))
@good(trained('"zero_optimization": {"stage": 0}'))
def zero_settings_at_stage_0(config: Config) -> Iterator[Finding]:
    """ZeRO's settings at stage 0, where ZeRO is off.

    At stage 0 every rank holds the whole model, its gradients and the optimizer states, and averages gradients as data parallel training does. Buckets, overlap
    and everything else that stands beside the stage is read by ZeRO's optimizers alone.

    Set the stage to 1, 2 or 3, or remove them.
    """
    if not (config.value(STAGE) == 0 and config.has(STAGE)):
        return
    written = [
        key
        for key in in_order(config, AT_EVERY_STAGE + BELOW_STAGE_3_ALONE + STAGE_3_KEYS)
        if config.quote(key) != "false" and not (key.endswith("ignore_unused_parameters") and config.quote(key) == "true")
    ]
    if written:
        one = len(written) == 1
        yield Finding(
            written[0],
            f"At stage 0 ZeRO is off, and nothing reads {_named(written)}.",
            help=f"Set the stage to 1, 2 or 3, or remove {'it' if one else 'them'}.",
            fix=without(config, written[0]),
            related=(*related_stage(config), *((key, "not read either") for key in written[1:])),
            severity=Severity.INFO,
        )


@rule(
    "DS407",
    "legacy-stage-1",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.legacy_stage1",),
    references=(ENGINE,),
)
@bad(trained('"zero_optimization": {"stage": 1, "legacy_stage1": true}'), at="zero_optimization.legacy_stage1")
@good(trained('"zero_optimization": {"stage": 1, "legacy_stage1": false}'))
@good(trained('"zero_optimization": {"stage": 0, "legacy_stage1": true}'))
def legacy_stage_1(config: Config) -> Iterator[Finding]:
    """The first implementation of ZeRO stage 1 is gone, and asking for it is an error wherever ZeRO is on.

    DeepSpeed 0.5.9 and newer raise `Exception: The deprecated version of ZeRO Stage 1 is not supported` in `deepspeed.initialize`, at every stage from 1 on.

    Remove it.
    """
    key = f"{ZERO}.legacy_stage1"
    if config.value(key) is True and config.value(STAGE) >= 1:
        yield Finding(
            key,
            'legacy_stage1 asks for an implementation that is gone: DeepSpeed raises Exception "The deprecated version of ZeRO Stage 1 is not supported in deepspeed >= 0.5.9".',
            help="Remove it.",
            fix=without(config, key),
        )


@rule(
    "DS408",
    "grad-norm-switched-off",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.compute_grad_norm",),
    references=(STAGE_1_AND_2, "deepspeed/runtime/zero/config.py, DeepSpeedZeroConfig"),
)
@bad(trained('"zero_optimization": {"stage": 2, "compute_grad_norm": false}'), at="zero_optimization.compute_grad_norm")
@bad(
    trained('"zero_optimization": {"stage": 3, "compute_grad_norm": false}, "gradient_clipping": 0'),
    at="zero_optimization.compute_grad_norm",
)
@bad(
    trained(
        '"zero_optimization": {"stage": 1, "compute_grad_norm": false, "offload_optimizer": {"device": "cpu"}}, "gradient_clipping": 0'
    ),
    at="zero_optimization.compute_grad_norm",
)
@bad(
    trained(
        '"zero_optimization": {"stage": 1, "compute_grad_norm": false}, "gradient_clipping": 0, "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}'
    ),
    at="zero_optimization.compute_grad_norm",
)
@good(trained('"zero_optimization": {"stage": 2, "compute_grad_norm": false}, "gradient_clipping": 0'))
@good(trained('"zero_optimization": {"stage": 2, "compute_grad_norm": true, "offload_optimizer": {"device": "cpu"}}'))
def grad_norm_switched_off(config: Config) -> Iterator[Finding]:
    """`compute_grad_norm: false` goes with few other settings.

    It works at ZeRO stages 1 and 2, without gradient clipping (which is on at 1.0 by default), without optimizer offload, without ZenFlow, and not with
    stage 1 in bf16 and gradients accumulated in fp32. DeepSpeed raises a `ValueError` elsewhere; at stages 0 and 3 already while parsing.

    Leave it out, or write `"gradient_clipping": 0` beside it.
    """
    from dslint.rules.helpers.precision import uses_bf16_optimizer

    key, stage = f"{ZERO}.compute_grad_norm", config.value(STAGE)
    if config.release < (0, 19, 7) or config.value(key) is not False:
        return
    if stage in (0, 3):
        yield Finding(
            key,
            f'compute_grad_norm false works at ZeRO stages 1 and 2 alone, and the stage is {stage}: DeepSpeed raises ValidationError "compute_grad_norm=false is supported only with ZeRO Stage 1 or 2".',
            help="Remove it.",
            fix=without(config, key),
            related=related_stage(config),
            phase=Phase.PARSE,
        )
        return
    if stage not in (1, 2):
        return
    device = config.value(f"{OFFLOAD_OPTIMIZER}.device")
    if config.value("gradient_clipping") > 0:
        default = "" if config.has("gradient_clipping") else ", the default"
        found, place, help_ = (
            f"gradient_clipping is {config.value('gradient_clipping'):g}{default}",
            "gradient_clipping",
            'Write "gradient_clipping": 0, or remove it.',
        )
    elif config.has(f"{ZERO}.zenflow") and config.quote(f"{ZERO}.zenflow") != "null":
        found, place, help_ = "ZenFlow is on", f"{ZERO}.zenflow", "Remove one of the two."
    elif device in ("cpu", "nvme"):
        found, place, help_ = "the optimizer is offloaded", OFFLOAD_OPTIMIZER, "Remove one of the two."
    elif uses_bf16_optimizer(config):
        found, place, help_ = "stage 1 in bf16 accumulates gradients in fp32", "data_types.grad_accum_dtype", "Remove one of the two."
    else:
        return
    yield Finding(
        key,
        f"compute_grad_norm false does not go with this config: {found}. DeepSpeed raises a ValueError in deepspeed.initialize.",
        help=help_,
        fix=without(config, key, Applicability.UNSAFE),
        related=((place, "does not go with it"),) if config.has(place) else (),
    )


@rule(
    "DS409",
    "zero-on-one-gpu",
    effect=Effect.SLOW,
    watches=("zero_optimization.stage",),
    needs=("world_size",),
    references=("https://www.deepspeed.ai/tutorials/zero/", "https://github.com/huggingface/trl/issues/2784"),
)
@bad(trained('"zero_optimization": {"stage": 3}'), at="zero_optimization.stage", world_size=1)
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}'), world_size=1)
@good(trained('"zero_optimization": {"stage": 3}'), world_size=2)
def zero_on_one_gpu(config: Config) -> Iterator[Finding]:
    """ZeRO divides by the number of GPUs, and there is one.

    On a single GPU no stage saves memory: a partition is the whole. Stages 2 and 3 still pay for their buckets and hooks, and in fp32 ZeRO adds a second
    copy of the parameters. Offload to the CPU is what saves memory on one GPU.

    Offload the optimizer, or set the stage to 0.
    """
    stage = config.value(STAGE)
    offloads = [config.value(f"{ZERO}.{name}.device") for name in ("offload_optimizer", "offload_param")]
    if config.facts.world_size != 1 or not stage >= 1 or not all(device in (None, "none") for device in offloads) or not config.has(STAGE):
        return
    if config.has(f"{ZERO}.cpu_offload"):
        return
    yield Finding(
        STAGE,
        f"ZeRO stage {stage} on one GPU saves no memory: it divides by the number of GPUs.",
        help='Add "offload_optimizer": {"device": "cpu"}, or set "stage": 0.',
    )


@rule(
    "DS411",
    "contiguous-gradients-forced",
    effect=Effect.IGNORED,
    watches=("zero_optimization.contiguous_gradients",),
    references=(STAGE_1_AND_2,),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "contiguous_gradients": false, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.contiguous_gradients",
)
@good(trained('"zero_optimization": {"stage": 2, "contiguous_gradients": false}'))
@good(trained('"zero_optimization": {"stage": 2, "contiguous_gradients": true, "offload_optimizer": {"device": "cpu"}}'))
def contiguous_gradients_forced(config: Config) -> Iterator[Finding]:
    """`contiguous_gradients: false` beside optimizer offload is overridden.

    At stages 1 and 2 offload copies gradients to the host out of the contiguous buffer, so DeepSpeed takes true whatever is written.

    Remove it.
    """
    key = f"{ZERO}.contiguous_gradients"
    if config.value(key) is False and config.value(STAGE) in (1, 2) and config.value(f"{OFFLOAD_OPTIMIZER}.device") in ("cpu", "nvme"):
        yield Finding(
            key,
            f"contiguous_gradients false is overridden: with the optimizer offloaded DeepSpeed takes true at stage {config.value(STAGE)}.",
            help="Remove it.",
            fix=without(config, key),
            related=((OFFLOAD_OPTIMIZER, "the optimizer is offloaded here"),),
        )


@rule(
    "DS412",
    "unused-parameters-not-looked-for",
    effect=Effect.IGNORED,
    watches=("zero_optimization.ignore_unused_parameters",),
    references=(f"{STAGE_1_AND_2}.complete_grad_norm_calculation_for_cpu_offload",),
)
@bad(trained('"zero_optimization": {"stage": 2, "ignore_unused_parameters": false}'), at="zero_optimization.ignore_unused_parameters")
@good(trained('"zero_optimization": {"stage": 2, "ignore_unused_parameters": false, "offload_optimizer": {"device": "cpu"}}'))
@good(trained('"zero_optimization": {"stage": 2, "ignore_unused_parameters": true}'))
def unused_parameters_not_looked_for(config: Config) -> Iterator[Finding]:
    """Parameters without a gradient are to stop the run, and are let pass: only optimizer offload looks for them.

    `ignore_unused_parameters: false` is heeded where the gradient norm is computed on the host, at stages 1 and 2 with offload. Elsewhere a parameter that
    takes no part in the loss is not reported.

    Remove it, or look for such parameters in the program.
    """
    key = f"{ZERO}.ignore_unused_parameters"
    device = config.value(f"{OFFLOAD_OPTIMIZER}.device")
    if config.value(key) is False and config.value(STAGE) in (1, 2) and device in (None, "none") and not config.has(f"{ZERO}.cpu_offload"):
        yield Finding(
            key,
            "ignore_unused_parameters false is heeded with optimizer offload alone: here a parameter without a gradient passes unnoticed.",
            help="Remove it.",
            fix=without(config, key),
        )
