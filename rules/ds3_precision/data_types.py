"""DS3: the data types of parameters, of accumulated gradients and of communication."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Release
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.rule import Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import switched, without, write
from dslint.rules.helpers.model import may_be_pipelined
from dslint.rules.helpers.precision import ENGINE, bf16_section, dtype_of, model_dtype
from dslint.rules.helpers.zero import STAGE, related_stage

PARAM_DTYPE = "data_types.param_dtype"
ACCUMULATION_DTYPE = "data_types.grad_accum_dtype"
COMMUNICATION_DTYPE = "communication_data_type"

_TAKES_BF16_IN_PIPELINES = Release(0, 12, 5)
_TAKES_BF16 = Release(0, 17, 6)
_REFUSES_FP32 = Release(0, 18, 5)
"""Of a bf16 model without ZeRO: the first releases that accumulate its gradients in bf16, for a pipeline and for any model, and the first that
does so in nothing else. DeepSpeedEngine._do_optimizer_sanity_check and get_data_types of all releases since 0.9.0."""

_RAISES_FOR_INT8 = Release(0, 19, 8)
"""The first release that raises for int8: 0.12.6 to 0.19.7 take a step, asked by running them."""

DATA_TYPES_DOCS = "https://www.deepspeed.ai/docs/config-json/#data-type-options"


def _enabled_mode(config: Config, dtype: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Why the model has a type: in words, and as a related place of a finding."""
    if dtype == "fp32":
        return "neither fp16 nor bf16 is enabled", ()
    section = "fp16" if dtype == "fp16" else bf16_section(config)
    return f"{section} is enabled", ((f"{section}.enabled", f"{section} is enabled here"),)


@rule(
    "DS315",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=(f"{ENGINE}, DeepSpeedEngine._assert_valid_mixed_precision_config",),
    watches=(PARAM_DTYPE,),
)
@bad(
    trained('"bf16": {"enabled": true}, "data_types": {"param_dtype": "fp16"}'),
    at=PARAM_DTYPE,
    message='param_dtype "fp16" contradicts the model\'s type, bf16 (bf16 is enabled): DeepSpeed raises an AssertionError in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}}',
)
@bad(
    trained('"data_types": {"param_dtype": "bf16"}'),
    at=PARAM_DTYPE,
    message='param_dtype "bf16" contradicts the model\'s type, fp32 (neither fp16 nor bf16 is enabled): DeepSpeed raises an AssertionError in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "data_types": {"param_dtype": "bf16"}, "bf16": {"enabled": true}}',
)
@good(trained('"bf16": {"enabled": true}, "data_types": {"param_dtype": "bfloat16"}'))
@good(trained('"data_types": {"param_dtype": "fp32"}'))
def param_dtype_conflict(config: Config) -> Iterator[Finding]:
    """`data_types.param_dtype` contradicts fp16 and bf16, which set the type of the parameters.

    The key sets nothing: DeepSpeed 0.19.2 and newer compare it with the enabled mode and raise an `AssertionError` if they differ. If
    neither fp16 nor bf16 is enabled, DeepSpeed accepts only fp32.

    Remove the key and enable `fp16` or `bf16`.
    """
    requested, dtype = dtype_of(config, PARAM_DTYPE), model_dtype(config)
    if config.release < (0, 19, 2) or requested is None or dtype is None or requested == dtype:
        return
    reason, related = _enabled_mode(config, dtype)
    yield Finding(
        PARAM_DTYPE,
        f"param_dtype {config.quote(PARAM_DTYPE)} contradicts the model's type, {dtype} ({reason}): DeepSpeed raises an AssertionError in deepspeed.initialize.",
        help=f'Remove it, or enable "{requested}".' if requested in ("fp16", "bf16") else "Remove it.",
        fix=_resolve_conflict(config, requested, dtype),
        related=related,
    )


def _resolve_conflict(config: Config, requested: str, dtype: str) -> FixPlan | None:
    """Enable the requested type if the file has no section for a mode; otherwise remove the key and keep the mode."""
    if dtype == "fp32" and requested in ("fp16", "bf16") and not any(config.has(section) for section in ("fp16", "bf16", "bfloat16")):
        return switched(config, on=requested)
    return without(config, PARAM_DTYPE, Applicability.UNSAFE)


