"""DS6: Lamb."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.optimizer import lower_type
from dslint.rules.helpers.parameters import type_in_release
from dslint.rules.helpers.precision import model_dtype
from dslint.rules.helpers.zero import STAGE, requires_zero


@rule(
    "DS615",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("fp16.loss_scale", "optimizer.type"),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._do_sanity_check",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Lamb", "params": {{"lr": 1e-3}}}}, "fp16": {{"enabled": false, "loss_scale": 128}}}}',
    at="fp16.loss_scale",
    message='fp16.loss_scale 128 is a static loss scale, which Lamb does not support, even though fp16 is disabled: DeepSpeed raises AssertionError "DeepSpeed lamb optimizer requires dynamic loss scaling" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Lamb", "params": {"lr": 1e-3}}, "fp16": {"enabled": false, "loss_scale": 0}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Lamb", "params": {{"lr": 1e-3}}}}, "bf16": {{"enabled": true}}}}',
    at="optimizer.type",
    deepspeed="0.16.9",
    message='Lamb with bf16: DeepSpeed before 0.17.1 takes bf16 for a static loss scale of 1 and raises AssertionError "DeepSpeed lamb optimizer requires dynamic loss scaling" in deepspeed.initialize.',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Lamb", "params": {{"lr": 1e-3}}}}, "fp16": {{"enabled": false, "loss_scale": 0}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Lamb", "params": {{"lr": 1e-3}}}}, "bf16": {{"enabled": true}}}}')
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "Lamb", "params": {{"lr": 1e-3}}}}, "fp16": {{"enabled": false, "loss_scale": 128}}}}',
    deepspeed="0.16.9",
)
def lamb_with_static_loss_scale(config: Config) -> Iterator[Finding]:
    """Lamb requires the dynamic loss scale, even if fp16 is disabled.

    If the optimizer is Lamb, DeepSpeed asserts that `fp16.loss_scale` is 0. It does not look at `fp16.enabled`. Releases before 0.17.1 do, and
    for bf16 the assertion fails there in every config.

    Write `"loss_scale": 0`, or remove the key.
    """
    key, enabled = "fp16.loss_scale", config.value("fp16.enabled")
    if lower_type(config) not in ("lamb", "onebitlamb") or not type_in_release(config, "optimizer"):
        return
    asserted = f'AssertionError "DeepSpeed {lower_type(config)} optimizer requires dynamic loss scaling" in deepspeed.initialize.'
    if config.release < _READS_SCALE_ALWAYS and enabled is not True:
        if enabled is False and model_dtype(config) == "bf16":
            yield Finding(
                "optimizer.type",
                f"{config.value('optimizer.type')} with bf16: DeepSpeed before {_READS_SCALE_ALWAYS} takes bf16 for a static loss scale of 1 and "
                f"raises {asserted}",
                help='Use "AdamW", fp16, or a newer release.',
            )
        return
    if config.has(key) and config.value(key) > 0:
        disabled = ", even though fp16 is disabled" if enabled is False else ""
        yield Finding(
            key,
            f"fp16.loss_scale {config.quote(key)} is a static loss scale, which Lamb does not support{disabled}: DeepSpeed raises {asserted}",
            help='Write "loss_scale": 0, the dynamic loss scale.',
            related=(("optimizer.type", "Lamb is set here"),),
            fix=write(config, key, "0", Applicability.SAFE if disabled else Applicability.UNSAFE),
        )


_READS_SCALE_ALWAYS = Release(0, 17, 1)
"""The first release that reads fp16.loss_scale whatever is enabled; get_loss_scale of the config before it."""


@rule(
    "DS648",
    effect=Effect.SILENT,
    watches=("zero_allow_untested_optimizer",),
    references=("deepspeed/ops/lamb/fused_lamb.py", "deepspeed/runtime/zero/stage_1_and_2.py"),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Lamb", "params": {{"lr": 1e-3}}}}, "zero_allow_untested_optimizer": true, "zero_optimization": {{"stage": 1}}}}',
    at="optimizer.type",
    message="At ZeRO stage 1 Lamb gets one flat partition of the parameters on each rank: it computes its trust ratio for the partition, not for each layer.",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Lamb", "params": {{"lr": 1e-3}}}}, "zero_optimization": {{"stage": 0}}}}')
def lamb_on_flat_pieces(config: Config) -> Iterator[Finding]:
    """Lamb scales the step of each layer by the norm of the layer, but ZeRO passes it flat partitions instead of layers.

    ZeRO gives the optimizer of each rank one flat partition of all parameters. Lamb then computes one trust ratio for the whole
    partition, and the ratio changes with the number of ranks. `zero_allow_untested_optimizer` disables the check for this.

    Use AdamW with ZeRO, or Lamb at stage 0.
    """
    if lower_type(config) == "lamb" and config.value(STAGE) >= 1 and config.value("zero_allow_untested_optimizer") is True:
        yield Finding(
            "optimizer.type",
            f"At ZeRO stage {config.value(STAGE)} Lamb gets one flat partition of the parameters on each rank: "
            "it computes its trust ratio for the partition, not for each layer.",
            help="Use AdamW." if requires_zero(config) else 'Use AdamW, or Lamb with "stage": 0.',
            related=(("zero_allow_untested_optimizer", "this disables the check"),),
        )
