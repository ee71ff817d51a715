"""DS6: which optimizers go with which settings."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.config.validate import is_habit
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import json_text, without, write
from dslint.rules.helpers.optimizer import BUILT, OPTIMIZERS_DOCS, STAGE, lower_type
from dslint.rules.helpers.parameters import implementation, in_release, meant_parameter, parameter, respelt_parameter
from dslint.schemas.typed import find_type
from dslint.source.tree import Mapping

ONE_BIT = ("onebitadam", "zerooneadam", "onebitlamb")
FULL_PRECISION = {"onebitadam": "AdamW", "zerooneadam": "AdamW", "onebitlamb": "Lamb"}
BY_ELEMENT = ("SGD", "ASGD", "RMSprop", "Rprop", "NAdam", "RAdam", "Adamax", "Adadelta")
"""PyTorch's optimizers that treat every element by itself, so that flat pieces of the parameters are as good as whole tensors."""
TESTED = (
    "FusedAdam",
    "DeepSpeedCPUAdam",
    "ZenFlowCPUAdam",
    "torch.optim.Adam",
    "torch.optim.AdamW",
    "torch.optim.Adagrad",
    "DeepSpeedCPUAdagrad",
    "FusedLion",
    "DeepSpeedCPULion",
    "MuonWithAuxAdam",
)
"""The classes that ZeRO takes unasked (deepspeed/runtime/zero/utils.py, ZERO_SUPPORTED_OPTIMIZERS)."""


def _in_release(config: Config, section: str) -> bool:
    entry = find_type(section, config.value(f"{section}.type"))
    return entry is not None and in_release(entry, config.release)


@rule(
    "DS611",
    "type-not-in-release",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.type", "scheduler.type"),
    references=(OPTIMIZERS_DOCS, "deepspeed/runtime/engine.py, DeepSpeedEngine._is_supported_optimizer"),
)
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "OneBitAdam", "params": {{"lr": 1e-4}}}}}}', at="optimizer.type")
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "Lion", "params": {{"lr": 1e-4}}}}}}', at="optimizer.type", deepspeed="0.10.3")
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"total_num_steps": 9000}}}}}}',
    at="scheduler.type",
    deepspeed="0.12.2",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Lion", "params": {{"lr": 1e-4}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "OneBitAdam", "params": {{"lr": 1e-4}}}}}}', deepspeed="0.18.9")
def type_not_in_release(config: Config) -> Iterator[Finding]:
    """The optimizer or schedule is none that this release of DeepSpeed has.

    The 1-bit optimizers (OneBitAdam, OneBitLamb, ZeroOneAdam) were removed in 0.19.7; Muon came with 0.17.6, Lion with 0.11.0, the optimizers of µP with
    0.10.2, WarmupCosineLR with 0.12.3. DeepSpeed raises an `AssertionError` where it does not know the name.

    Take another type, or another release of DeepSpeed. AdamW and Lamb are the full-precision forms of the 1-bit optimizers.
    """
    for section, what in (
        ("optimizer", "is not a supported DeepSpeed Optimizer"),
        ("scheduler", "DeepSpeed does not recognize LR scheduler"),
    ):
        key = f"{section}.type"
        entry = find_type(section, config.value(key))
        if entry is None or _in_release(config, section):
            continue
        until = entry.get("until")
        when = f"was removed after {until['release']}" if until else f"came with {entry['since']}"
        error = f"{config.value(key)} {what}" if section == "optimizer" else f"{what} {config.value(key)}"
        yield Finding(
            key,
            f'{key} {config.quote(key)} {when}: DeepSpeed {config.release} raises AssertionError "{error}" in deepspeed.initialize.',
            help="Take AdamW, or Lamb in the place of OneBitLamb, with the parameters that those have."
            if until
            else f"Upgrade DeepSpeed to {entry['since']} or newer, or take another type.",
            fix=write(config, key, json_text(full))
            if section == "optimizer" and (full := FULL_PRECISION.get(lower_type(config)))
            else None,
        )


