"""DS3: where the dynamic loss scale of fp16 starts: too high, too low, below its minimum."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config, Origin
from dslint.diagnostics import Effect, Phase
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.precision import DEFAULT_SCALE_POWER, DYNAMIC_SCALER, FP16_DOCS, has_dynamic_loss_scale
from dslint.rules.helpers.zero import STAGE

POWER = "fp16.initial_scale_power"

HIGH_POWER = 24
"""Above this power the initial loss scale wastes too many steps to be meant."""

LOW_POWER = 4
"""Below this power the initial loss scale loses small gradients for thousands of steps."""

BEYOND_UNDER_ZERO, BEYOND_ALONE = 64, 1024
"""The powers from which torch cannot multiply the loss with the loss scale: under ZeRO it is an integer, without ZeRO a float."""

LONGEST_POWER = 14_284
"""Above this power the loss scale has more digits than Python prints, and stage 3 prints it."""


def beyond(config: Config) -> int:
    """The power from which the loss scale is too large to use. Where the stage is unknown, the larger one. Before 0.18.3 it is an integer
    without ZeRO, too (0.18.1 raises for 70, 0.18.3 does not).
    """
    return BEYOND_UNDER_ZERO if config.value(STAGE) >= 1 or config.release < (0, 18, 3) else BEYOND_ALONE


@rule("DS302", effect=Effect.SLOW, references=(DYNAMIC_SCALER, FP16_DOCS), watches=(POWER, "fp16"))
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "initial_scale_power": 32}}',
    at=POWER,
    message="initial_scale_power 32 starts at a loss scale of 2**32 = 4,294,967,296 and wastes about 17 optimizer steps: each one overflows and is skipped, until the scale is down to 2**16.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "initial_scale_power": 16}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
    at=POWER,
    deepspeed="0.17.0",
    message="Without a setting of the loss scale, DeepSpeed 0.17.0 starts at a loss scale of 2**32 = 4,294,967,296 and wastes about 17 optimizer steps: each one overflows and is skipped, until the scale is down to 2**16.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "initial_scale_power": 16}, "zero_optimization": {"stage": 2}}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "initial_scale_power": 16}}')
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "zero_optimization": {"stage": 2}}', deepspeed="0.17.1")
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false, "initial_scale_power": 32}}')
@good(
    '{"train_micro_batch_size_per_gpu": "auto", "fp16": {"enabled": "auto", "initial_scale_power": 32}, "zero_optimization": {"stage": 1}}',
    integration="transformers",
)
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale": 128, "initial_scale_power": 32}}')
def initial_scale_power_too_high(config: Config) -> Iterator[Finding]:
    """The dynamic loss scale starts so high that the first steps all overflow.

    fp16 holds numbers up to 65504. While loss scale times gradient is larger, DeepSpeed skips the optimizer step and halves the scale, once
    per step; with `hysteresis` 2, the first overflow skips a step without halving it. The parameters do not change, the data of those steps
    is wasted, and the learning rate schedule loses them. 32 was the default until DeepSpeed 0.8.0, and many guides still show it. Up to 0.17.0, ZeRO still starts at
    2**32 if `fp16` has no setting of the dynamic loss scale at all, although the default of the key is 16.

    The finding is a warning if the key is written, and otherwise reported only with `--pedantic`: few steps are lost. Where only the run decides whether fp16 is on, such as with `"enabled": "auto"`, there is none.

    Write 16, the current default, or remove the key. With a static `loss_scale` DeepSpeed does not read the key.
    """
    power = config.value(POWER)
    if config.enabled("fp16") is not True or runs_without_optimizer(config) or not HIGH_POWER < power < beyond(config):
        return
    if not config.has(POWER) and config.resolved(POWER).origin is not Origin.DERIVED:
        return
    static = config.value("fp16.loss_scale")
    if static is UNKNOWN or static > 0:
        return
    hysteresis = config.value("fp16.hysteresis")
    steps = skipped_steps(power, hysteresis if isinstance(hysteresis, int) else 2)
    scale = f"2**{power}" + (f" = {2**power:,}" if power <= 64 else "")
    name = (
        f"initial_scale_power {config.quote(POWER)}"
        if config.has(POWER)
        else f"Without a setting of the loss scale, DeepSpeed {config.release}"
    )
    yield Finding(
        POWER,
        f"{name} starts at a loss scale of {scale} and wastes about {steps} optimizer steps: "
        f"each one overflows and is skipped, until the scale is down to 2**{DEFAULT_SCALE_POWER}.",
        help="Write 16, the default, or remove the key." if config.has(POWER) else 'Write "initial_scale_power": 16.',
        fix=write(config, POWER, "16"),
        costly=config.has(POWER),
        pedantic=not config.has(POWER),
    )


def skipped_steps(power: int, hysteresis: int) -> int:
    """Optimizer steps that a dynamic loss scale skips on its way from 2**power to 2**16.

    Each overflow halves the scale and skips the step; the first `hysteresis - 1` overflows skip the step without halving it
    (`DynamicLossScaler.update_scale` in deepspeed/runtime/fp16/loss_scaler.py).
    """
    return max(power - DEFAULT_SCALE_POWER, 0) + max(hysteresis - 1, 0)


@rule(
    "DS306",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    references=("deepspeed/runtime/fp16/loss_scaler.py, DynamicLossScaler",),
    watches=(POWER,),
)
@bad(
    trained('"zero_optimization": {"stage": 1}, "fp16": {"enabled": true, "initial_scale_power": 64}'),
    at=POWER,
    message="initial_scale_power 64 is a loss scale of 2**64, a number too large to multiply the loss with: DeepSpeed raises OverflowError in the first backward pass.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 1}, "fp16": {"enabled": true, "initial_scale_power": 16}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3}, "fp16": {"enabled": true, "initial_scale_power": 20000}'),
    at=POWER,
    message='initial_scale_power 20000 is a loss scale of 2**20000, a number too large to multiply the loss with: DeepSpeed raises ValueError "Exceeds the limit (4300 digits)" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3}, "fp16": {"enabled": true, "initial_scale_power": 16}}',
)
@bad(
    trained('"fp16": {"enabled": true, "initial_scale_power": 1024}'),
    at=POWER,
    message="initial_scale_power 1024 is a loss scale of 2**1024, a number too large to multiply the loss with: DeepSpeed raises OverflowError in the first backward pass.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "fp16": {"enabled": true, "initial_scale_power": 16}}',
)
@good(trained('"fp16": {"enabled": true, "initial_scale_power": 1000}'))
@good(trained('"zero_optimization": {"stage": 1}, "fp16": {"enabled": true, "initial_scale_power": 16}'))
def loss_scale_beyond_float(config: Config) -> Iterator[Finding]:
    """The dynamic loss scale starts at a number that torch cannot multiply the loss with.

    DeepSpeed computes 2 to the power of `initial_scale_power` in `deepspeed.initialize`, as an integer of any size, and the first backward
    pass multiplies the loss by it. Under ZeRO, torch takes integers below 2**64; without ZeRO, numbers below 2**1024. Above that it raises an
    `OverflowError`. Stage 3 also prints the number, and raises a `ValueError` in `deepspeed.initialize` if it has more than 4,300 digits.

    Write 16, the default.
    """
    power = config.value(POWER)
    if not has_dynamic_loss_scale(config) or not power >= beyond(config):
        return
    printed = config.value(STAGE) == 3 and power > LONGEST_POWER
    error = (
        'ValueError "Exceeds the limit (4300 digits)" in deepspeed.initialize' if printed else "OverflowError in the first backward pass"
    )
    yield Finding(
        POWER,
        f"initial_scale_power {config.quote(POWER)} is a loss scale of 2**{power}, a number too large to multiply the loss with: DeepSpeed raises {error}.",
        help="Write 16, the default.",
        fix=write(config, POWER, "16"),
        phase=Phase.INITIALIZE if printed else None,
    )


@rule(
    "DS309",
    effect=Effect.SILENT,
    references=(DYNAMIC_SCALER, FP16_DOCS),
    watches=("fp16.min_loss_scale",),
)
@bad(
    trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "initial_scale_power": 16, "min_loss_scale": 1000000}'),
    at="fp16.min_loss_scale",
    message="min_loss_scale 1000000 is above the initial loss scale, 2**16 = 65,536: an overflow raises the scale to 1,000,000 instead of halving it.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "initial_scale_power": 16, "min_loss_scale": 1}}',
)
@bad(
    trained('"fp16": {"enabled": true, "initial_scale_power": 4, "min_loss_scale": 128}'),
    at="fp16.min_loss_scale",
    message="min_loss_scale 128 is above the initial loss scale, 2**4 = 16: an overflow raises the scale to 128 instead of halving it.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "fp16": {"enabled": true, "initial_scale_power": 4, "min_loss_scale": 1}}',
)
@good(trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "initial_scale_power": 16, "min_loss_scale": 1}'))
@good(trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "loss_scale": 128, "min_loss_scale": 1000000}'))
def min_loss_scale_above_start(config: Config) -> Iterator[Finding]:
    """The minimum loss scale is above the initial loss scale.

    After an overflow DeepSpeed halves the loss scale, but not below `min_loss_scale`: here the scale rises where it has to fall. Under ZeRO
    the next overflow then ends the run with "Current loss scale already at minimum - cannot decrease scale anymore".

    Write 1, the default.
    """
    key = "fp16.min_loss_scale"
    minimum, power = config.value(key), config.value(POWER)
    if has_dynamic_loss_scale(config) and isinstance(power, int) and 0 <= power < beyond(config) and minimum > 2**power:
        yield Finding(
            key,
            f"min_loss_scale {config.quote(key)} is above the initial loss scale, 2**{power} = {2**power:,}: an overflow raises the scale to {minimum:,} instead of halving it.",
            help="Write 1, the default.",
            fix=write(config, key, "1"),
            related=((POWER, "the initial loss scale is set here"),) if config.has(POWER) else (),
        )


@rule("DS311", effect=Effect.SILENT, references=(DYNAMIC_SCALER, FP16_DOCS), watches=(POWER,))
@bad(
    trained('"fp16": {"enabled": true, "initial_scale_power": -5}'),
    at=POWER,
    message="initial_scale_power -5 starts at a loss scale of 2**-5 = 0.03125, and takes 21,000 steps to reach 2**16: until then small gradients may become 0 in fp16.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "fp16": {"enabled": true, "initial_scale_power": 16}}',
)
@good(trained('"fp16": {"enabled": true, "initial_scale_power": 8}'))
@good(trained('"fp16": {"enabled": true, "loss_scale": 128, "initial_scale_power": 0}'))
def initial_scale_power_too_low(config: Config) -> Iterator[Finding]:
    """The dynamic loss scale starts so low that small gradients are lost for thousands of steps.

    The key is an exponent: 0 means an initial loss scale of 1, -5 means 1/32. The scale doubles once per `loss_scale_window` steps. Until it
    is high enough, gradients below 6e-8 divided by the scale are 0 in fp16, and the parameters that depend on them do not learn.

    Write 16, the default. A start that is too high costs only a few steps.
    """
    power, window = config.value(POWER), config.value("fp16.loss_scale_window")
    if has_dynamic_loss_scale(config) and power < LOW_POWER:
        steps = (DEFAULT_SCALE_POWER - power) * window if isinstance(window, int) and window > 0 else None
        climb = f", and takes {steps:,} steps to reach 2**{DEFAULT_SCALE_POWER}" if steps is not None else ""
        yield Finding(
            POWER,
            f"initial_scale_power {config.quote(POWER)} starts at a loss scale of 2**{power} = {2.0**power:g}{climb}: until then small gradients may become 0 in fp16.",
            help="Write 16, the default, or remove the key.",
            fix=write(config, POWER, "16"),
            certain=False,
        )
