"""DS3: fp16, bf16 and the loss scale."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase, Severity
from dslint.rule import Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.fixes import switched, without, write
from dslint.rules.helpers.precision import SETTLED_POWER

SOURCE = "deepspeed/runtime/config.py, DeepSpeedConfig._do_error_check"


HIGH_POWER = 24
"""Above it the start costs so many steps that nobody means it."""


@rule(
    "DS301",
    "fp16-with-bf16",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("deepspeed/runtime/config.py, DeepSpeedConfig._initialize_params",),
    watches=("fp16.enabled",),
)
@bad('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "bf16": {"enabled": true}}', at="bf16.enabled")
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false}, "bf16": {"enabled": true}}')
@good(
    '{"train_batch_size": "auto", "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}',
    integration="transformers",
)
def fp16_with_bf16(config: Config) -> Iterator[Finding]:
    """fp16 and bf16 are both enabled.

    DeepSpeed raises `AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled` while it parses the config.

    Keep one: bf16 on hardware that has it (Ampere and newer), since it needs no loss scale; fp16 elsewhere. Both may stand in the file
    with one of them disabled, or both as "auto" under the Hugging Face Trainer.
    """
    section = "bf16" if config.has("bf16") else "bfloat16"
    if config.enabled("fp16") is True and config.enabled(section) is True:
        yield Finding(
            f"{section}.enabled",
            f'fp16 and {section} are both enabled; DeepSpeed raises "bfloat16 and fp16 modes cannot be simultaneously enabled".',
            help="Disable one of them: bf16 is the one to keep on Ampere and newer GPUs, since it needs no loss scale.",
            fix=switched(config, off="fp16" if config.facts.gpu is None or config.facts.gpu.has_bf16 else section),
            related=(("fp16.enabled", "fp16 is enabled here"),),
        )


def skipped_steps(power: int, hysteresis: int) -> int:
    """Optimizer steps that a dynamic loss scale wastes on its way from 2**power to 2**16.

    Each overflow halves the scale and skips the step; the first `hysteresis - 1` overflows skip the step without halving it
    (`DynamicLossScaler.update_scale` in deepspeed/runtime/fp16/loss_scaler.py).
    """
    return max(power - SETTLED_POWER, 0) + max(hysteresis - 1, 0)


@rule(
    "DS302",
    "initial-scale-power-too-high",
    effect=Effect.SLOW,
    references=(
        "deepspeed/runtime/fp16/loss_scaler.py, DynamicLossScaler.update_scale",
        "https://www.deepspeed.ai/docs/config-json/#fp16-training-options",
    ),
    watches=("fp16.initial_scale_power",),
)
@bad('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "initial_scale_power": 32}}', at="fp16.initial_scale_power")
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "initial_scale_power": 16}}')
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false, "initial_scale_power": 32}}')
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale": 128, "initial_scale_power": 32}}')
def initial_scale_power_too_high(config: Config) -> Iterator[Finding]:
    """The dynamic loss scale starts so high that the first steps all overflow.

    fp16 holds numbers up to 65504. While loss scale times gradient does not fit, DeepSpeed skips the optimizer step and halves the scale,
    one step at a time; with `hysteresis` 2, the first overflow skips a step without halving it. The parameters do not move, the data
    of those steps is spent, and the learning rate schedule loses them. 32 was the default until DeepSpeed 0.8.0, and many guides still print it.

    Write 16, the default since then, or leave the key out. With a static `loss_scale` the key is not read.
    """
    power = config.value("fp16.initial_scale_power")
    if config.enabled("fp16") is False or not HIGH_POWER < power < 128 or not config.has("fp16.initial_scale_power"):
        return
    if config.value("fp16.loss_scale") > 0:
        return
    hysteresis = config.value("fp16.hysteresis")
    steps = skipped_steps(power, hysteresis if isinstance(hysteresis, int) else 2)
    when = "" if config.enabled("fp16") is True else ", once fp16 is on,"
    scale = f"2**{power}" + (f" = {2**power:,}" if power <= 64 else "")
    yield Finding(
        "fp16.initial_scale_power",
        f"initial_scale_power {config.quote('fp16.initial_scale_power')} starts at a loss scale of {scale}{when} and wastes about {steps} optimizer steps: "
        f"each one overflows and is skipped until the scale is down to 2**{SETTLED_POWER}.",
        help="Write 16, the default, or leave the key out.",
        fix=write(config, "fp16.initial_scale_power", "16"),
        severity=Severity.WARNING,
    )


@rule(
    "DS303",
    "master-weights-without-zero",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=(SOURCE,),
    watches=(
        "fp16.fp16_master_weights_and_grads",
        "bf16.bf16_master_weights_and_grads",
        "bfloat16.bf16_master_weights_and_grads",
        "bf16.bf16_optimizer_states",
        "bfloat16.bf16_optimizer_states",
    ),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}}',
    at="bf16.bf16_master_weights_and_grads",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "fp16_master_weights_and_grads": true}}',
    at="fp16.fp16_master_weights_and_grads",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true, "bf16_optimizer_states": true}, "zero_optimization": {"stage": 2}}',
    at="bf16.bf16_optimizer_states",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true}}'
)
def master_weights_without_zero(config: Config) -> Iterator[Finding]:
    """Half-precision master weights or optimizer states, without what they need.

    `fp16_master_weights_and_grads`, `bf16_master_weights_and_grads` and `bf16_optimizer_states` are implemented in the ZeRO optimizers of
    stages 1 to 3, and the last needs the one before it. DeepSpeed asserts both while it parses the config, whether or not the
    section is enabled.

    Set a ZeRO stage, and `bf16_master_weights_and_grads` beside `bf16_optimizer_states`.
    """
    stage = config.value("zero_optimization.stage")
    halves = ["fp16.fp16_master_weights_and_grads"]
    bf16 = "bf16" if config.has("bf16") and config.quote("bf16") != "null" else "bfloat16"
    halves += [f"{bf16}.bf16_master_weights_and_grads", f"{bf16}.bf16_optimizer_states"]
    only_stage_2 = config.release < (0, 18, 3)
    for key in halves:
        if config.value(key) is True and (stage == 0 or (only_stage_2 and stage in (1, 3))):
            stages, help_ = ("stage 2 alone", 2) if only_stage_2 else ("stages 1 to 3", 1)
            yield Finding(
                key,
                f"{key.partition('.')[2]} works with ZeRO {stages}, and the stage is {stage}: DeepSpeed raises an AssertionError while parsing.",
                help=f'Set "zero_optimization": {{"stage": {help_}}}{"" if only_stage_2 else " or higher"}, or remove it.',
                fix=without(config, key, _unless_enabled(config, key)),
                related=(("zero_optimization.stage", "the stage is set here"),) if config.has("zero_optimization.stage") else (),
            )
            return
    if config.value(halves[2]) is True and config.value(halves[1]) is False:
        yield Finding(
            halves[2],
            'bf16_optimizer_states without bf16_master_weights_and_grads: DeepSpeed raises AssertionError "bf16_optimizer_states requires bf16_master_weights_and_grads to be enabled".',
            help='Add "bf16_master_weights_and_grads": true, or remove it.',
            fix=write(config, halves[1], "true") if config.enabled(bf16) is True else without(config, halves[2]),
        )


def _unless_enabled(config: Config, key: str) -> Applicability:
    """How safe it is to take a setting out of a section: it changes nothing where the section is off."""
    return Applicability.SAFE if config.enabled(key.partition(".")[0]) is False else Applicability.UNSAFE


@rule(
    "DS304",
    "dynamic-loss-scale-bounds",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("deepspeed/runtime/precision_config.py, DeepSpeedFP16Config",),
    watches=("fp16.loss_scale_window", "fp16.min_loss_scale"),
)
@bad('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale_window": 0}}', at="fp16.loss_scale_window")
@bad('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale": 0, "min_loss_scale": 0}}', at="fp16.min_loss_scale")
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale_window": 0}}',
    at="fp16.loss_scale_window",
    deepspeed="0.18.9",
)
@bad('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "min_loss_scale": 0}}', at="fp16.min_loss_scale", deepspeed="0.18.9")
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale_window": 500, "min_loss_scale": 1}}')
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale": 128, "min_loss_scale": 0}}')
def dynamic_loss_scale_bounds(config: Config) -> Iterator[Finding]:
    """The window or the least value of a dynamic loss scale is not above 0.

    Where fp16 is enabled and its loss scale dynamic (`loss_scale` 0), DeepSpeed 0.19.3 and newer check both while they parse the config. Older releases
    divide by the window at the first step, and with a least scale of 0 let the loss scale fall until every gradient is 0. With a static `loss_scale`
    neither is read.

    Write 1000 for the window and 1 for the least scale, the defaults, or leave them out.
    """
    if config.enabled("fp16") is not True or not config.value("fp16.loss_scale") == 0:  # noqa: SIM201 - UNKNOWN is neither equal nor unequal
        return
    for key, default in (("loss_scale_window", 1000), ("min_loss_scale", 1)):
        value = config.value(f"fp16.{key}")
        if not value <= 0:
            continue
        if config.release >= (0, 19, 3):
            effect, phase = Effect.CRASH, Phase.PARSE
            consequence = f'DeepSpeed raises ValidationError "fp16.{key} must be > 0 when dynamic loss scaling is enabled"'
        elif key == "min_loss_scale":
            effect, phase = Effect.SILENT, None
            consequence = "after a row of overflows the loss scale falls towards 0, and the gradients with it, where DeepSpeed would have ended the run"
        elif value == 0:
            effect, phase = Effect.CRASH, Phase.STEP
            consequence = f"DeepSpeed {config.release} divides by it, and raises ZeroDivisionError at the first step"
        else:
            continue
        yield Finding(
            f"fp16.{key}",
            f"fp16.{key} is {config.quote(f'fp16.{key}')}: {consequence}.",
            help=f"Write {default}, the default.",
            fix=write(config, f"fp16.{key}", str(default)),
            on="value",
            effect=effect,
            phase=phase,
        )


@rule(
    "DS305", "precision-not-enabled", effect=Effect.SILENT, references=("deepspeed/runtime/precision_config.py",), watches=("fp16", "bf16")
)
@bad('{"train_micro_batch_size_per_gpu": 4, "fp16": {"loss_scale": 0, "initial_scale_power": 16}}', at="fp16")
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false, "loss_scale": 0}}')
@good('{"train_micro_batch_size_per_gpu": 4}')
def precision_not_enabled(config: Config) -> Iterator[Finding]:
    """fp16 or bf16 has settings but no `enabled`, which is false: the model trains in the precision it was built in.

    A section that is present is not a section that is on. Most often the model is then in fp32, at twice the memory and a fraction of the speed.

    Add `"enabled": true`, or false to say that it is meant to be off.
    """
    for section in ("fp16", "bf16"):
        members = getattr(config.node(section), "members", None)
        if members is None or config.has(f"{section}.enabled"):
            continue
        if config.enabled(section) is not False or any(v.section == section and (v.raises or v.meant) for v in config.violations):
            continue
        other = "bf16" if section == "fp16" else "fp16"
        if config.enabled(other) is True:
            continue
        yield Finding(
            section,
            f'{section} has no "enabled", which makes it false: the model trains in the precision it was built in, most often fp32.',
            help='Add "enabled": true, or false if it is meant to be off.',
            fix=_enabled(config, section, other) if members else None,
            on="key",
            effect=None if members else Effect.ADVICE,
        )


def _enabled(config: Config, section: str, other: str) -> FixPlan | None:
    """Enable fp16 or bf16; nothing where the other one stands there in the same way, or the GPU has not the type."""
    gpu = config.facts.gpu
    lacks = gpu is not None and not (gpu.has_bf16 if section == "bf16" else gpu.capability is None or gpu.capability >= (7, 0))
    return None if lacks or (config.has(other) and not config.has(f"{other}.enabled")) else switched(config, on=section)


@rule(
    "DS306",
    "loss-scale-beyond-float",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    references=("deepspeed/runtime/fp16/loss_scaler.py",),
    watches=("fp16.initial_scale_power",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 1}, "fp16": {"enabled": true, "initial_scale_power": 128}}',
    at="fp16.initial_scale_power",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 1}, "fp16": {"enabled": true, "initial_scale_power": 16}}'
)
def loss_scale_beyond_float(config: Config) -> Iterator[Finding]:
    """The dynamic loss scale starts beyond what fp32 can hold.

    The loss is multiplied by 2 to the power of `initial_scale_power`; from 128 on that is more than the largest fp32 number, and the first
    backward pass raises an `OverflowError`.

    Write 16, the default.
    """
    key = "fp16.initial_scale_power"
    if config.enabled("fp16") is True and config.value("fp16.loss_scale") == 0 and config.value(key) >= 128:
        yield Finding(
            key,
            f"initial_scale_power {config.quote(key)} is a loss scale of 2**{config.value(key)}, more than fp32 can hold: the first backward pass raises OverflowError.",
            help="Write 16, the default.",
            fix=write(config, key, "16"),
        )
