"""DS3: fp16, bf16 and the loss scale."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, Severity
from dslint.rule import Finding, bad, good, rule

SETTLED_POWER = 16
"""Where the loss scale of an fp16 run starts by default. fp16 holds no power of two above 2**15, so that 2**16 overflows at most once."""

HIGH_POWER = 24
"""Above it the start costs so many steps that nobody means it."""


@rule(
    "DS301",
    "fp16-with-bf16",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("deepspeed/runtime/config.py, DeepSpeedConfig._initialize_params",),
)
@bad('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "bf16": {"enabled": true}}', at="bf16.enabled")
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false}, "bf16": {"enabled": true}}')
@good('{"train_batch_size": "auto", "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}', integration="transformers")
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
    if config.enabled("fp16") is False or not power > HIGH_POWER or not config.has("fp16.initial_scale_power"):
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
        severity=Severity.WARNING,
    )
