"""DS6: the 1-bit optimizers, which DeepSpeed removed in 0.19.7."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.optimizer import ONE_BIT, OPTIMIZER_SOURCE, lower_type
from dslint.rules.helpers.parameters import parameter, type_in_release
from dslint.rules.helpers.precision import half_types, model_dtype
from dslint.rules.helpers.zero import STAGE, related_stage, requires_zero
from dslint.source.tree import Mapping


@rule(
    "DS616",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.type",),
    references=(OPTIMIZER_SOURCE,),
    untried="the 1-bit optimizers were removed in 0.19.7, and the suite runs 0.19.8",
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "OneBitAdam", "params": {{"lr": 1e-4}}}}, "fp16": {{"enabled": true}}, "zero_optimization": {{"stage": 1}}}}',
    at="optimizer.type",
    deepspeed="0.18.9",
    message='"OneBitAdam" does not support ZeRO, and the stage is 1: DeepSpeed raises AssertionError "1bit-Adam is not compatible with ZeRO" in deepspeed.initialize.',
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "OneBitAdam", "params": {{"lr": 1e-4}}}}, "fp16": {{"enabled": true}}}}',
    deepspeed="0.18.9",
)
def one_bit_optimizer_with_zero(config: Config) -> Iterator[Finding]:
    """The 1-bit optimizers do not support ZeRO.

    They replace the communication between ranks with a compressed form, and ZeRO uses its own. DeepSpeed asserts stage 0 when it builds
    them.

    Set `"stage": 0`, or use AdamW or Lamb. DeepSpeed 0.19.7 and newer have no 1-bit optimizers.
    """
    names = {"onebitadam": "1bit-Adam", "zerooneadam": "0/1 Adam", "onebitlamb": "1bit-Lamb"}
    name, stage = names.get(lower_type(config)), config.value(STAGE)
    if name is not None and stage >= 1 and type_in_release(config, "optimizer"):
        yield Finding(
            "optimizer.type",
            f"{config.quote('optimizer.type')} does not support ZeRO, and the stage is {stage}: DeepSpeed raises "
            f'AssertionError "{name} is not compatible with ZeRO" in deepspeed.initialize.',
            help="Use AdamW." if requires_zero(config) else 'Set "stage": 0, or use AdamW.',
            related=related_stage(config),
        )


@rule(
    "DS617",
    effect=Effect.ADVICE,
    watches=("optimizer.type",),
    references=(OPTIMIZER_SOURCE, "https://www.deepspeed.ai/tutorials/onebit-adam/"),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "OneBitAdam", "params": {{"lr": 1e-4, "freeze_step": 400}}}}, "bf16": {{"enabled": true}}}}',
    at="optimizer.type",
    deepspeed="0.18.9",
    message='"OneBitAdam" without fp16: its convergence was verified only with fp16, and DeepSpeed only warns.',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "OneBitAdam", "params": {{"lr": 1e-4}}}}, "fp16": {{"enabled": true}}}}',
    at="optimizer.params",
    deepspeed="0.18.9",
    message="freeze_step is not set and defaults to 100,000: OneBitAdam compresses no communication before that step.",
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "OneBitAdam", "params": {{"lr": 1e-4, "freeze_step": 400}}}}, "fp16": {{"enabled": true}}}}',
    deepspeed="0.18.9",
)
def one_bit_optimizer_not_effective(config: Config) -> Iterator[Finding]:
    """A 1-bit optimizer runs without fp16, or starts to compress only after 100,000 steps.

    The convergence of the 1-bit optimizers was verified only with fp16; without it DeepSpeed warns. They compress communication only
    after `freeze_step` steps (OneBitAdam, OneBitLamb) or `var_freeze_step` steps (ZeroOneAdam), 100,000 by default. A shorter run is
    plain Adam or Lamb and saves no communication.

    Enable fp16, and set the freeze step to 15 to 25 % of the run.
    """
    name = lower_type(config)
    if name not in ONE_BIT or not type_in_release(config, "optimizer"):
        return
    if config.value("fp16.enabled") is False:
        yield Finding(
            "optimizer.type",
            f"{config.quote('optimizer.type')} without fp16: its convergence was verified only with fp16, and DeepSpeed only warns.",
            help="Use AdamW with its own parameters."
            if half_types(config) in ("", "bf16")
            else f"Enable fp16{' and disable bf16' if model_dtype(config) == 'bf16' else ''}, or use AdamW with its own parameters.",
        )
    key = "var_freeze_step" if name == "zerooneadam" else "freeze_step"
    if isinstance(config.node("optimizer.params"), Mapping) and config.lacks(f"optimizer.params.{key}"):
        steps = parameter(config, "optimizer", key)
        if isinstance(steps, int):
            yield Finding(
                "optimizer.params",
                f"{key} is not set and defaults to {steps:,}: {config.value('optimizer.type')} compresses no communication before that step.",
                help=f'Add "{key}": 15 to 25 % of the steps of the run.',
                on="key",
            )