@rule(
    "DS612",
    "untested-optimizer-with-zero",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.type",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._do_optimizer_sanity_check", "deepspeed/runtime/zero/utils.py"),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1}}}}, "zero_optimization": {{"stage": 1}}}}',
    at="optimizer.type",
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Lamb", "params": {{"lr": 1e-3}}}}, "zero_optimization": {{"stage": 3}}}}',
    at="optimizer.type",
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1}}}}, "zero_allow_untested_optimizer": true, "zero_optimization": {{"stage": 1}}}}'
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Lion", "params": {{"lr": 1e-4}}}}, "zero_optimization": {{"stage": 2}}}}')
def untested_optimizer_with_zero(config: Config) -> Iterator[Finding]:
    """ZeRO takes optimizers that it was tested with, and others only when it is told to.

    Tested are Adam, AdamW, Adagrad, Lion and Muon. With any other type at stages 1 to 3 DeepSpeed raises an `AssertionError`, unless
    `zero_allow_untested_optimizer` is true. The Hugging Face loaders set that for an optimizer that the program brings, and not for one
    that stands in the file.

    Add `"zero_allow_untested_optimizer": true` at the top level where the optimizer treats every element by itself (SGD, RMSprop, NAdam): ZeRO
    gives it flat pieces of the parameters. One that needs whole tensors, as Lamb does for the norm of a layer, is computed wrongly.
    """
    stage = config.value(STAGE)
    if not stage >= 1 or config.value("zero_allow_untested_optimizer") is not False or lower_type(config) in ONE_BIT:
        return
    built = implementation(config)
    if built is None or built in TESTED or not _in_release(config, "optimizer"):
        return
    if built == "FusedLion" and config.release < Release(0, 11, 0):
        return
    whole = " Lamb needs the norm of whole layers, and ZeRO hands it pieces." if lower_type(config) == "lamb" else ""
    yield Finding(
        "optimizer.type",
        f'{config.quote("optimizer.type")} is none of the optimizers that ZeRO was tested with: at stage {stage} DeepSpeed raises AssertionError "You are using an untested ZeRO Optimizer" in deepspeed.initialize.{whole}',
        help='Add "zero_allow_untested_optimizer": true at the top level, or take AdamW.',
        related=((STAGE, "ZeRO is switched on here"),) if config.has(STAGE) else (),
        fix=write(config, "zero_allow_untested_optimizer", "true") if built.removeprefix("torch.optim.") in BY_ELEMENT else None,
    )


@rule(
    "DS613",
    "muon-with-reduce-scatter",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.type",),
    references=("deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3.__init__",),
)
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "Muon", "params": {{"lr": 0.02}}}}, "zero_optimization": {{"stage": 3}}}}', at="optimizer.type")
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Muon", "params": {{"lr": 0.02}}}}, "zero_optimization": {{"stage": 3, "reduce_scatter": false, "zero_quantized_gradients": true}}}}',
    at="optimizer.type",
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "Muon", "params": {{"lr": 0.02}}}}, "zero_optimization": {{"stage": 3, "reduce_scatter": false}}}}'
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Muon", "params": {{"lr": 0.02}}}}, "zero_optimization": {{"stage": 2}}}}')
def muon_with_reduce_scatter(config: Config) -> Iterator[Finding]:
    """Muon at ZeRO stage 3 needs `reduce_scatter` off, and gradients that are not quantized.

    Muon orthogonalizes whole matrices, so every rank has to see whole gradients. `reduce_scatter` is true unless it is written, and gives each rank its piece
    only; DeepSpeed raises a `ValueError` when it builds the optimizer.

    Write `"reduce_scatter": false` in `zero_optimization`, or use stage 1 or 2.
    """
    if lower_type(config) != "muon" or not config.value(STAGE) >= 3 or config.release < Release(0, 18, 9):
        return
    scatter, quantized = "zero_optimization.reduce_scatter", "zero_optimization.zero_quantized_gradients"
    if config.value(scatter) is True:
        how = config.quote(scatter) if config.has(scatter) else "true, the default"
        yield Finding(
            "optimizer.type",
            f'Muon at ZeRO stage 3 cannot work with reduce_scatter, which is {how}: DeepSpeed raises ValueError "Muon and reduce scatter cannot be used together" in deepspeed.initialize.',
            help='Write "reduce_scatter": false in zero_optimization, or use stage 1 or 2.',
            related=((scatter if config.has(scatter) else STAGE, "set here"),),
            fix=None if config.value(quantized) is True else write(config, scatter, "false"),
        )
    elif config.value(quantized) is True:
        yield Finding(
            "optimizer.type",
            'Muon at ZeRO stage 3 cannot work with zero_quantized_gradients: DeepSpeed raises ValueError "Muon and all2all process group cannot be used together" in deepspeed.initialize.',
            help="Remove zero_quantized_gradients.",
            related=((quantized, "set here"),),
            fix=without(config, quantized, Applicability.UNSAFE),
        )


