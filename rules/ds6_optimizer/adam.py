"""DS6: Adam and AdamW: which class DeepSpeed builds, and which parameters that class reads."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.cost import torch_adam_on_cpu
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.optimizer import ADAM_SOURCE, OPTIMIZER_SOURCE, lower_type
from dslint.rules.helpers.parameters import OFFLOADED, implementation, parameter, written
from dslint.rules.helpers.zero import STAGE, ZERO
from dslint.schemas.typed import find_type
from dslint.source.tree import Mapping

_CPU_ADAM_REFUSES = Release(0, 19, 8)
"""The first release whose CPU Adam raises for amsgrad, by its sources from 0.9.5 on."""

_DROPS_STATES = Release(0, 19, 6)
"""The first release that keeps fp32_optimizer_states from an Adam that does not take it: 0.16.9 to 0.19.5 raised, asked by running them."""

NOTICEABLE_DECAY = 1e-5
"""The smallest weight decay that makes a difference. The 3e-7 of DeepSpeed's own examples makes none."""


def _takes_all(config: Config, built: str, except_for: str) -> bool:
    """Whether another class of the optimizer's type takes every written parameter, except for one."""
    entry, params = find_type("optimizer", config.value("optimizer.type")), config.node("optimizer.params")
    names = [member.key.value for member in params.members] if isinstance(params, Mapping) else []
    return entry is not None and all(built in entry["params"].get(name, {}).get("only", (built,)) for name in names if name != except_for)


@rule(
    "DS607",
    effect=Effect.ADVICE,
    watches=("optimizer.params.weight_decay",),
    references=(OPTIMIZER_SOURCE,),
    pedantic=True,
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-4, "weight_decay": 0.1}}}}}}',
    at="optimizer.type",
    message='optimizer.type "Adam" runs AdamW: DeepSpeed applies weight_decay 0.1 to the parameters, not to the gradients, unless adam_w_mode is false.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}}}',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "weight_decay": 0.1}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-4, "weight_decay": 3e-7}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-4, "weight_decay": 0.1, "adam_w_mode": false}}}}}}')
def adam_is_adamw(config: Config) -> Iterator[Finding]:
    """The type Adam runs AdamW, unless `adam_w_mode` is false.

    DeepSpeed's Adam applies weight decay to the parameters, like AdamW, and not to the gradients, like Adam. With weight decay the two
    train differently.

    Write `"type": "AdamW"` to name what runs, or `"adam_w_mode": false` in `params` for the original Adam.
    """
    name = config.value("optimizer.type")
    if not isinstance(name, str) or name.lower() != "adam" or config.has("optimizer.params.adam_w_mode"):
        return
    decay = config.literal("optimizer.params.weight_decay")
    if isinstance(decay, int | float) and decay >= NOTICEABLE_DECAY:
        yield Finding(
            "optimizer.type",
            f"optimizer.type {config.quote('optimizer.type')} runs AdamW: DeepSpeed applies weight_decay {decay:g} "
            "to the parameters, not to the gradients, unless adam_w_mode is false.",
            help='Write "AdamW" to name what runs, or "adam_w_mode": false in params.',
            fix=write(config, "optimizer.type", '"AdamW"', Applicability.SAFE),
        )


@rule(
    "DS620",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.params.amsgrad",),
    references=("deepspeed/ops/adam/fused_adam.py",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "amsgrad": true}}}}}}',
    at="optimizer.params.amsgrad",
    message='DeepSpeed builds AdamW as FusedAdam here, which raises RuntimeError "FusedAdam does not support the AMSGrad variant" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "amsgrad": true, "torch_adam": true}}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-4, "amsgrad": true}}}}, "zero_optimization": {{"stage": 1, "offload_optimizer": {{"device": "cpu"}}}}}}',
    at="optimizer.params.amsgrad",
    message='DeepSpeed builds Adam as DeepSpeedCPUAdam here, which raises RuntimeError "DeepSpeedCPUAdam does not support the AMSGrad variant" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "amsgrad": true, "torch_adam": true}}, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-4, "amsgrad": true}}}}, "zero_optimization": {{"stage": 1, "offload_optimizer": {{"device": "cpu"}}}}}}',
    at="optimizer.params.amsgrad",
    deepspeed="0.16.9",
    message="DeepSpeed builds Adam as DeepSpeedCPUAdam here, which ignores amsgrad before DeepSpeed 0.19.8.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "amsgrad": true, "torch_adam": true}}, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}}',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "amsgrad": true, "torch_adam": true}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "amsgrad": false}}}}}}')
