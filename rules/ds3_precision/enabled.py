"""DS3: which precision is enabled: both fp16 and bf16, neither of them, or NVIDIA's amp."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config, Origin
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Release
from dslint.rule import Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import switched, without
from dslint.rules.helpers.precision import ENGINE, bf16_section, half_types, model_dtype
from dslint.rules.helpers.zero import STAGE


@rule(
    "DS301",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("deepspeed/runtime/config.py, DeepSpeedConfig._initialize_params",),
    watches=("fp16.enabled", "bf16.enabled"),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "bf16": {"enabled": true}}',
    at="bf16.enabled",
    message='fp16 and bf16 are both enabled; DeepSpeed raises "bfloat16 and fp16 modes cannot be simultaneously enabled".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false}, "bf16": {"enabled": true}}',
)
@bad(
    '{"train_batch_size": "auto", "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}',
    at="bf16.enabled",
    training="base_model: m\nmicro_batch_size: 2\nfp16: true\nbf16: false\nbf16_full_eval: true\n",
    message='fp16 and bf16 are both enabled; DeepSpeed raises "bfloat16 and fp16 modes cannot be simultaneously enabled".',
)
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false}, "bf16": {"enabled": true}}')
@good(
    '{"train_batch_size": "auto", "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}',
    integration="transformers",
)
def fp16_with_bf16(config: Config) -> Iterator[Finding]:
    """fp16 and bf16 are both enabled.

    DeepSpeed raises `AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled` while it parses the config.

    Keep one of them: bf16 on GPUs that support it (Ampere and newer), because it needs no loss scale; fp16 on older ones. The file can
    contain both sections with one of them disabled, or both with "auto" under the Hugging Face Trainer.
    """
    section = bf16_section(config)
    filled = config.origin("fp16.enabled") is config.origin(f"{section}.enabled") is Origin.FILLED
    if config.enabled("fp16") is True and config.enabled(section) is True and not (filled and _is_about_arguments(config)):
        keeps = f"Switch one of them off in {config.arguments.path}" if filled and config.arguments is not None else "Disable one of them"
        yield Finding(
            f"{section}.enabled",
            f'fp16 and {section} are both enabled; DeepSpeed raises "bfloat16 and fp16 modes cannot be simultaneously enabled".',
            help=f"{keeps}. On Ampere and newer GPUs keep bf16, which needs no loss scale.",
            fix=switched(config, off="fp16" if config.facts.gpu is None or config.facts.gpu.has_bf16 else section),
            related=(("fp16.enabled", "fp16 is enabled here"),),
        )


def _is_about_arguments(config: Config) -> bool:
    """Whether the loader refuses the arguments that fill both before DeepSpeed parses them, as DS905 and DS960 report, or they are not certain."""
    from dslint.frameworks.filling import from_arguments  # a plain check does not import what arguments need
    from dslint.rules.helpers.models import parses_while_loading

    arguments = config.arguments
    if not parses_while_loading(config):
        return True
    if arguments is None or not all(from_arguments(f"{kind}.enabled", arguments, config.facts).sure for kind in ("fp16", "bf16")):
        return True
    return any(all(arguments.value(f"{kind}{where}") is True for kind in ("fp16", "bf16")) for where in ("", "_full_eval"))


@rule(
    "DS305",
    effect=Effect.SILENT,
    references=("deepspeed/runtime/precision_config.py",),
    watches=("fp16", "bf16"),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"loss_scale": 0, "initial_scale_power": 16}}',
    at="fp16",
    message='fp16 has no "enabled", which defaults to false: the model trains in the precision that it was created in, usually fp32.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"loss_scale": 0, "initial_scale_power": 16, "enabled": true}}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false, "loss_scale": 0}}')
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"loss_scale": 0}, "bfloat16": {"enabled": true}}')
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"loss_scale": 0}, "torch_autocast": {"enabled": true, "dtype": "bf16"}}')
@good('{"train_micro_batch_size_per_gpu": 4}')
def precision_not_enabled(config: Config) -> Iterator[Finding]:
    """fp16 or bf16 has settings but no `enabled`, which defaults to false.

    A section does not enable itself. The model trains in the precision that it was created in: usually fp32, with twice the memory and a
    fraction of the speed.

    Add `"enabled": true`, or `"enabled": false` if the section is off on purpose.
    """
    for section in ("fp16", "bf16"):
        members = getattr(config.node(section), "members", None)
        if members is None or config.has(f"{section}.enabled"):
            continue
        if config.enabled(section) is not False or any(v.section == section and (v.raises or v.meant) for v in config.violations):
            continue
        other = "bf16" if section == "fp16" else "fp16"
        if any(config.enabled(one) is not False for one in (other, bf16_section(config), "torch_autocast")):
            continue
        yield Finding(
            section,
            f'{section} has no "enabled", which defaults to false: the model trains in the precision that it was created in, usually fp32.',
            help='Add "enabled": true, or "enabled": false if the section is off on purpose.',
            fix=_enable(config, section, other) if members else None,
            on="key",
            effect=None if members else Effect.ADVICE,
        )


def _enable(config: Config, section: str, other: str) -> FixPlan | None:
    """Enable fp16 or bf16; None if the GPU does not support it, or the other section lacks `enabled` as well."""
    gpu = config.facts.gpu
    unsupported = gpu is not None and not (gpu.has_bf16 if section == "bf16" else gpu.capability is None or gpu.capability >= (7, 0))
    return None if unsupported or (config.has(other) and not config.has(f"{other}.enabled")) else switched(config, on=section)


@rule(
    "DS314",
    effect=Effect.SILENT,
    references=(f"{ENGINE}, DeepSpeedEngine._forward_prologue",),
    watches=("fp16.auto_cast",),
)
@bad(
    trained('"fp16": {"enabled": false, "auto_cast": true}, "bf16": {"enabled": true}'),
    at="fp16.auto_cast",
    message="auto_cast applies although fp16 is disabled: DeepSpeed casts every floating-point input of the model to fp16, and a layer in another type may raise RuntimeError at the first step.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "fp16": {"enabled": false}, "bf16": {"enabled": true}}',
)
@good(trained('"fp16": {"enabled": true, "auto_cast": true}'))
@good(trained('"fp16": {"enabled": false, "auto_cast": false}, "bf16": {"enabled": true}'))
@good(trained('"fp16": {"enabled": false, "auto_cast": true}'), deepspeed="0.17.0")
def auto_cast_without_fp16(config: Config) -> Iterator[Finding]:
    """The model's inputs are cast to fp16, although fp16 is disabled.

    Since 0.17.1, DeepSpeed applies `fp16.auto_cast` whether or not the section is enabled: it casts every floating-point input of the model to fp16. A
    model in bf16 or fp32 then raises `RuntimeError: mat1 and mat2 must have the same dtype` at the first layer, or loses range if it casts
    the input back. Token ids are integers and stay as they are.

    Remove `auto_cast`, or enable fp16.
    """
    applies = config.release >= Release(0, 17, 1)  # earlier releases read it only from an enabled section
    if applies and config.value("fp16.auto_cast") is True and config.enabled("fp16") is False:
        yield Finding(
            "fp16.auto_cast",
            "auto_cast applies although fp16 is disabled: DeepSpeed casts every floating-point input of the model to fp16, and a layer in another type may raise RuntimeError at the first step.",
            help='Remove "auto_cast".' if config.enabled("bf16") is not False else 'Remove "auto_cast", or write "enabled": true.',
            fix=without(config, "fp16.auto_cast", Applicability.UNSAFE),
            certain=False,
        )


@rule(
    "DS331",
    effect=Effect.MEMORY,
    pedantic=True,
    references=("https://www.deepspeed.ai/docs/config-json/#bfloat16-training-options",),
    watches=("zero_optimization.stage",),
)
@bad(
    trained('"zero_optimization": {"stage": 2}'),
    at="zero_optimization.stage",
    message="Neither fp16 nor bf16 is enabled: the model trains in the precision that it was created in. In fp32, parameters and gradients take twice the memory, and ZeRO keeps a second fp32 copy of the parameters.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}',
)
@good(trained('"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}'))
@good(trained('"zero_optimization": {"stage": 2}, "torch_autocast": {"enabled": true, "dtype": "bf16"}'))
def no_half_precision(config: Config) -> Iterator[Finding]:
    """ZeRO is enabled without fp16 and bf16, so the model trains in the precision that it was created in.

    If that is fp32, parameters and gradients take 4 bytes each instead of 2, ZeRO stages 1 to 3 keep a second fp32 copy of the parameters
    as master weights, and matrix products run without the speed of half precision. fp32 can be a choice, but often the section was forgotten.

    Enable bf16, or fp16 on GPUs before Ampere.
    """
    if _trains_in_fp32(config) and config.value(STAGE) >= 1 and config.has(STAGE) and _plain_reason(config) is None:
        yield Finding(
            STAGE,
            "Neither fp16 nor bf16 is enabled: the model trains in the precision that it was created in. In fp32, parameters and gradients take twice the memory, and ZeRO keeps a second fp32 copy of the parameters.",
            help='Add "bf16": {"enabled": true}.',
            fix=_enable_bf16(config),
        )


def _trains_in_fp32(config: Config) -> bool:
    """Whether neither fp16, bf16, autocast nor apex's amp is enabled, for certain."""
    apex = config.has("amp") and config.literal("amp.enabled") is not False
    return model_dtype(config) == "fp32" and config.enabled("torch_autocast") is False and not apex


