"""DS3: master weights and optimizer states in half precision, and the ZeRO stage and optimizer that they require."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.rule import Finding, FixPlan, bad, good, path_of, rule
from dslint.rules.helpers.examples import MINIMAL, trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER
from dslint.rules.helpers.precision import bf16_section, cpu_adam
from dslint.rules.helpers.zero import STAGE, related_stage
from dslint.source.change import Set

CHECKED_WHILE_PARSING = "deepspeed/runtime/config.py, DeepSpeedConfig._do_error_check"
CHECKED_BY_OPTIMIZER = "deepspeed/runtime/base_optimizer.py, ZeROOptimizer._configure_master_weights"

FP16_MASTER = "fp16.fp16_master_weights_and_grads"
MASTER_KEYS = (FP16_MASTER, "bf16.bf16_master_weights_and_grads", "bfloat16.bf16_master_weights_and_grads")
STATE_KEYS = ("bf16.bf16_optimizer_states", "bfloat16.bf16_optimizer_states")

OFFLOAD_TO_CPU = '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'


@rule(
    "DS303",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=(CHECKED_WHILE_PARSING,),
    watches=(*MASTER_KEYS, *STATE_KEYS),
)
@bad(
    f'{{{MINIMAL}, "bf16": {{"enabled": true, "bf16_master_weights_and_grads": true}}}}',
    at="bf16.bf16_master_weights_and_grads",
    message="The stage is 0, but only ZeRO stages 1 to 3 support bf16_master_weights_and_grads: DeepSpeed raises an AssertionError while parsing.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}',
)
@bad(
    f'{{{MINIMAL}, "fp16": {{"enabled": true, "fp16_master_weights_and_grads": true}}}}',
    at=FP16_MASTER,
    message="The stage is 0, but only ZeRO stages 1 to 3 support fp16_master_weights_and_grads: DeepSpeed raises an AssertionError while parsing.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}}',
)
@bad(
    f'{{{MINIMAL}, "bf16": {{"enabled": true, "bf16_optimizer_states": true}}, "zero_optimization": {{"stage": 2}}}}',
    at="bf16.bf16_optimizer_states",
    message='bf16_optimizer_states is set without bf16_master_weights_and_grads: DeepSpeed raises AssertionError "bf16_optimizer_states requires bf16_master_weights_and_grads to be enabled".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true, "bf16_optimizer_states": true, "bf16_master_weights_and_grads": true}, "zero_optimization": {"stage": 2}}',
)
@good(
    trained(
        '"zero_optimization": {"stage": 2}, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true}'
    )
)
def master_weights_without_zero(config: Config) -> Iterator[Finding]:
    """Half-precision master weights or optimizer states without the settings that they require.

    Only the ZeRO optimizers of stages 1 to 3 implement `fp16_master_weights_and_grads`, `bf16_master_weights_and_grads` and
    `bf16_optimizer_states`, and `bf16_optimizer_states` requires `bf16_master_weights_and_grads`. DeepSpeed asserts both while it parses
    the config, whether or not the section is enabled.

    Set a ZeRO stage, and set `bf16_master_weights_and_grads` together with `bf16_optimizer_states`.
    """
    stage, section = config.value(STAGE), bf16_section(config)
    bf16_master, bf16_states = f"{section}.bf16_master_weights_and_grads", f"{section}.bf16_optimizer_states"
    only_stage_2 = config.release < (0, 18, 3)
    if stage == 0 or (only_stage_2 and stage in (1, 3)):
        key = next((key for key in (FP16_MASTER, bf16_master, bf16_states) if config.value(key) is True), None)
        if key is not None:
            yield _without_stage(config, key, stage, only_stage_2=only_stage_2)
            return
    if config.value(bf16_states) is True and config.value(bf16_master) is False:
        refused = _is_offloaded(config) and cpu_adam(config) is False  # DS326 reports the master weights then
        yield Finding(
            bf16_states,
            'bf16_optimizer_states is set without bf16_master_weights_and_grads: DeepSpeed raises AssertionError "bf16_optimizer_states requires bf16_master_weights_and_grads to be enabled".',
            help="Remove it." if refused else 'Add "bf16_master_weights_and_grads": true, or remove it.',
            fix=write(config, bf16_master, "true") if config.enabled(section) is True and not refused else without(config, bf16_states),
        )


def _is_offloaded(config: Config) -> bool:
    return config.value(f"{OFFLOAD_OPTIMIZER}.device") in ("cpu", "nvme")


def _without_stage(config: Config, key: str, stage: int, *, only_stage_2: bool) -> Finding:
    """The finding for a key that the ZeRO stage does not support."""
    section, _, name = key.partition(".")
    stages, needed = ("only ZeRO stage 2 supports", '{"stage": 2}') if only_stage_2 else ("only ZeRO stages 1 to 3 support", '{"stage": 1}')
    return Finding(
        key,
        f"The stage is {stage}, but {stages} {name}: DeepSpeed raises an AssertionError while parsing.",
        help=f'Set "zero_optimization": {needed}{"" if only_stage_2 else " or higher"}, or remove it.',
        fix=without(config, key, Applicability.SAFE if config.enabled(section) is False else Applicability.UNSAFE),
        related=related_stage(config),
    )


@rule(
    "DS326",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=(CHECKED_BY_OPTIMIZER,),
    watches=MASTER_KEYS,
)
@bad(
    trained('"bf16": {"enabled": true, "bf16_master_weights_and_grads": true}, "zero_optimization": {"stage": 2}'),
    at="bf16.bf16_master_weights_and_grads",
    message="bf16_master_weights_and_grads requires optimizer offload with DeepSpeed's CPU Adam, but the optimizer is not offloaded: DeepSpeed raises an AssertionError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
)
@bad(
    trained('"fp16": {"enabled": true, "fp16_master_weights_and_grads": true}, "zero_optimization": {"stage": 3}'),
    at=FP16_MASTER,
    message="fp16_master_weights_and_grads requires optimizer offload with DeepSpeed's CPU Adam, but the optimizer is not offloaded: DeepSpeed raises an AssertionError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "fp16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Lion", "params": {{"lr": 1e-4}}}}, "bf16": {{"enabled": true, "bf16_master_weights_and_grads": true}}, {OFFLOAD_TO_CPU}}}',
    at="bf16.bf16_master_weights_and_grads",
    message='bf16_master_weights_and_grads requires optimizer offload with DeepSpeed\'s CPU Adam, but the optimizer is "Lion": DeepSpeed raises an AssertionError in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Lion", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "torch_adam": true}}}}, "bf16": {{"enabled": true, "bf16_master_weights_and_grads": true}}, {OFFLOAD_TO_CPU}}}',
    at="bf16.bf16_master_weights_and_grads",
    deepspeed="0.18.9",
    message="bf16_master_weights_and_grads requires optimizer offload with DeepSpeed's CPU Adam, but torch_adam selects torch's: DeepSpeed raises an AssertionError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": true}}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
)
@good(trained(f'"bf16": {{"enabled": true, "bf16_master_weights_and_grads": true}}, {OFFLOAD_TO_CPU}'))
@good(
    trained(
        '"bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true}, "zero_optimization": {"stage": 1}'
    )
)
def master_weights_without_cpu_adam(config: Config) -> Iterator[Finding]:
    """Half-precision master weights require optimizer offload with DeepSpeed's CPU Adam.

    `fp16_master_weights_and_grads` always requires it. `bf16_master_weights_and_grads` requires it unless `bf16_optimizer_states` keeps the
    moments in bf16 as well, on the GPU. DeepSpeed asserts this when it builds the ZeRO optimizer, whether or not the section is enabled.
    torch's Adam on the CPU, ZenFlow and other optimizers do not satisfy it.

    Offload the optimizer to the CPU with Adam or AdamW, add `bf16_optimizer_states`, or remove the key.
    """
    if not config.value(STAGE) >= 1 or config.release < (0, 18, 3) or cpu_adam(config) is not False:
        return
    section = bf16_section(config)
    states = config.value(f"{section}.bf16_optimizer_states")
    offloaded = _is_offloaded(config)
    for key in (FP16_MASTER, f"{section}.bf16_master_weights_and_grads"):
        in_bf16 = key != FP16_MASTER
        if config.value(key) is not True or (in_bf16 and not (states is False or (states is True and offloaded))):
            continue
        found, other = _instead_of_cpu_adam(config) if offloaded else ("the optimizer is not offloaded", "")
        instead = ' Or add "bf16_optimizer_states": true, which requires no offload.' if in_bf16 and not offloaded else ""
        yield Finding(
            key,
            f"{key.partition('.')[2]} requires optimizer offload with DeepSpeed's CPU Adam, but {found}: DeepSpeed raises an AssertionError in deepspeed.initialize.",
            help=f"{other}, or remove it."
            if offloaded
            else f'Write "offload_optimizer": {{"device": "cpu"}} with the optimizer type AdamW, or remove it.{instead}',
            fix=_fp32_master_weights(config, key, with_states=bool(states is True)),
        )
        return


def _instead_of_cpu_adam(config: Config) -> tuple[str, str]:
    """What DeepSpeed builds for an offloaded optimizer in the place of its CPU Adam, and what to write for that."""
    name = str(config.value("optimizer.type"))
    if name.lower() not in ("adam", "adamw"):
        return f'the optimizer is "{name}"', "Use the optimizer type AdamW"
    if getattr(config.node("optimizer.params.torch_adam"), "value", False):
        return "torch_adam selects torch's", "Remove torch_adam"
    return "ZenFlow has its own", "Remove zenflow"


def _fp32_master_weights(config: Config, key: str, *, with_states: bool) -> FixPlan | None:
    """Keep master weights in fp32. `with_states`: the optimizer states as well, which DeepSpeed rejects in bf16 without the weights."""
    section = key.partition(".")[0]
    if not with_states or section == "fp16":
        return without(config, key, Applicability.SAFE if config.enabled(section) is False else Applicability.UNSAFE)
    states = f"{section}.bf16_optimizer_states"
    return FixPlan(
        'write "bf16_master_weights_and_grads" and "bf16_optimizer_states": false',
        (Set(path_of(key), "false"), Set(path_of(states), "false")),
    )


@rule(
    "DS327",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=(CHECKED_BY_OPTIMIZER,),
    watches=(FP16_MASTER,),
)
@bad(
    trained(
        f'"fp16": {{"enabled": false, "fp16_master_weights_and_grads": true}}, "bf16": {{"enabled": true, "bf16_master_weights_and_grads": true}}, {OFFLOAD_TO_CPU}'
    ),
    at=FP16_MASTER,
    message="fp16_master_weights_and_grads and bf16_master_weights_and_grads are both true: DeepSpeed reads them even if their section is disabled, and raises an AssertionError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "fp16": {"enabled": false}, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
)
@good(
    trained(
        f'"fp16": {{"enabled": false, "fp16_master_weights_and_grads": false}}, "bf16": {{"enabled": true, "bf16_master_weights_and_grads": true}}, {OFFLOAD_TO_CPU}'
    )
)
def two_master_weights(config: Config) -> Iterator[Finding]:
    """Both fp16 and bf16 master weights are set.

    DeepSpeed reads both keys, whichever section is enabled, and asserts that at most one is true.

    Keep the key of the enabled section.
    """
    in_fp16, in_bf16 = FP16_MASTER, f"{bf16_section(config)}.bf16_master_weights_and_grads"
    if not (config.value(in_fp16) is True and config.value(in_bf16) is True):
        return
    if config.value(STAGE) >= 1 and cpu_adam(config) is not False:
        fp16, bf16 = (config.enabled(key.partition(".")[0]) is True for key in (in_fp16, in_bf16))
        unused = in_fp16 if bf16 and not fp16 else in_bf16 if fp16 and not bf16 else None
        yield Finding(
            in_fp16,
            "fp16_master_weights_and_grads and bf16_master_weights_and_grads are both true: DeepSpeed reads them even if their section is disabled, and raises an AssertionError in deepspeed.initialize.",
            help="Keep the key of the enabled section.",
            fix=without(config, unused) if unused else None,
            related=((in_bf16, "the other is set here"),),
        )
