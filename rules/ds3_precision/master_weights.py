"""DS3: half-precision master weights and optimizer states, ZeRO's bf16 optimizer, and what experts debate about precision."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.rule import Finding, FixPlan, bad, good, path_of, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import switched, without, write
from dslint.rules.helpers.precision import OFFLOAD, STAGE, bf16_section, cpu_adam, model_dtype, uses_bf16_optimizer
from dslint.source.change import Set

ENGINE = "deepspeed/runtime/engine.py"
MASTER = "deepspeed/runtime/base_optimizer.py, ZeROOptimizer._configure_master_weights"


@rule(
    "DS326",
    "master-weights-without-cpu-adam",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=(MASTER,),
    watches=("fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads", "bfloat16.bf16_master_weights_and_grads"),
)
@bad(
    trained('"bf16": {"enabled": true, "bf16_master_weights_and_grads": true}, "zero_optimization": {"stage": 2}'),
    at="bf16.bf16_master_weights_and_grads",
)
@bad(
    trained('"fp16": {"enabled": true, "fp16_master_weights_and_grads": true}, "zero_optimization": {"stage": 3}'),
    at="fp16.fp16_master_weights_and_grads",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Lion", "params": {"lr": 1e-4}}, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    at="bf16.bf16_master_weights_and_grads",
)
@good(
    trained(
        '"bf16": {"enabled": true, "bf16_master_weights_and_grads": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'
    )
)
@good(
    trained(
        '"bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true}, "zero_optimization": {"stage": 1}'
    )
)
def master_weights_without_cpu_adam(config: Config) -> Iterator[Finding]:
    """Half-precision master weights need optimizer offload with DeepSpeed's CPU Adam.

    `fp16_master_weights_and_grads` always does; `bf16_master_weights_and_grads` does unless `bf16_optimizer_states` keeps the moments in bf16 as well, on the
    GPU. DeepSpeed asserts it when it builds the ZeRO optimizer, whether or not the section is enabled. torch's Adam on the CPU, ZenFlow and other optimizers
    do not count.

    Offload the optimizer to the CPU with Adam or AdamW, add `bf16_optimizer_states`, or remove the key.
    """
    if not config.value(STAGE) >= 1 or config.release < (0, 18, 3):
        return
    adam, bf16 = cpu_adam(config), bf16_section(config)
    if adam is not False:
        return
    states = config.value(f"{bf16}.bf16_optimizer_states")
    offloaded = config.value(f"{OFFLOAD}.device") in ("cpu", "nvme")
    for key in ("fp16.fp16_master_weights_and_grads", f"{bf16}.bf16_master_weights_and_grads"):
        if config.value(key) is not True or (key.startswith("bf") and not (states is False or (states is True and offloaded))):
            continue
        found = f'the optimizer "{config.value("optimizer.type")}" is another' if offloaded else "the optimizer is not offloaded"
        instead = ' Or add "bf16_optimizer_states": true, which needs no offload.' if key.startswith("bf") and not offloaded else ""
        yield Finding(
            key,
            f"{key.partition('.')[2]} needs optimizer offload with DeepSpeed's CPU Adam, and {found}: DeepSpeed raises an AssertionError in deepspeed.initialize.",
            help=f'Write "offload_optimizer": {{"device": "cpu"}} with the optimizer type AdamW, or remove it.{instead}',
            fix=_full_weights(config, key, both=bool(states is True)),
        )
        return


def _full_weights(config: Config, key: str, *, both: bool) -> FixPlan | None:
    """Keep master weights in fp32; `both`: the optimizer's states too, which would be refused without."""
    section = key.partition(".")[0]
    if not both or section == "fp16":
        return without(config, key, Applicability.SAFE if config.enabled(section) is False else Applicability.UNSAFE)
    states = f"{section}.bf16_optimizer_states"
    return FixPlan(
        'write "bf16_master_weights_and_grads" and "bf16_optimizer_states": false',
        (Set(path_of(key), "false"), Set(path_of(states), "false")),
    )