@rule(
    "DS316",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=(f"{ENGINE}, DeepSpeedEngine._do_optimizer_sanity_check",),
    watches=(ACCUMULATION_DTYPE,),
)
@bad(
    trained('"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}'),
    at=ACCUMULATION_DTYPE,
    message='grad_accum_dtype "fp32" differs from the model\'s type, bf16 (bf16 is enabled), which requires ZeRO: at stage 0 DeepSpeed raises NotImplementedError in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}}',
)
@bad(
    trained('"zero_optimization": {"stage": 0}, "data_types": {"grad_accum_dtype": "fp16"}'),
    at=ACCUMULATION_DTYPE,
    message='grad_accum_dtype "fp16" differs from the model\'s type, fp32 (neither fp16 nor bf16 is enabled), which requires ZeRO: at stage 0 DeepSpeed raises NotImplementedError in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 0}}',
)
@bad(
    trained('"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "bf16"}'),
    at=ACCUMULATION_DTYPE,
    deepspeed="0.12.0",
    message='DeepSpeed before 0.17.6 accumulates the gradients of a bf16 model without ZeRO only in fp32: grad_accum_dtype "bf16" raises NotImplementedError in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}}',
)
@good(trained('"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1}'))
@good(trained('"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}'), deepspeed="0.18.4")
@good(trained('"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "bf16"}'))
@good(trained('"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "bf16"}'), deepspeed="0.14.5", pipeline_parallel=2)
def accumulation_dtype_without_zero(config: Config) -> Iterator[Finding]:
    """Without ZeRO, DeepSpeed accumulates gradients only in the model's own type.

    If `data_types.grad_accum_dtype` differs from it at stage 0, DeepSpeed raises `NotImplementedError: unsupported mix of model_dtype and
    grad_accum_dtype`. ZeRO stages 1 to 3 keep a gradient buffer in any type. For a model in bf16, releases before 0.18.5 accumulate in fp32, and
    releases before 0.17.6 in nothing else, but for a pipeline since 0.12.5.

    Set a ZeRO stage, or remove the key.
    """
    requested, dtype = dtype_of(config, ACCUMULATION_DTYPE), model_dtype(config)
    if requested is None or dtype is None or not config.value(STAGE) == 0:  # noqa: SIM201 - UNKNOWN is neither
        return
    if runs_without_optimizer(config):
        return  # DeepSpeed compares the types where it wraps an optimizer
    if requested == "fp32" and dtype == "bf16" and config.release < _REFUSES_FP32:
        return
    takes_in_pipelines = config.release >= _TAKES_BF16_IN_PIPELINES
    if requested == dtype and (dtype != "bf16" or config.release >= _TAKES_BF16 or (takes_in_pipelines and may_be_pipelined(config))):
        return
    program = config.setup.program if config.setup is not None else None
    reason, related = _enabled_mode(config, dtype)
    written = config.quote(ACCUMULATION_DTYPE)
    yield Finding(
        ACCUMULATION_DTYPE,
        f"DeepSpeed before {_TAKES_BF16} accumulates the gradients of a bf16 model without ZeRO only in fp32: grad_accum_dtype {written} raises "
        "NotImplementedError in deepspeed.initialize."
        if requested == dtype
        else f"grad_accum_dtype {written} differs from the model's type, {dtype} ({reason}), which requires ZeRO: at stage 0 DeepSpeed raises NotImplementedError in deepspeed.initialize.",
        help='Set "zero_optimization": {"stage": 1} or higher, or remove it.',
        fix=without(config, ACCUMULATION_DTYPE, Applicability.UNSAFE),
        related=(*related, *related_stage(config)),
        certain=requested != dtype or not takes_in_pipelines or program is not None,
    )