@rule(
    "DS614",
    "muon-parameter-not-read",
    effect=Effect.IGNORED,
    watches=("optimizer.params",),
    references=("deepspeed/runtime/engine.py, _muon_param_groups",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Muon", "params": {{"lr": 0.02, "nesterov": true}}}}}}',
    at="optimizer.params.nesterov",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Muon", "params": {{"lr": 0.02, "momentum": 0.95, "adam_lr": 3e-4}}}}}}')
def muon_parameter_not_read(config: Config) -> Iterator[Finding]:
    """A parameter that Muon drops without a word.

    Every other optimizer raises at a parameter it does not take. For Muon DeepSpeed picks the ones it knows and leaves the rest: a misspelt `momentum` is
    the default.

    Correct the spelling, or remove it.
    """
    entry = find_type("optimizer", config.value("optimizer.type"))
    params = config.node("optimizer.params")
    if entry is None or not entry.get("open") or not isinstance(params, Mapping):
        return
    known = {name for name, spec in entry["params"].items() if "since" not in spec or Release.parse(spec["since"]) <= config.release}
    for member in params.members:
        name = member.key.value
        if name in known or is_habit(name):
            continue
        close = meant_parameter("optimizer", name, known)
        since = f" before DeepSpeed {entry['params'][name]['since']}" if name in entry["params"] else ""
        yield Finding(
            ("optimizer", "params", name),
            f'{config.value("optimizer.type")} does not read "{name}"{since}, and drops it without a word.',
            help=f'Did you mean "{close.word}"?' if close else "Remove it.",
            on="key",
            fix=None
            if since
            else respelt_parameter(config, "optimizer", name, close.word, Applicability.UNSAFE)
            if close and not config.has(("optimizer", "params", close.word))
            else without(config, ("optimizer", "params", name)),
        )


@rule(
    "DS615",
    "lamb-with-static-loss-scale",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("fp16.loss_scale",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._do_sanity_check",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Lamb", "params": {{"lr": 1e-3}}}}, "fp16": {{"enabled": false, "loss_scale": 128}}}}',
    at="fp16.loss_scale",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Lamb", "params": {{"lr": 1e-3}}}}, "fp16": {{"enabled": false, "loss_scale": 0}}}}')
def lamb_with_static_loss_scale(config: Config) -> Iterator[Finding]:
    """Lamb wants the dynamic loss scale, even where fp16 is off.

    DeepSpeed asserts that `fp16.loss_scale` is 0 wherever the optimizer is Lamb, without a look at `fp16.enabled`.

    Write `"loss_scale": 0`, or leave it out.
    """
    key = "fp16.loss_scale"
    if lower_type(config) in ("lamb", "onebitlamb") and _in_release(config, "optimizer") and config.has(key) and config.value(key) > 0:
        off = ", although fp16 is off" if config.value("fp16.enabled") is False else ""
        yield Finding(
            key,
            f'fp16.loss_scale {config.quote(key)} is a static loss scale, which Lamb refuses{off}: DeepSpeed raises AssertionError "DeepSpeed lamb optimizer requires dynamic loss scaling" in deepspeed.initialize.',
            help='Write "loss_scale": 0, the dynamic loss scale.',
            related=(("optimizer.type", "Lamb is chosen here"),),
            fix=write(config, key, "0", Applicability.SAFE if off else Applicability.UNSAFE),
        )


@rule(
    "DS616",
    "one-bit-optimizer-with-zero",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.type",),
    references=(BUILT,),
    untried="the 1-bit optimizers were removed in 0.19.7, and the suite runs 0.19.8",
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "OneBitAdam", "params": {{"lr": 1e-4}}}}, "fp16": {{"enabled": true}}, "zero_optimization": {{"stage": 1}}}}',
    at="optimizer.type",
    deepspeed="0.18.9",
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "OneBitAdam", "params": {{"lr": 1e-4}}}}, "fp16": {{"enabled": true}}}}',
    deepspeed="0.18.9",
)
def one_bit_optimizer_with_zero(config: Config) -> Iterator[Finding]:
    """The 1-bit optimizers do not go with ZeRO.

    They compress what the ranks send each other, which ZeRO sends in another way. DeepSpeed asserts stage 0 when it builds them.

    Set `"stage": 0`, or take AdamW or Lamb. Releases from 0.19.7 on have no 1-bit optimizers at all.
    """
    names = {"onebitadam": "1bit-Adam", "zerooneadam": "0/1 Adam", "onebitlamb": "1bit-Lamb"}
    name, stage = names.get(lower_type(config)), config.value(STAGE)
    if name is not None and stage >= 1 and _in_release(config, "optimizer"):
        yield Finding(
            "optimizer.type",
            f'{config.quote("optimizer.type")} does not go with ZeRO, and the stage is {stage}: DeepSpeed raises AssertionError "{name} is not compatible with ZeRO" in deepspeed.initialize.',
            help='Set "stage": 0, or take AdamW.',
            related=((STAGE, "the stage is set here"),) if config.has(STAGE) else (),
        )


