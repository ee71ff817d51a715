"""DS3: the loss scale of fp16 during training: when the dynamic one rises and falls, and the static one."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.precision import DYNAMIC_SCALER, FP16_DOCS, has_dynamic_loss_scale
from dslint.rules.helpers.zero import STAGE

SMALLEST_FP16 = "6e-8"
"""The smallest positive number that fp16 holds."""

HIGH_HYSTERESIS = 10
"""Above this value `hysteresis` wastes more steps than it can save."""

LOW_SCALE, HIGH_SCALE = 1, 2**24
"""A static loss scale up to the first, or above the second, loses gradients."""

SHORT_WINDOW = 50
"""Below this window, trying a higher loss scale costs more than 2 steps in 100."""


@rule(
    "DS304",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("deepspeed/runtime/precision_config.py, DeepSpeedFP16Config",),
    watches=("fp16.loss_scale_window", "fp16.min_loss_scale"),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale_window": 0}}',
    at="fp16.loss_scale_window",
    message='fp16.loss_scale_window is 0: DeepSpeed raises ValidationError "fp16.loss_scale_window must be > 0 when dynamic loss scaling is enabled".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale_window": 1000}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale": 0, "min_loss_scale": 0}}',
    at="fp16.min_loss_scale",
    message='fp16.min_loss_scale is 0: DeepSpeed raises ValidationError "fp16.min_loss_scale must be > 0 when dynamic loss scaling is enabled".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale": 0, "min_loss_scale": 1}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale_window": 0}}',
    at="fp16.loss_scale_window",
    deepspeed="0.18.9",
    message="fp16.loss_scale_window is 0: DeepSpeed 0.18.9 divides by it and raises ZeroDivisionError at the first step.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale_window": 1000}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "min_loss_scale": 0}}',
    at="fp16.min_loss_scale",
    deepspeed="0.18.9",
    message="fp16.min_loss_scale is 0: after repeated overflows the loss scale and the gradients fall towards 0, and DeepSpeed does not end the run.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "min_loss_scale": 1}}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale_window": 500, "min_loss_scale": 1}}')
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale": 128, "min_loss_scale": 0}}')
def dynamic_loss_scale_bounds(config: Config) -> Iterator[Finding]:
    """The window or the minimum of a dynamic loss scale is not above 0.

    If fp16 is enabled with a dynamic loss scale (`loss_scale` 0), DeepSpeed 0.19.3 and newer check both while they parse the config. Older
    releases divide by the window at the first step; with a minimum of 0 they let the loss scale fall until every gradient is 0. With a
    static `loss_scale` DeepSpeed reads neither.

    Write the defaults, 1000 for the window and 1 for the minimum, or remove the keys.
    """
    if not has_dynamic_loss_scale(config):
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
            consequence = "after repeated overflows the loss scale and the gradients fall towards 0, and DeepSpeed does not end the run"
        elif value == 0:
            effect, phase = Effect.CRASH, Phase.STEP
            consequence = f"DeepSpeed {config.release} divides by it and raises ZeroDivisionError at the first step"
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


@rule("DS307", effect=Effect.SILENT, references=(DYNAMIC_SCALER, FP16_DOCS), watches=("fp16.hysteresis",))
@bad(
    trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "hysteresis": 0}'),
    at="fp16.hysteresis",
    message="With hysteresis 0 the loss scale never falls: DeepSpeed halves it when a countdown from hysteresis is exactly 1, and skips every step that overflows.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "hysteresis": 1}}',
)
@good(trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "hysteresis": 1}'))
@good(trained('"zero_optimization": {"stage": 0}, "fp16": {"enabled": true, "hysteresis": 0}'))
@good(trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "loss_scale": 128, "hysteresis": 0}'))
def hysteresis_below_1(config: Config) -> Iterator[Finding]:
    """With a hysteresis below 1 the loss scale never falls, and DeepSpeed skips every step that overflows.

    A countdown starts at `hysteresis`. An overflow halves the loss scale if the countdown is exactly 1, and otherwise decrements it. From 0
    it goes to -1 and -2, and never reaches 1. Once the loss scale is too high for the gradients, DeepSpeed skips every further optimizer
    step: the model silently stops learning.

    Write 1 to halve the scale at every overflow, or 2, the default.
    """
    key = "fp16.hysteresis"
    if has_dynamic_loss_scale(config) and config.value(key) < 1 and config.value(STAGE) >= 1:
        yield Finding(
            key,
            f"With hysteresis {config.quote(key)} the loss scale never falls: DeepSpeed halves it when a countdown from hysteresis is exactly 1, and skips every step that overflows.",
            help="Write 1 to halve it at every overflow, or 2, the default.",
            fix=write(config, key, "1"),
        )


@rule("DS308", effect=Effect.SLOW, references=(DYNAMIC_SCALER, FP16_DOCS), watches=("fp16.hysteresis",))
@bad(
    trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "hysteresis": 1000}'),
    at="fp16.hysteresis",
    message="hysteresis 1000 skips 999 optimizer steps before DeepSpeed first halves a loss scale that is too high, and again after every doubling.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "hysteresis": 2}}',
)
@good(trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "hysteresis": 4}'))
@good(trained('"zero_optimization": {"stage": 2}, "fp16": {"enabled": false, "hysteresis": 1000}'))
def hysteresis_too_high(config: Config) -> Iterator[Finding]:
    """A high hysteresis wastes optimizer steps on a loss scale that is known to be too high.

    Until the countdown from `hysteresis` ends, an overflow skips the optimizer step but does not change the loss scale, so the next step
    overflows as well. The countdown starts again each time the scale doubles, every `loss_scale_window` steps.

    Write 2, the default, or remove the key.
    """
    key = "fp16.hysteresis"
    hysteresis = config.value(key)
    if has_dynamic_loss_scale(config) and hysteresis > HIGH_HYSTERESIS and config.value(STAGE) >= 1:
        yield Finding(
            key,
            f"hysteresis {config.quote(key)} skips {hysteresis - 1:,} optimizer steps before DeepSpeed first halves a loss scale that is too high, and again after every doubling.",
            help="Write 2, the default, or remove the key.",
            fix=write(config, key, "2"),
            costly=True,
        )


@rule(
    "DS310",
    effect=Effect.ADVICE,
    references=("deepspeed/runtime/fp16/loss_scaler.py, LossScaler", FP16_DOCS),
    watches=("fp16.loss_scale",),
)
@bad(
    trained('"fp16": {"enabled": true, "loss_scale": 1}'),
    at="fp16.loss_scale",
    message="loss_scale 1 is static: gradients below 6e-8, the smallest number that fp16 holds, become 0, and the scale never rises.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "fp16": {"enabled": true, "loss_scale": 0}}',
)
@bad(
    trained('"fp16": {"enabled": true, "loss_scale": 1e9}'),
    at="fp16.loss_scale",
    message="loss_scale 1e9 is static: a gradient above 6.6e-05 overflows, DeepSpeed skips its step, and the scale never falls.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "fp16": {"enabled": true, "loss_scale": 0}}',
)
@good(trained('"fp16": {"enabled": true, "loss_scale": 1024}'))
@good(trained('"fp16": {"enabled": true, "loss_scale": 0}'))
@good(trained('"fp16": {"enabled": false, "loss_scale": 1}'))
@good(
    '{"train_micro_batch_size_per_gpu": "auto", "fp16": {"enabled": true, "loss_scale": 1}, "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    program="from transformers import Trainer, TrainingArguments\nargs = TrainingArguments(output_dir='o', deepspeed='ds_config.json', fp16=True)\n"
    "print(Trainer(model=model, args=args).evaluate())\n",
    integration="transformers",
)
def static_loss_scale(config: Config) -> Iterator[Finding]:
    """A static loss scale is so low or so high that fp16 gradients are lost.

    DeepSpeed never changes a `loss_scale` above 0. fp16 holds numbers from 6e-8 to 65504: with a scale of 1 or less, every gradient below
    6e-8 becomes 0; with a scale of millions, ordinary gradients overflow, and DeepSpeed skips every such step.

    Write 0, and DeepSpeed adjusts the scale during training.
    """
    key = "fp16.loss_scale"
    scale = config.value(key)
    if config.enabled("fp16") is not True or runs_without_optimizer(config):
        return
    if 0 < scale <= LOW_SCALE:
        consequence = f"gradients below {SMALLEST_FP16}, the smallest number that fp16 holds, become 0, and the scale never rises"
    elif scale > HIGH_SCALE:
        consequence = f"a gradient above {65504 / scale:.2g} overflows, DeepSpeed skips its step, and the scale never falls"
    else:
        return
    yield Finding(
        key,
        f"loss_scale {config.quote(key)} is static: {consequence}.",
        help="Write 0, and DeepSpeed adjusts the loss scale during training.",
        fix=write(config, key, "0"),
        costly=True,
    )


@rule(
    "DS312",
    effect=Effect.SLOW,
    references=(DYNAMIC_SCALER, FP16_DOCS),
    watches=("fp16.loss_scale_window",),
)
@bad(
    trained('"fp16": {"enabled": true, "loss_scale_window": 2}'),
    at="fp16.loss_scale_window",
    message="loss_scale_window 2 doubles the loss scale every 2 steps: once the scale is at the limit for the gradients, at least one step in 4 overflows and is skipped.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "fp16": {"enabled": true, "loss_scale_window": 1000}}',
)
@good(trained('"fp16": {"enabled": true, "loss_scale_window": 100}'))
@good(trained('"fp16": {"enabled": true, "loss_scale": 128, "loss_scale_window": 2}'))
def loss_scale_window_too_short(config: Config) -> Iterator[Finding]:
    """A short window doubles the loss scale so often that DeepSpeed skips many steps.

    After `loss_scale_window` steps without an overflow DeepSpeed doubles the loss scale. Once the scale is at the limit for the gradients,
    every doubling overflows and costs at least one optimizer step; with `hysteresis` 2, under ZeRO, it costs two.

    Write 1000, the default, or a few hundred.
    """
    key = "fp16.loss_scale_window"
    window = config.value(key)
    if has_dynamic_loss_scale(config) and 0 < window < SHORT_WINDOW:
        yield Finding(
            key,
            f"loss_scale_window {config.quote(key)} doubles the loss scale every {window:,} steps: once the scale is at the limit for the gradients, at least one step in {window + 2:,} overflows and is skipped.",
            help="Write 1000, the default, or remove the key.",
            fix=write(config, key, "1000"),
            costly=True,
        )


DYNAMIC_SETTINGS = ("initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis", "min_loss_scale")
"""Keys of fp16 that only a dynamic loss scale reads."""


@rule(
    "DS313",
    effect=Effect.ADVICE,
    pedantic=True,
    references=("deepspeed/runtime/fp16/loss_scaler.py, CreateLossScaler", FP16_DOCS),
    watches=("fp16.loss_scale",),
)
@bad(
    trained('"fp16": {"enabled": true, "loss_scale": 128, "initial_scale_power": 16}'),
    at="fp16.initial_scale_power",
    message="loss_scale 128 is static, and DeepSpeed ignores initial_scale_power, which belongs to the dynamic loss scale.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "fp16": {"enabled": true, "loss_scale": 128}}',
)
@good(trained('"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 16}'))
@good(trained('"fp16": {"enabled": true, "loss_scale": 128}'))
def dynamic_settings_of_static_scale(config: Config) -> Iterator[Finding]:
    """Settings of the dynamic loss scale are written together with a static loss scale, which does not read them.

    DeepSpeed uses a `loss_scale` above 0 as it is. The initial scale, window, hysteresis and minimum apply only with `loss_scale` 0, where
    DeepSpeed adjusts the scale itself.

    Write `"loss_scale": 0` for dynamic scaling, or remove the other keys.
    """
    if config.enabled("fp16") is not True or not config.value("fp16.loss_scale") > 0:
        return
    written = [name for name in DYNAMIC_SETTINGS if config.has(f"fp16.{name}")]
    if written:
        one = len(written) == 1
        yield Finding(
            f"fp16.{written[0]}",
            f"loss_scale {config.quote('fp16.loss_scale')} is static, and DeepSpeed ignores {', '.join(written)}, which {'belongs' if one else 'belong'} to the dynamic loss scale.",
            help=f'Write "loss_scale": 0 for dynamic scaling, or remove {"it" if one else "them"}.',
            fix=without(config, f"fp16.{written[0]}") if LOW_SCALE < config.value("fp16.loss_scale") <= HIGH_SCALE else None,
            related=(("fp16.loss_scale", "the static scale is set here"),),
        )