@rule(
    "DS335",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    references=("deepspeed/runtime/zero/stage_1_and_2.py, DeepSpeedZeroOptimizer.get_flat_partition",),
    watches=(ACCUMULATION_DTYPE,),
)
@bad(
    trained('"zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "int8"}'),
    at=ACCUMULATION_DTYPE,
    message='grad_accum_dtype "int8" cannot hold gradients: at ZeRO stage 1 torch raises RuntimeError "result type Float can\'t be cast to the desired output type Char" at the first step.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "fp32"}}',
)
@good(trained('"zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "fp32"}'))
def accumulates_in_int8(config: Config) -> Iterator[Finding]:
    """ZeRO stage 1 cannot accumulate gradients in int8.

    DeepSpeed accepts the type, and torch raises a `RuntimeError` when the first gradient is added, since 0.19.8.

    Write "fp32", or remove the key.
    """
    if config.release < _RAISES_FOR_INT8:
        return
    if dtype_of(config, ACCUMULATION_DTYPE) == "int8" and config.value(STAGE) == 1 and not runs_without_optimizer(config):
        yield Finding(
            ACCUMULATION_DTYPE,
            f'grad_accum_dtype {config.quote(ACCUMULATION_DTYPE)} cannot hold gradients: at ZeRO stage 1 torch raises RuntimeError "result type Float can\'t be cast to the desired output type Char" at the first step.',
            help='Write "fp32", or remove it.',
            fix=write(config, ACCUMULATION_DTYPE, '"fp32"'),
        )


@rule(
    "DS317",
    effect=Effect.SILENT,
    references=(f"{ENGINE}, DeepSpeedEngine.get_data_types", DATA_TYPES_DOCS),
    watches=(ACCUMULATION_DTYPE,),
)
@bad(
    trained('"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp16"}, "zero_optimization": {"stage": 2}'),
    at=ACCUMULATION_DTYPE,
    message='grad_accum_dtype "fp16" accumulates the gradients of a bf16 run in fp16, without a loss scale: those below 6e-8 become 0.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 2}}',
)
@bad(
    trained('"data_types": {"grad_accum_dtype": "int8"}, "zero_optimization": {"stage": 2}'),
    at=ACCUMULATION_DTYPE,
    message='grad_accum_dtype "int8" accumulates gradients in 8-bit integers: every gradient between -1 and 1 becomes 0, and the model does not learn.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 2}}',
)
@good(trained('"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 2}'))
@good(trained('"fp16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp16"}, "zero_optimization": {"stage": 2}'))
def accumulates_in_fp16(config: Config) -> Iterator[Finding]:
    """Gradients are accumulated in a type that cannot hold them: fp16 without a loss scale, or 8-bit integers.

    fp16 holds numbers from 6e-8 to 65504. Only fp16 training has a loss scale that keeps gradients in that range; in a bf16 or fp32 run,
    small gradients become 0 in the accumulator. DeepSpeed also accepts `int8`, in which every gradient below 1 becomes 0. There is no
    warning.

    Write "fp32", which is exact, or remove the key.
    """
    requested, dtype = dtype_of(config, ACCUMULATION_DTYPE), model_dtype(config)
    if not config.value(STAGE) > 0 or runs_without_optimizer(config):
        return
    if requested == "int8" and config.value(STAGE) > 1:
        consequence = "accumulates gradients in 8-bit integers: every gradient between -1 and 1 becomes 0, and the model does not learn"
    elif dtype in ("bf16", "fp32") and requested == "fp16":
        consequence = f"accumulates the gradients of a {dtype} run in fp16, without a loss scale: those below 6e-8 become 0"
    else:
        return
    yield Finding(
        ACCUMULATION_DTYPE,
        f"grad_accum_dtype {config.quote(ACCUMULATION_DTYPE)} {consequence}.",
        help='Write "fp32", or remove it.',
        fix=write(config, ACCUMULATION_DTYPE, '"fp32"'),
        related=_enabled_mode(config, dtype)[1] if dtype and requested == "fp16" else (),
    )


