"""DS6: Muon."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.config.sections import is_habit
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.optimizer import lower_type
from dslint.rules.helpers.parameters import meant_parameter, respelt_parameter, type_in_release
from dslint.rules.helpers.zero import STAGE
from dslint.schemas.typed import find_type
from dslint.source.tree import Mapping

_TAKES_STAGE_3 = Release(0, 18, 9)
"""The first release whose Muon runs at ZeRO stage 3."""


@rule(
    "DS613",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.type",),
    references=("deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3.__init__",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Muon", "params": {{"lr": 0.02}}}}, "zero_optimization": {{"stage": 3}}}}',
    at="optimizer.type",
    message='Muon at ZeRO stage 3 does not support reduce_scatter, which is true by default: DeepSpeed raises ValueError "Muon and reduce scatter cannot be used together" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Muon", "params": {"lr": 0.02}}, "zero_optimization": {"stage": 3, "reduce_scatter": false}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Muon", "params": {{"lr": 0.02}}}}, "zero_optimization": {{"stage": 3, "reduce_scatter": false, "zero_quantized_gradients": true}}}}',
    at="optimizer.type",
    message='Muon at ZeRO stage 3 does not support zero_quantized_gradients: DeepSpeed raises ValueError "Muon and all2all process group cannot be used together" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Muon", "params": {"lr": 0.02}}, "zero_optimization": {"stage": 3, "reduce_scatter": false}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Muon", "params": {{"lr": 0.02}}}}, "zero_optimization": {{"stage": 3, "reduce_scatter": false}}}}',
    at="optimizer.type",
    deepspeed="0.18.8",
    message='DeepSpeed before 0.18.9 has no Muon for ZeRO stage 3: it raises AssertionError "Muon optimizer is not yet compatible with ZeRO Stage 3" in deepspeed.initialize.',
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "Muon", "params": {{"lr": 0.02}}}}, "zero_optimization": {{"stage": 3, "reduce_scatter": false}}}}'
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Muon", "params": {{"lr": 0.02}}}}, "zero_optimization": {{"stage": 2}}}}')
def muon_with_reduce_scatter(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3, Muon supports neither `reduce_scatter` nor quantized gradients.

    Muon orthogonalizes whole matrices, so that every rank needs whole gradients. `reduce_scatter`, true by default, gives each rank only
    its partition. DeepSpeed raises a `ValueError` when it builds the optimizer. Releases before 0.18.9 refuse Muon at stage 3 altogether.

    Write `"reduce_scatter": false` in `zero_optimization`, or use stage 1 or 2.
    """
    if lower_type(config) != "muon" or not config.value(STAGE) >= 3 or not type_in_release(config, "optimizer"):
        return
    if config.release < _TAKES_STAGE_3:
        yield Finding(
            "optimizer.type",
            f"DeepSpeed before {_TAKES_STAGE_3} has no Muon for ZeRO stage 3: it raises AssertionError "
            '"Muon optimizer is not yet compatible with ZeRO Stage 3" in deepspeed.initialize.',
            help="Use stage 1 or 2, AdamW, or a newer release.",
            related=((STAGE, "the stage is set here"),),
        )
        return
    scatter, quantized = "zero_optimization.reduce_scatter", "zero_optimization.zero_quantized_gradients"
    if config.value(scatter) is True:
        value = config.quote(scatter) if config.has(scatter) else "true by default"
        yield Finding(
            "optimizer.type",
            f"Muon at ZeRO stage 3 does not support reduce_scatter, which is {value}: DeepSpeed raises "
            'ValueError "Muon and reduce scatter cannot be used together" in deepspeed.initialize.',
            help='Write "reduce_scatter": false in zero_optimization, or use stage 1 or 2.',
            related=((scatter if config.has(scatter) else STAGE, "set here"),),
            fix=None if config.value(quantized) is True else write(config, scatter, "false"),
        )
    elif config.value(quantized) is True:
        yield Finding(
            "optimizer.type",
            "Muon at ZeRO stage 3 does not support zero_quantized_gradients: DeepSpeed raises "
            'ValueError "Muon and all2all process group cannot be used together" in deepspeed.initialize.',
            help="Remove zero_quantized_gradients.",
            related=((quantized, "set here"),),
            fix=without(config, quantized, Applicability.UNSAFE),
        )


@rule(
    "DS614",
    effect=Effect.IGNORED,
    watches=("optimizer.params",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._muon_param_groups",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Muon", "params": {{"lr": 0.02, "nesterov": true}}}}}}',
    at="optimizer.params.nesterov",
    message='Muon does not read "nesterov": DeepSpeed silently ignores it.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Muon", "params": {"lr": 0.02}}}',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Muon", "params": {{"lr": 0.02, "momentum": 0.95, "adam_lr": 3e-4}}}}}}')
def muon_parameter_not_read(config: Config) -> Iterator[Finding]:
    """DeepSpeed silently ignores unknown parameters of Muon.

    Every other optimizer raises for a parameter that it does not take. For Muon, DeepSpeed picks the parameters that it knows and
    ignores the rest: with a misspelt `momentum`, Muon uses the default.

    Correct the spelling, or remove the parameter.
    """
    entry = find_type("optimizer", config.value("optimizer.type"))
    params = config.node("optimizer.params")
    if entry is None or not entry.get("open") or not isinstance(params, Mapping):
        return
    if config.has("zero_optimization.zenflow"):
        return  # whose AdamW refuses them: DS519
    known = {name for name, spec in entry["params"].items() if "since" not in spec or Release.parse(spec["since"]) <= config.release}
    for member in params.members:
        name = member.key.value
        if name in known or is_habit(name):
            continue
        close = meant_parameter("optimizer", name, known)
        since = f" before release {entry['params'][name]['since']}" if name in entry["params"] else ""
        yield Finding(
            ("optimizer", "params", name),
            f'{config.value("optimizer.type")} does not read "{name}"{since}: DeepSpeed silently ignores it.',
            help=f'Did you mean "{close.word}"?' if close else "Remove it.",
            on="key",
            fix=None
            if since
            else respelt_parameter(config, "optimizer", name, close.word, Applicability.UNSAFE)
            if close and not config.has(("optimizer", "params", close.word))
            else without(config, ("optimizer", "params", name)),
        )