def amsgrad_not_supported(config: Config) -> Iterator[Finding]:
    """Only PyTorch's Adam supports AMSGrad; DeepSpeed's fused Adam and CPU Adam do not.

    Their constructors raise a `RuntimeError` in `deepspeed.initialize`; that of CPU Adam since 0.19.8, and before it ignores `amsgrad`.

    Remove `amsgrad`, or add `"torch_adam": true` to build PyTorch's Adam.
    """
    built = implementation(config)
    if parameter(config, "optimizer", "amsgrad") is True and built in ("FusedAdam", "DeepSpeedCPUAdam", "ZenFlowCPUAdam"):
        is_ignored = built != "FusedAdam" and config.release < _CPU_ADAM_REFUSES
        outcome = (
            f"ignores amsgrad before DeepSpeed {_CPU_ADAM_REFUSES}."
            if is_ignored
            else f'raises RuntimeError "{built} does not support the AMSGrad variant" in deepspeed.initialize.'
        )
        yield Finding(
            "optimizer.params.amsgrad",
            f"DeepSpeed builds {config.value('optimizer.type')} as {built} here, which {outcome}",
            effect=Effect.IGNORED if is_ignored else None,
            help="Remove it." if config.has(f"{ZERO}.zenflow") else 'Remove it, or add "torch_adam": true for PyTorch\'s Adam.',
            fix=without(config, "optimizer.params.amsgrad", Applicability.UNSAFE)
            if config.has(f"{ZERO}.zenflow")
            else write(config, "optimizer.params.torch_adam", "true")
            if _takes_all(config, "torch.optim.AdamW", "torch_adam")
            else None,
        )


@rule("DS622", effect=Effect.IGNORED, watches=("optimizer.params.adam_w_mode",), references=(OPTIMIZER_SOURCE,))
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "adam_w_mode": false}}}}}}',
    at="optimizer.params.adam_w_mode",
    message="DeepSpeed ignores adam_w_mode false with the type AdamW: weight decay stays decoupled.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-4, "adam_w_mode": false}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "adam_w_mode": true}}}}}}')
def adam_w_mode_of_adamw(config: Config) -> Iterator[Finding]:
    """DeepSpeed ignores `adam_w_mode` if the type is AdamW.

    DeepSpeed removes the parameter before it builds AdamW. It has an effect only with the type Adam, which is also AdamW unless
    `adam_w_mode` is false.

    Write `"type": "Adam"` with `"adam_w_mode": false` for the original Adam, or remove the parameter.
    """
    key = "optimizer.params.adam_w_mode"
    if lower_type(config) == "adamw" and written(config, "adam_w_mode") is False:
        yield Finding(
            key,
            f"DeepSpeed ignores adam_w_mode {config.quote(key)} with the type AdamW: weight decay stays decoupled.",
            help='Write "type": "Adam" with it, or remove it.',
            related=(("optimizer.type", "the type is set here"),),
            fix=without(config, key),
        )


@rule(
    "DS623",
    effect=Effect.SLOW,
    watches=("optimizer.params.torch_adam",),
    references=(ADAM_SOURCE,),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "torch_adam": true}}}}, "zero_optimization": {{"stage": 2, "offload_optimizer": {{"device": "cpu"}}}}}}',
    at="optimizer.params.torch_adam",
    message="torch_adam with optimizer offload runs PyTorch's Adam on the CPU, several times slower than DeepSpeed's CPU Adam, the default.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "torch_adam": true}}}}, "zero_optimization": {{"stage": 2}}}}')
def torch_adam_with_offload(config: Config) -> Iterator[Finding]:
    """With optimizer offload, PyTorch's Adam is several times slower than DeepSpeed's CPU Adam.

    With optimizer offload DeepSpeed uses an Adam that runs on the vector units of all CPU cores; `torch_adam` replaces it with
    PyTorch's. The GPU waits during the update. `torch_adam` also disables `fp32_optimizer_states` and a `ratio` below 1.

    Remove `torch_adam`, unless the CPU Adam does not compile on this machine.
    """
    key = "optimizer.params.torch_adam"
    if (
        written(config, "torch_adam") is True
        and config.value(STAGE) >= 1
        and config.value("zero_optimization.offload_optimizer.device") in OFFLOADED
    ):
        yield Finding(
            key,
            "torch_adam with optimizer offload runs PyTorch's Adam on the CPU, several times slower than DeepSpeed's CPU Adam, the default.",
            help=f"Remove it, unless the CPU Adam does not compile on this machine.{torch_adam_on_cpu(config)}",
            related=(("zero_optimization.offload_optimizer", "the optimizer is offloaded here"),),
            fix=without(config, key, Applicability.UNSAFE)
            if _takes_all(config, "DeepSpeedCPUAdam", "torch_adam") and parameter(config, "optimizer", "amsgrad") is not True
            else None,
        )