def _plain_reason(config: Config) -> str | None:
    """What makes it plain that half precision was forgotten: a model published in it, on a GPU that is not known to lack it."""
    model, gpu = config.facts.model, config.facts.gpu
    written = any(config.literal(f"{section}.enabled") is False for section in ("fp16", "bf16", "bfloat16"))
    if written or model is None or (gpu is not None and not gpu.has_bf16):
        return None
    dtype = (model.dtype or "").removeprefix("torch.")
    return f"{model.path} says that the model was published in {dtype}" if dtype in ("bfloat16", "float16") else None


_BF16_MODEL: dict[str, object] = {"model_type": "llama", "hidden_size": 4096, "torch_dtype": "bfloat16"}


@rule(
    "DS334",
    effect=Effect.MEMORY,
    references=(f"{ENGINE}, DeepSpeedEngine._configure_distributed_model",),
    watches=("fact:model",),
)
@bad(
    trained('"zero_optimization": {"stage": 2}'),
    at="zero_optimization",
    model=_BF16_MODEL,
    message="Neither fp16 nor bf16 is enabled, but config.json says that the model was published in bfloat16: DeepSpeed does not train in mixed precision.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}',
)
@good(trained('"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}'), model=_BF16_MODEL)
@good(trained('"zero_optimization": {"stage": 2}, "bf16": {"enabled": false}'), model=_BF16_MODEL)
@good(trained('"amp": {"enabled": true}'), model=_BF16_MODEL, deepspeed="0.16.9")
@good(trained('"zero_optimization": {"stage": 2}'), model={"model_type": "llama", "hidden_size": 4096, "torch_dtype": "float32"})
def half_precision_forgotten(config: Config) -> Iterator[Finding]:
    """The model was published in half precision, and the config enables neither fp16 nor bf16.

    DeepSpeed then does not train in mixed precision: fp16 and bf16 default to false. fp32 takes twice the memory for parameters and
    gradients, and does not use the fast matrix units. With `"enabled": false` in a section, fp32 is a choice and not reported.

    Enable bf16, or fp16 on GPUs before Ampere.
    """
    reason = _plain_reason(config)
    if reason is not None and _trains_in_fp32(config):
        yield Finding(
            "zero_optimization",
            f"Neither fp16 nor bf16 is enabled, but {reason}: DeepSpeed does not train in mixed precision.",
            help='Add "bf16": {"enabled": true}.',
            on="key",
            fix=_enable_bf16(config),
        )