@rule(
    "DS327",
    "two-master-weights",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=(MASTER,),
    watches=("fp16.fp16_master_weights_and_grads",),
)
@bad(
    trained(
        '"fp16": {"enabled": false, "fp16_master_weights_and_grads": true}, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'
    ),
    at="fp16.fp16_master_weights_and_grads",
)
@good(
    trained(
        '"fp16": {"enabled": false, "fp16_master_weights_and_grads": false}, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'
    )
)
def two_master_weights(config: Config) -> Iterator[Finding]:
    """Master weights are asked for in fp16 and in bf16 at once.

    DeepSpeed reads both keys, whichever section is enabled, and asserts that one at most is true.

    Keep that of the section which is enabled.
    """
    first, second = "fp16.fp16_master_weights_and_grads", f"{bf16_section(config)}.bf16_master_weights_and_grads"
    if config.value(first) is True and config.value(second) is True and config.value(STAGE) >= 1 and cpu_adam(config) is not False:
        on = {key.partition(".")[0] for key in (first, second) if config.enabled(key.partition(".")[0]) is True}
        yield Finding(
            first,
            "fp16_master_weights_and_grads and bf16_master_weights_and_grads are both true; DeepSpeed reads them even where the section is off, and raises an AssertionError in deepspeed.initialize.",
            help="Keep that of the section which is enabled.",
            fix=without(config, first) if on == {second.partition(".")[0]} else without(config, second) if on == {"fp16"} else None,
            related=((second, "the other is set here"),),
        )


NOT_OF_BF16_OPTIMIZER = (
    "zero_optimization.overlap_comm",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.parameter_alignment",
    "zero_optimization.use_multi_rank_bucket_allreduce",
    "bf16.check_grad_overflow",
)
"""Settings of ZeRO stage 1 that `BF16_Optimizer` is not given."""


@rule(
    "DS328",
    "ignored-by-bf16-optimizer",
    effect=Effect.IGNORED,
    references=(f"{ENGINE}, DeepSpeedEngine._do_optimizer_sanity_check",),
    watches=("data_types.grad_accum_dtype",),
)
@bad(
    trained(
        '"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8, "overlap_comm": true}'
    ),
    at="zero_optimization.reduce_bucket_size",
)
@good(
    trained(
        '"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}'
    )
)
@good(trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8, "overlap_comm": true}'))
def ignored_by_bf16_optimizer(config: Config) -> Iterator[Finding]:
    """ZeRO stage 1 in bf16 with fp32 accumulation runs in another optimizer, which does not read these settings.

    For this combination DeepSpeed takes `BF16_Optimizer` in place of the ZeRO optimizer. It keeps a whole fp32 gradient on every rank (4 bytes a parameter,
    not divided by the number of GPUs), has no buckets, and no offload to NVMe.

    Take stage 2 if the settings are wanted: it divides the fp32 gradients too.
    """
    if not uses_bf16_optimizer(config):
        return
    written = [key for key in NOT_OF_BF16_OPTIMIZER if config.has(key) and config.quote(key) not in ("null", "false", '"auto"')]
    if config.value(f"{OFFLOAD}.device") == "nvme":
        written.append(f"{OFFLOAD}.device")
    if not written:
        return
    written.sort(key=lambda key: config.document.lookup(tuple(key.split("."))).span.start)  # type: ignore[union-attr]
    names = ", ".join(key.rpartition(".")[2] if key != f"{OFFLOAD}.device" else "offload_optimizer" for key in written)
    yield Finding(
        written[0],
        f"ZeRO stage 1 in bf16 with grad_accum_dtype fp32 runs in DeepSpeed's BF16_Optimizer, which does not read {names}, and keeps a whole fp32 gradient on every GPU.",
        help='Set "stage": 2, whose optimizer reads them and divides the fp32 gradients, or remove them.',
        fix=without(config, written[0]) if written[0] != f"{OFFLOAD}.device" else None,
        related=(("data_types.grad_accum_dtype", "fp32 accumulation is set here"), (STAGE, "the stage is set here")),
    )