@rule(
    "DS617",
    "one-bit-optimizer-outside-its-ground",
    effect=Effect.ADVICE,
    watches=("optimizer.type",),
    references=(BUILT, "https://www.deepspeed.ai/tutorials/onebit-adam/"),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "OneBitAdam", "params": {{"lr": 1e-4, "freeze_step": 400}}}}, "bf16": {{"enabled": true}}}}',
    at="optimizer.type",
    deepspeed="0.18.9",
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "OneBitAdam", "params": {{"lr": 1e-4}}}}, "fp16": {{"enabled": true}}}}',
    at="optimizer.params",
    deepspeed="0.18.9",
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "OneBitAdam", "params": {{"lr": 1e-4, "freeze_step": 400}}}}, "fp16": {{"enabled": true}}}}',
    deepspeed="0.18.9",
)
def one_bit_optimizer_outside_its_ground(config: Config) -> Iterator[Finding]:
    """A 1-bit optimizer without fp16, or one that will not begin to compress for a long time.

    Their convergence was verified with fp16 alone, which DeepSpeed warns about. And they only compress after `freeze_step` steps (OneBitAdam, OneBitLamb) or
    `var_freeze_step` (ZeroOneAdam), 100,000 unless it is written: a shorter run is plain Adam or Lamb, and saves no communication.

    Enable fp16, and set the freeze step to some 15 to 25 % of the run.
    """
    name = lower_type(config)
    if name not in ONE_BIT or not _in_release(config, "optimizer"):
        return
    if config.value("fp16.enabled") is False:
        yield Finding(
            "optimizer.type",
            f"{config.quote('optimizer.type')} without fp16: its convergence was verified under fp16 alone, and DeepSpeed only warns.",
            help="Enable fp16, or take AdamW.",
        )
    key = "var_freeze_step" if name == "zerooneadam" else "freeze_step"
    if isinstance(config.node("optimizer.params"), Mapping) and not config.has(f"optimizer.params.{key}"):
        steps = parameter(config, "optimizer", key)
        if isinstance(steps, int):
            yield Finding(
                "optimizer.params",
                f"{key} is not written, and {config.value('optimizer.type')} takes {steps:,}: no communication is compressed before that step.",
                help=f'Add "{key}": some 15 to 25 % of the steps of the run.',
                on="key",
            )


@rule(
    "DS618",
    "optimizer-cannot-step",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("optimizer.type",),
    references=("deepspeed/runtime/engine.py, _take_model_step",),
)
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "LBFGS", "params": {{"lr": 0.1}}}}}}', at="optimizer.type")
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "SparseAdam", "params": {{"lr": 1e-3}}}}, "bf16": {{"enabled": true}}}}', at="optimizer.type")
@good(f'{{{MINIMAL}, "optimizer": {{"type": "RAdam", "params": {{"lr": 1e-3}}}}}}')
def optimizer_cannot_step(config: Config) -> Iterator[Finding]:
    """DeepSpeed builds this optimizer, and cannot take a step with it.

    LBFGS wants a closure that computes the loss anew, which DeepSpeed's step has not; SparseAdam takes sparse gradients alone, and DeepSpeed's are dense.

    Take another type.
    """
    entry = find_type("optimizer", config.value("optimizer.type"))
    stage = config.value(STAGE)
    if entry is None or "step" not in entry or not (stage == 0 or config.value("zero_allow_untested_optimizer") is True):
        return
    error, _, message = entry["step"].partition(": ")
    half = any(config.value(f"{section}.enabled") is True for section in ("fp16", "bf16"))
    early = half and stage == 0
    yield Finding(
        "optimizer.type",
        f'{config.quote("optimizer.type")} cannot take DeepSpeed\'s steps: {error} "{message}" {"in deepspeed.initialize" if early else "at the first step"}.',
        help="Take another type, such as AdamW.",
        phase=Phase.INITIALIZE if early else None,
        fix=write(config, "optimizer.type", '"Adam"') if lower_type(config) == "sparseadam" else None,
    )


@rule("DS619", "optimizer-needs-mup", effect=Effect.ADVICE, watches=("optimizer.type",), references=(BUILT,))
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "MuAdamW", "params": {{"lr": 1e-4}}}}}}', at="optimizer.type")
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}}}')
def optimizer_needs_mup(config: Config) -> Iterator[Finding]:
    """The optimizers of µP come from the package mup, and without it DeepSpeed fails in a way that does not say so.

    The import's failure is logged, and the next line raises `UnboundLocalError`. They also want a model whose base shapes were set by `mup.set_base_shapes`.

    Install mup where the training runs.
    """
    built = implementation(config)
    if built is not None and built.startswith("mup.") and _in_release(config, "optimizer"):
        name = built.removeprefix("mup.")
        yield Finding(
            "optimizer.type",
            f"{config.quote('optimizer.type')} needs the package mup: where it is not installed, DeepSpeed raises UnboundLocalError \"cannot access local variable '{name}'\".",
            help="Install mup where the training runs.",
        )
