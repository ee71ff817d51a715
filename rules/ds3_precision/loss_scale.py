"""DS3: the loss scale of fp16, dynamic and static."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Severity
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.precision import SETTLED_POWER

SCALER = "deepspeed/runtime/fp16/loss_scaler.py, DynamicLossScaler.update_scale"
DOCS = "https://www.deepspeed.ai/docs/config-json/#fp16-training-options"
SMALLEST = "6e-8"
"""The smallest number above 0 that fp16 holds."""

PATIENT = 10
"""Above it `hysteresis` wastes more steps than it can save."""

LEAST_SCALE, LARGEST_SCALE = 1, 2**24
"""Up to the first and beyond the second a static loss scale loses gradients."""

SHORT_WINDOW = 50
"""Below it the probing for a higher loss scale costs more than 2 steps in 100."""

LOW_POWER = 4
"""Below it the loss scale starts so low that small gradients are lost for thousands of steps."""


def is_dynamic(config: Config) -> bool:
    """Whether fp16 is on for certain, and its loss scale dynamic."""
    return config.enabled("fp16") is True and bool(config.value("fp16.loss_scale") == 0)


@rule("DS307", "hysteresis-below-1", effect=Effect.SILENT, references=(SCALER, DOCS), watches=("fp16.hysteresis",))
@bad(trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "hysteresis": 0}'), at="fp16.hysteresis")
@good(trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "hysteresis": 1}'))
@good(trained('"zero_optimization": {"stage": 0}, "fp16": {"enabled": true, "hysteresis": 0}'))
@good(trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "loss_scale": 128, "hysteresis": 0}'))
def hysteresis_below_1(config: Config) -> Iterator[Finding]:
    """With a hysteresis below 1 the loss scale never falls, and overflowing steps are skipped for ever.

    An overflow halves the loss scale when the countdown that starts at `hysteresis` stands at exactly 1, and otherwise lowers the countdown. From 0 it
    goes to -1, -2 and on: it never meets 1. The first loss scale that is too high for the gradients ends the training without an error, since every
    optimizer step from there on is skipped.

    Write 1 to halve at every overflow, or 2, the default.
    """
    key = "fp16.hysteresis"
    if is_dynamic(config) and config.value(key) < 1 and config.value("zero_optimization.stage") >= 1:
        yield Finding(
            key,
            f"hysteresis {config.quote(key)} never lets the loss scale fall: DeepSpeed halves it where a countdown from hysteresis meets 1, and skips every step until then.",
            help="Write 1 to halve it at every overflow, or 2, the default.",
            fix=write(config, key, "1"),
        )


@rule("DS308", "hysteresis-too-high", effect=Effect.SLOW, references=(SCALER, DOCS), watches=("fp16.hysteresis",))
@bad(trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "hysteresis": 1000}'), at="fp16.hysteresis")
@good(trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "hysteresis": 4}'))
@good(trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": false, "hysteresis": 1000}'))
def hysteresis_too_high(config: Config) -> Iterator[Finding]:
    """A high hysteresis wastes optimizer steps on a loss scale that is known to be too high.

    While the countdown from `hysteresis` runs, an overflow skips the optimizer step and leaves the loss scale where it is, so that the next step overflows
    as well. The countdown starts again whenever the scale was doubled, every `loss_scale_window` steps.

    Write 2, the default, or leave the key out.
    """
    key = "fp16.hysteresis"
    patience = config.value(key)
    if is_dynamic(config) and patience > PATIENT and config.value("zero_optimization.stage") >= 1:
        yield Finding(
            key,
            f"hysteresis {config.quote(key)} skips {patience - 1:,} optimizer steps before the first halving of a loss scale that is too high, and again after every doubling.",
            help="Write 2, the default, or leave the key out.",
            fix=write(config, key, "2"),
            severity=Severity.WARNING,
        )


@rule("DS309", "min-loss-scale-above-start", effect=Effect.SILENT, references=(SCALER, DOCS), watches=("fp16.min_loss_scale",))
@bad(
    trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "initial_scale_power": 16, "min_loss_scale": 1000000}'),
    at="fp16.min_loss_scale",
)
@bad(trained('"fp16": {"enabled": true, "initial_scale_power": 4, "min_loss_scale": 128}'), at="fp16.min_loss_scale")
@good(trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "initial_scale_power": 16, "min_loss_scale": 1}'))
@good(trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "loss_scale": 128, "min_loss_scale": 1000000}'))
def min_loss_scale_above_start(config: Config) -> Iterator[Finding]:
    """The least loss scale lies above the one that training starts with.

    After an overflow DeepSpeed takes half of the loss scale, but at least `min_loss_scale`: here the scale goes up where it had to go down. Under ZeRO the
    next overflow then ends the run with "Current loss scale already at minimum - cannot decrease scale anymore".

    Write 1, the default.
    """
    key = "fp16.min_loss_scale"
    least, power = config.value(key), config.value("fp16.initial_scale_power")
    if is_dynamic(config) and isinstance(power, int) and 0 <= power < 128 and least > 2**power:
        yield Finding(
            key,
            f"min_loss_scale {config.quote(key)} is above the loss scale that training starts with, 2**{power} = {2**power:,}: an overflow raises the scale to {least:,} where it has to halve it.",
            help="Write 1, the default.",
            fix=write(config, key, "1"),
            related=(("fp16.initial_scale_power", "the start is set here"),) if config.has("fp16.initial_scale_power") else (),
        )


@rule(
    "DS310",
    "static-loss-scale",
    effect=Effect.ADVICE,
    references=("deepspeed/runtime/fp16/loss_scaler.py, LossScaler", DOCS),
    watches=("fp16.loss_scale",),
)
@bad(trained('"fp16": {"enabled": true, "loss_scale": 1}'), at="fp16.loss_scale")
@bad(trained('"fp16": {"enabled": true, "loss_scale": 1e9}'), at="fp16.loss_scale")
@good(trained('"fp16": {"enabled": true, "loss_scale": 1024}'))
@good(trained('"fp16": {"enabled": true, "loss_scale": 0}'))
@good(trained('"fp16": {"enabled": false, "loss_scale": 1}'))
def static_loss_scale(config: Config) -> Iterator[Finding]:
    """A static loss scale so low or so high that fp16 gradients are lost.

    A `loss_scale` above 0 stays what it is. fp16 holds numbers from 6e-8 to 65504: with a scale of 1 or less every gradient below 6e-8 becomes 0; with a scale
    of millions ordinary gradients overflow, and every such step is skipped, with no scale that would come down.

    Write 0, and DeepSpeed finds and follows the scale.
    """
    key = "fp16.loss_scale"
    scale = config.value(key)
    if config.enabled("fp16") is not True:
        return
    if 0 < scale <= LEAST_SCALE:
        consequence = f"gradients below {SMALLEST}, the least that fp16 holds, become 0, and the scale never rises"
    elif scale > LARGEST_SCALE:
        consequence = f"a gradient above {65504 / scale:.2g} overflows, its step is skipped, and the scale never comes down"
    else:
        return
    yield Finding(
        key,
        f"loss_scale {config.quote(key)} is static: {consequence}.",
        help="Write 0, and DeepSpeed finds and follows the loss scale.",
        fix=write(config, key, "0"),
        severity=Severity.WARNING,
    )


@rule("DS311", "initial-scale-power-too-low", effect=Effect.SILENT, references=(SCALER, DOCS), watches=("fp16.initial_scale_power",))
@bad(trained('"fp16": {"enabled": true, "initial_scale_power": -5}'), at="fp16.initial_scale_power")
@good(trained('"fp16": {"enabled": true, "initial_scale_power": 8}'))
@good(trained('"fp16": {"enabled": true, "loss_scale": 128, "initial_scale_power": 0}'))
def initial_scale_power_too_low(config: Config) -> Iterator[Finding]:
    """The dynamic loss scale starts so low that small gradients are lost for thousands of steps.

    The key is an exponent: 0 starts at a loss scale of 1, -5 at 1/32. The scale doubles once in `loss_scale_window` steps; until it has come up, gradients
    below 6e-8 divided by the scale are 0 in fp16, and what depends on them does not learn.

    Write 16, the default; a start that is too high costs a few steps and no more.
    """
    key = "fp16.initial_scale_power"
    power, window = config.value(key), config.value("fp16.loss_scale_window")
    if is_dynamic(config) and power < LOW_POWER:
        start = f"2**{power} = {2.0**power:g}"
        climb = (
            f", and takes {(SETTLED_POWER - power) * window:,} steps to reach 2**{SETTLED_POWER}"
            if isinstance(window, int) and window > 0
            else ""
        )
        yield Finding(
            key,
            f"initial_scale_power {config.quote(key)} starts at a loss scale of {start}{climb}: until then small gradients become 0 in fp16.",
            help="Write 16, the default, or leave the key out.",
            fix=write(config, key, "16"),
            severity=Severity.WARNING,
        )


@rule("DS312", "loss-scale-window-too-short", effect=Effect.SLOW, references=(SCALER, DOCS), watches=("fp16.loss_scale_window",))
@bad(trained('"fp16": {"enabled": true, "loss_scale_window": 2}'), at="fp16.loss_scale_window")
@good(trained('"fp16": {"enabled": true, "loss_scale_window": 100}'))
@good(trained('"fp16": {"enabled": true, "loss_scale": 128, "loss_scale_window": 2}'))
def loss_scale_window_too_short(config: Config) -> Iterator[Finding]:
    """A short window doubles the loss scale so often that many steps overflow and are skipped.

    After `loss_scale_window` steps without an overflow DeepSpeed doubles the loss scale. Once it is as high as the gradients bear, every doubling overflows and
    costs at least one optimizer step; with `hysteresis` 2, under ZeRO, two.

    Write 1000, the default, or some hundreds.
    """
    key = "fp16.loss_scale_window"
    window = config.value(key)
    if is_dynamic(config) and 0 < window < SHORT_WINDOW:
        yield Finding(
            key,
            f"loss_scale_window {config.quote(key)} doubles the loss scale every {window:,} steps: as soon as it is as high as the gradients bear, at least one step in {window + 2:,} overflows and is skipped.",
            help="Write 1000, the default, or leave the key out.",
            fix=write(config, key, "1000"),
            severity=Severity.WARNING,
        )


DYNAMIC_ALONE = ("initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis", "min_loss_scale")


@rule(
    "DS313",
    "dynamic-settings-of-static-scale",
    effect=Effect.IGNORED,
    references=("deepspeed/runtime/fp16/loss_scaler.py, CreateLossScaler", DOCS),
    watches=("fp16.loss_scale",),
)
@bad(trained('"fp16": {"enabled": true, "loss_scale": 128, "initial_scale_power": 16}'), at="fp16.initial_scale_power")
@good(trained('"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 16}'))
@good(trained('"fp16": {"enabled": true, "loss_scale": 128}'))
def dynamic_settings_of_static_scale(config: Config) -> Iterator[Finding]:
    """Settings of the dynamic loss scale stand beside a static one, which does not read them.

    A `loss_scale` above 0 is used as it is. Start, window, hysteresis and least scale belong to the scale that DeepSpeed finds by itself, with `loss_scale` 0.

    Write `"loss_scale": 0` for dynamic scaling, or remove the others.
    """
    if config.enabled("fp16") is not True or not config.value("fp16.loss_scale") > 0:
        return
    written = [name for name in DYNAMIC_ALONE if config.has(f"fp16.{name}")]
    if written:
        yield Finding(
            f"fp16.{written[0]}",
            f"loss_scale {config.quote('fp16.loss_scale')} is static, and nothing reads {', '.join(written)}: {'it is' if len(written) == 1 else 'they are'} for the dynamic loss scale.",
            help='Write "loss_scale": 0 for dynamic scaling, or remove ' + ("it." if len(written) == 1 else "them."),
            fix=without(config, f"fp16.{written[0]}") if LEAST_SCALE < config.value("fp16.loss_scale") <= LARGEST_SCALE else None,
            related=(("fp16.loss_scale", "the static scale is set here"),),
        )


@rule(
    "DS314",
    "auto-cast-without-fp16",
    effect=Effect.SILENT,
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._forward_prologue",),
    watches=("fp16.auto_cast",),
)
@bad(trained('"fp16": {"enabled": false, "auto_cast": true}, "bf16": {"enabled": true}'), at="fp16.auto_cast")
@good(trained('"fp16": {"enabled": true, "auto_cast": true}'))
@good(trained('"fp16": {"enabled": false, "auto_cast": false}, "bf16": {"enabled": true}'))
def auto_cast_without_fp16(config: Config) -> Iterator[Finding]:
    """The model's inputs are cast to fp16, though fp16 is off.

    `fp16.auto_cast` acts whether or not the section is enabled: every floating-point input of the model becomes fp16. A model in bf16 or fp32 then raises
    `RuntimeError: mat1 and mat2 must have the same dtype` at the first layer, or loses range where it casts back. Token ids are integers and stay as they are.

    Remove `auto_cast`, or enable fp16.
    """
    if config.value("fp16.auto_cast") is True and config.enabled("fp16") is False:
        yield Finding(
            "fp16.auto_cast",
            "auto_cast acts although fp16 is off: DeepSpeed casts every floating-point input of the model to fp16, and a layer in another type raises RuntimeError at the first step.",
            help='Remove "auto_cast", or write "enabled": true.',
            fix=without(config, "fp16.auto_cast", Applicability.UNSAFE),
            severity=Severity.WARNING,
        )