@rule(
    "DS318",
    effect=Effect.SILENT,
    references=(f"{ENGINE}, DeepSpeedEngine.communication_data_type", "https://www.deepspeed.ai/docs/config-json/#communication-options"),
    watches=(COMMUNICATION_DTYPE,),
)
@bad(
    trained('"bf16": {"enabled": true}, "communication_data_type": "fp16"'),
    at=COMMUNICATION_DTYPE,
    message='communication_data_type "fp16" averages the gradients of a bf16 run in fp16, without a loss scale: those above 65504 become infinite, those below 6e-8 become 0.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "communication_data_type": "bf16"}',
)
@bad(
    trained('"bf16": {"enabled": true}, "communication_data_type": "fp16"'),
    at=COMMUNICATION_DTYPE,
    deepspeed="0.14.0",
    message='communication_data_type "fp16" averages the gradients of a bf16 run in fp16, without a loss scale: those above 65504 become infinite, those below 6e-8 become 0.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "communication_data_type": "bfp16"}',
)
@good(trained('"bf16": {"enabled": true}, "communication_data_type": "fp32"'))
@good(trained('"fp16": {"enabled": true}, "communication_data_type": "fp16"'))
def communicates_in_fp16(config: Config) -> Iterator[Finding]:
    """The gradients of a bf16 run are averaged over the ranks in fp16, without a loss scale.

    DeepSpeed casts gradients to `communication_data_type` before it reduces them. bf16 has the range of fp32, while fp16 ends at 65504 and
    at 6e-8: larger gradients become infinite and smaller ones become 0.

    Write "bf16" or "fp32", or remove the key, and DeepSpeed uses bf16.
    """
    if model_dtype(config) == "bf16" and dtype_of(config, COMMUNICATION_DTYPE) == "fp16" and not runs_without_optimizer(config):
        bf16 = "bf16" if config.release >= (0, 14, 1) else "bfp16"  # this key alone; DeepSpeed 0.14.0 has no other name for it
        yield Finding(
            COMMUNICATION_DTYPE,
            f"communication_data_type {config.quote(COMMUNICATION_DTYPE)} averages the gradients of a bf16 run in fp16, without a loss scale: those above 65504 become infinite, those below 6e-8 become 0.",
            help=f'Write "{bf16}" or "fp32", or remove it.',
            fix=write(config, COMMUNICATION_DTYPE, f'"{bf16}"'),
            related=_enabled_mode(config, "bf16")[1],
        )


MANY_STEPS = 8
"""From this many gradient accumulation steps on, a sum in bf16, with 8 significant bits, visibly loses small gradients."""


@rule(
    "DS330",
    effect=Effect.ADVICE,
    pedantic=True,
    references=("https://github.com/deepspeedai/DeepSpeed/issues/2352", DATA_TYPES_DOCS),
    watches=("gradient_accumulation_steps", "train_batch_size"),
)
@bad(
    trained('"gradient_accumulation_steps": 64, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}'),
    at="gradient_accumulation_steps",
    message="64 gradient accumulation steps are summed in bf16, which loses values 256 times smaller than the sum.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "gradient_accumulation_steps": 64, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}, "data_types": {"grad_accum_dtype": "fp32"}}',
)
@good(
    trained(
        '"gradient_accumulation_steps": 64, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}, "data_types": {"grad_accum_dtype": "fp32"}'
    )
)
@good(trained('"gradient_accumulation_steps": 2, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}'))
def accumulates_in_bf16(config: Config) -> Iterator[Finding]:
    """Many gradient accumulation steps are summed in bf16, which has 8 significant bits.

    Without `data_types.grad_accum_dtype` DeepSpeed accumulates gradients in the model's type. In bf16 an addend 256 times smaller than the
    sum is lost. Some users see the loss drift over long runs, many do not. fp32 costs 4 bytes per parameter, divided by the number of GPUs
    at stages 2 and 3.

    Write `"data_types": {"grad_accum_dtype": "fp32"}` for long runs.
    """
    steps = config.value("gradient_accumulation_steps")
    accumulation = config.value(ACCUMULATION_DTYPE)
    if model_dtype(config) == "bf16" and steps >= MANY_STEPS and accumulation is None and config.value(STAGE) >= 1:
        yield Finding(
            "gradient_accumulation_steps",
            f"{steps:,} gradient accumulation steps are summed in bf16, which loses values 256 times smaller than the sum.",
            help='Write "data_types": {"grad_accum_dtype": "fp32"}, which costs 4 bytes per parameter.',
            fix=write(config, ACCUMULATION_DTYPE, '"fp32"') if config.value(STAGE) >= 2 else None,
            on="member",
        )