@rule(
    "DS329",
    "bf16-setting-not-read",
    effect=Effect.IGNORED,
    references=(f"{ENGINE}, DeepSpeedEngine._configure_zero_optimizer",),
    watches=("bf16.check_grad_overflow", "bf16.immediate_grad_update", "bfloat16.check_grad_overflow", "bfloat16.immediate_grad_update"),
)
@bad(trained('"bf16": {"enabled": true, "check_grad_overflow": true}, "zero_optimization": {"stage": 3}'), at="bf16.check_grad_overflow")
@bad(
    trained('"bf16": {"enabled": true, "immediate_grad_update": true}, "zero_optimization": {"stage": 2}'), at="bf16.immediate_grad_update"
)
@good(trained('"bf16": {"enabled": true, "check_grad_overflow": true}, "zero_optimization": {"stage": 2}'))
@good(
    trained(
        '"bf16": {"enabled": true, "immediate_grad_update": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1}'
    )
)
def bf16_setting_not_read(config: Config) -> Iterator[Finding]:
    """A setting of bf16 that the optimizer of this ZeRO stage does not read.

    `check_grad_overflow` is for stages 1 and 2. `immediate_grad_update` is for `BF16_Optimizer`, which runs ZeRO stage 1 with `grad_accum_dtype` "fp32" and
    pipelines.

    Remove it.
    """
    section, stage = bf16_section(config), config.value(STAGE)
    if config.enabled(section) is not True:
        return
    key = f"{section}.check_grad_overflow"
    if config.has(key) and config.value(key) is True and stage in (0, 3):
        yield Finding(
            key,
            f"check_grad_overflow is read at ZeRO stages 1 and 2 alone, and the stage is {stage}: nothing looks for overflows.",
            help="Remove it.",
            fix=without(config, key),
        )
    key = f"{section}.immediate_grad_update"
    pipelined = (config.facts.pipeline_parallel or 1) > 1 or config.has("pipeline")
    if config.has(key) and config.value(key) is True and stage in (1, 2, 3) and not uses_bf16_optimizer(config) and not pipelined:
        yield Finding(
            key,
            f"immediate_grad_update is read by BF16_Optimizer alone, which ZeRO stage 1 uses with grad_accum_dtype fp32; here, at stage {stage}, nothing reads it.",
            help="Remove it.",
            fix=without(config, key),
        )


MANY_STEPS = 8
"""Accumulation steps from which the sum in bf16, of 8 significant bits, visibly loses what is added."""


@rule(
    "DS330",
    "accumulates-in-bf16",
    effect=Effect.ADVICE,
    pedantic=True,
    references=("https://github.com/deepspeedai/DeepSpeed/issues/2352", "https://www.deepspeed.ai/docs/config-json/#data-type-options"),
    watches=("gradient_accumulation_steps", "train_batch_size"),
)
@bad(
    trained('"gradient_accumulation_steps": 64, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}'),
    at="gradient_accumulation_steps",
)
@good(
    trained(
        '"gradient_accumulation_steps": 64, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}, "data_types": {"grad_accum_dtype": "fp32"}'
    )
)
@good(trained('"gradient_accumulation_steps": 2, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}'))
def accumulates_in_bf16(config: Config) -> Iterator[Finding]:
    """Many accumulation steps are summed in bf16, which has 8 significant bits.

    Without `data_types.grad_accum_dtype` gradients are summed in the model's type. In bf16 an addend 256 times smaller than the sum is lost. Some see the
    loss drift over long runs, many do not; fp32 costs 4 bytes a parameter (divided by the number of GPUs at stages 2 and 3).

    Write `"data_types": {"grad_accum_dtype": "fp32"}` for long runs.
    """
    steps = config.value("gradient_accumulation_steps")
    accumulation = config.value("data_types.grad_accum_dtype")
    if model_dtype(config) == "bf16" and steps >= MANY_STEPS and accumulation is None and config.value(STAGE) >= 1:
        yield Finding(
            "gradient_accumulation_steps",
            f"{steps:,} accumulation steps are summed in bf16, which loses what is 256 times smaller than the sum.",
            help='Write "data_types": {"grad_accum_dtype": "fp32"}, for 4 bytes a parameter.',
            fix=write(config, "data_types.grad_accum_dtype", '"fp32"') if config.value(STAGE) >= 2 else None,
            on="member",
        )