def _enable_bf16(config: Config) -> FixPlan | None:
    """Enable bf16; None if the GPU does not support it, or another section is about precision."""
    gpu = config.facts.gpu
    other = any(config.has(section) for section in ("fp16", "bfloat16", "data_types"))
    return None if other or (gpu is not None and not gpu.has_bf16) else switched(config, on="bf16")


@rule(
    "DS332",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    untried="the newest release removed the section and rejects it while parsing",
    references=(f"{ENGINE}, DeepSpeedEngine._do_optimizer_sanity_check, until 0.19.7",),
    watches=("amp.enabled",),
)
@bad(
    trained('"amp": {"enabled": true}, "zero_optimization": {"stage": 1}'),
    at="amp.enabled",
    deepspeed="0.16.9",
    message='amp is not compatible with ZeRO: DeepSpeed raises AssertionError "Amp and ZeRO are not currently compatible" in deepspeed.initialize.',
)
@bad(
    trained('"amp": {"enabled": true}, "bf16": {"enabled": true}'),
    at="amp.enabled",
    deepspeed="0.16.9",
    message='amp is not compatible with bf16: DeepSpeed raises NotImplementedError "Cannot enable both amp with (legacy) fp16 or bfloat16 mode" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}}',
)
@good(trained('"amp": {"enabled": false}, "zero_optimization": {"stage": 1}'), deepspeed="0.16.9")
@good(trained('"amp": {"enabled": true}'), deepspeed="0.16.9")
def amp_with_zero(config: Config) -> Iterator[Finding]:
    """NVIDIA's amp is enabled together with ZeRO, fp16 or bf16.

    Releases that have the section raise an error in `deepspeed.initialize`: `Amp and ZeRO are not currently compatible`. Newer releases
    reject the section itself.

    Remove `amp` and enable `bf16` or `fp16`.
    """
    if config.release >= (0, 19, 7) or config.literal("amp.enabled") is not True:
        return
    if config.value(STAGE) >= 1:
        other, error = STAGE, 'AssertionError "Amp and ZeRO are not currently compatible"'
    elif config.enabled("fp16") is True or config.enabled("bf16") is True:
        other = "fp16.enabled" if config.enabled("fp16") is True else "bf16.enabled"
        error = 'NotImplementedError "Cannot enable both amp with (legacy) fp16 or bfloat16 mode"'
    else:
        return
    half = half_types(config)
    yield Finding(
        "amp.enabled",
        f"amp is not compatible with {'ZeRO' if other == STAGE else other.partition('.')[0]}: DeepSpeed raises {error} in deepspeed.initialize.",
        help=f"Remove amp, and enable {half}." if half and other == STAGE and model_dtype(config) == "fp32" else "Remove amp.",
        fix=without(config, "amp", Applicability.UNSAFE) if model_dtype(config) in ("fp16", "bf16") else None,
        related=((other, "set here"),),
    )