@rule(
    "DS624",
    effect=Effect.IGNORED,
    watches=("optimizer.params.fp32_optimizer_states",),
    references=(ADAM_SOURCE,),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "fp32_optimizer_states": false}}}}, "zero_optimization": {{"stage": 2}}}}',
    at="optimizer.params.fp32_optimizer_states",
    message="DeepSpeed ignores fp32_optimizer_states false without optimizer offload: only its CPU Adam reads it.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}}',
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "fp32_optimizer_states": false}}}}, "zero_optimization": {{"stage": 2, "offload_optimizer": {{"device": "cpu"}}}}}}'
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "fp32_optimizer_states": false}}}}, "zero_optimization": {{"stage": 2}}}}',
    at="optimizer.params.fp32_optimizer_states",
    deepspeed="0.19.5",
    message='DeepSpeed before 0.19.6 passes fp32_optimizer_states to any Adam, and only CPU Adam takes it: FusedAdam raises TypeError "got an unexpected keyword argument" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}}',
)
def fp32_optimizer_states_not_read(config: Config) -> Iterator[Finding]:
    """Only the CPU Adam of optimizer offload reads `fp32_optimizer_states`.

    The fused Adam keeps its moments in the data type of its parameters, which under ZeRO are fp32 master weights. With `torch_adam`
    DeepSpeed drops the parameter, and `bf16.bf16_optimizer_states` overrides it. Releases before 0.19.6 raise a `TypeError` for any other Adam.

    Remove it, or offload the optimizer.
    """
    key = "optimizer.params.fp32_optimizer_states"
    value, built = written(config, "fp32_optimizer_states"), implementation(config)
    if not isinstance(value, bool) or lower_type(config) not in ("adam", "adamw", "muon") or built is None:
        return
    device = config.value("zero_optimization.offload_optimizer.device")
    if device is UNKNOWN:
        return
    if config.release < _DROPS_STATES and built in ("FusedAdam", "torch.optim.Adam", "torch.optim.AdamW"):
        yield Finding(
            key,
            f"DeepSpeed before {_DROPS_STATES} passes fp32_optimizer_states to any Adam, and only CPU Adam takes it: {built} raises TypeError "
            '"got an unexpected keyword argument" in deepspeed.initialize.',
            help="Remove it.",
            fix=without(config, key),
            effect=Effect.CRASH,
            phase=Phase.INITIALIZE,
        )
        return
    if device in OFFLOADED and parameter(config, "optimizer", "torch_adam") is False:
        if value and config.value("bf16.bf16_optimizer_states") is True:
            yield Finding(
                key,
                "bf16.bf16_optimizer_states overrides fp32_optimizer_states: DeepSpeed keeps the moments in bf16.",
                help="Keep one of the two.",
                related=(("bf16.bf16_optimizer_states", "set here"),),
                fix=without(config, key),
            )
        return
    why = "with torch_adam" if device in OFFLOADED else "without optimizer offload"
    yield Finding(
        key,
        f"DeepSpeed ignores fp32_optimizer_states {config.quote(key)} {why}: only its CPU Adam reads it.",
        help="Remove it.",
        fix=without(config, key),
        effect=Effect.ADVICE if value else None,
        pedantic=value,  # the moments are in fp32 anyway
    )


@rule(
    "DS625",
    effect=Effect.ADVICE,
    pedantic=True,
    watches=("optimizer.legacy_fusion",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._configure_fp16_optimizer",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}, "legacy_fusion": true}}, "bf16": {{"enabled": true}}, "zero_optimization": {{"stage": 2}}}}',
    at="optimizer.legacy_fusion",
    message="DeepSpeed ignores legacy_fusion at ZeRO stage 2.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}, "legacy_fusion": true}}, "bf16": {{"enabled": true}}}}')
def legacy_fusion_not_read(config: Config) -> Iterator[Finding]:
    """DeepSpeed reads `legacy_fusion` only with the fused Adam under fp16 or bf16, without ZeRO.

    It selects an older way to split the update among kernels, in the optimizer that DeepSpeed wraps around Adam at stage 0.

    Remove it.
    """
    key, stage = "optimizer.legacy_fusion", config.value(STAGE)
    if not config.has(key) or config.value(key) is not True:
        return
    built = implementation(config)
    if stage >= 1:
        why = f"at ZeRO stage {stage}"
    elif config.value("fp16.enabled") is False and config.value("bf16.enabled") is False:
        why = "without fp16 or bf16"
    elif built is not None and built != "FusedAdam":
        why = f"with {built}"
    else:
        return
    yield Finding(key, f"DeepSpeed ignores legacy_fusion {why}.", help="Remove it.", fix=without(config, key))


@rule(
    "DS650",
    effect=Effect.ADVICE,
    watches=("zero_optimization.offload_optimizer",),
    references=("https://github.com/deepspeedai/DeepSpeed/issues/5469",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "zero_optimization": {{"stage": 3, "offload_optimizer": {{"device": "cpu"}}}}}}',
    at="zero_optimization.offload_optimizer.device",
    deepspeed="0.14.2",
    message="DeepSpeed 0.14.2 was reported to raise RuntimeError in the optimizer step with optimizer offload at stage 3.",
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "zero_optimization": {{"stage": 3, "offload_optimizer": {{"device": "cpu"}}}}}}'
)
def cpu_adam_of_0_14_2(config: Config) -> Iterator[Finding]:
    """DeepSpeed 0.14.2 was reported to raise in the optimizer step with optimizer offload at stage 3.

    Users went back to 0.14.0, or upgraded to a later release.

    Use another release.
    """
    key = "zero_optimization.offload_optimizer.device"
    if tuple(config.release) == (0, 14, 2) and config.value(STAGE) == 3 and config.value(key) in OFFLOADED:
        yield Finding(
            key,
            "DeepSpeed 0.14.2 was reported to raise RuntimeError in the optimizer step with optimizer offload at stage 3.",
            help="Use another release.",
        )