@rule(
    "DS331",
    "no-half-precision",
    effect=Effect.MEMORY,
    pedantic=True,
    references=("https://www.deepspeed.ai/docs/config-json/#bfloat16-training-options",),
    watches=("zero_optimization.stage",),
)
@bad(trained('"zero_optimization": {"stage": 2}'), at="zero_optimization.stage")
@good(trained('"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}'))
@good(trained('"zero_optimization": {"stage": 2}, "torch_autocast": {"enabled": true, "dtype": "bf16"}'))
def no_half_precision(config: Config) -> Iterator[Finding]:
    """ZeRO is on, and neither fp16 nor bf16: the model trains in the precision that it was built in.

    Where that is fp32, parameters and gradients take 4 bytes each in place of 2, ZeRO stages 1 to 3 keep a second fp32 copy of the parameters as master weights,
    and matrix products run without the speed of half precision. Some want fp32; most forgot the section.

    Enable bf16, or fp16 on GPUs before Ampere.
    """
    if model_dtype(config) == "fp32" and config.value(STAGE) >= 1 and config.enabled("torch_autocast") is False and config.has(STAGE):
        yield Finding(
            STAGE,
            "Neither fp16 nor bf16 is on: the model trains in the precision that it was built in. In fp32 parameters and gradients take twice the memory, and ZeRO keeps a second fp32 copy of the parameters.",
            help='Add "bf16": {"enabled": true}.',
            fix=_in_half(config),
        )


def _in_half(config: Config) -> FixPlan | None:
    """Enable bf16, where the GPU has it and nothing says otherwise."""
    gpu = config.facts.gpu
    spoken_of = any(config.has(section) for section in ("fp16", "bfloat16", "data_types"))
    return None if spoken_of or (gpu is not None and not gpu.has_bf16) else switched(config, on="bf16")


@rule(
    "DS332",
    "amp-with-zero",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    untried="the section is gone from the newest release, which refuses it while parsing",
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._do_optimizer_sanity_check, until 0.19.7",),
    watches=("amp.enabled",),
)
@bad(trained('"amp": {"enabled": true}, "zero_optimization": {"stage": 1}'), at="amp.enabled", deepspeed="0.16.9")
@bad(trained('"amp": {"enabled": true}, "bf16": {"enabled": true}'), at="amp.enabled", deepspeed="0.16.9")
@good(trained('"amp": {"enabled": false}, "zero_optimization": {"stage": 1}'), deepspeed="0.16.9")
@good(trained('"amp": {"enabled": true}'), deepspeed="0.16.9")
def amp_with_zero(config: Config) -> Iterator[Finding]:
    """NVIDIA's amp does not go with ZeRO, nor with fp16 and bf16.

    Releases that still have the section assert it in `deepspeed.initialize`: `Amp and ZeRO are not currently compatible`. Newer ones refuse the section as such.

    Remove `amp` and enable `bf16` or `fp16`.
    """
    if config.release >= (0, 19, 7) or getattr(config.node("amp.enabled"), "value", False) is not True:
        return
    if config.value(STAGE) >= 1:
        other = STAGE
    elif config.enabled("fp16") is True or config.enabled("bf16") is True:
        other = "fp16.enabled" if config.enabled("fp16") is True else "bf16.enabled"
    else:
        return
    error = (
        'AssertionError "Amp and ZeRO are not currently compatible"'
        if other == STAGE
        else 'NotImplementedError "Cannot enable both amp with (legacy) fp16 or bfloat16 mode"'
    )
    yield Finding(
        "amp.enabled",
        f"amp does not go with {'ZeRO' if other == STAGE else other.partition('.')[0]}: DeepSpeed raises {error} in deepspeed.initialize.",
        help="Remove amp, and enable bf16 or fp16.",
        fix=without(config, "amp", Applicability.UNSAFE) if model_dtype(config) in ("fp16", "bf16") else None,
        related=((other, "set here"),),
    )
