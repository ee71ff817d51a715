"""DS6: which class an optimizer's type is built as, and what that class makes of the parameters."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.optimizer import BUILT, STAGE, lower_type
from dslint.rules.helpers.parameters import OFFLOADED, implementation, number, parameter, written
from dslint.schemas.typed import find_type
from dslint.source.tree import Mapping


def _takes_all(config: Config, build: str, but: str) -> bool:
    """Whether another class of the optimizer's type takes every parameter that is written, but for one."""
    entry, params = find_type("optimizer", config.value("optimizer.type")), config.node("optimizer.params")
    names = [member.key.value for member in params.members] if isinstance(params, Mapping) else []
    return entry is not None and all(build in entry["params"].get(name, {}).get("only", (build,)) for name in names if name != but)


@rule(
    "DS620",
    "amsgrad-not-supported",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.params.amsgrad",),
    references=("deepspeed/ops/adam/fused_adam.py",),
)
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "amsgrad": true}}}}}}', at="optimizer.params.amsgrad")
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-4, "amsgrad": true}}}}, "zero_optimization": {{"stage": 1, "offload_optimizer": {{"device": "cpu"}}}}}}',
    at="optimizer.params.amsgrad",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "amsgrad": true, "torch_adam": true}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "amsgrad": false}}}}}}')
def amsgrad_not_supported(config: Config) -> Iterator[Finding]:
    """AMSGrad is PyTorch's alone: DeepSpeed's own Adam, fused or for the CPU, does not know it.

    The constructor raises a `RuntimeError` in `deepspeed.initialize`.

    Leave it out, or add `"torch_adam": true`, which builds PyTorch's Adam.
    """
    built = implementation(config)
    if parameter(config, "optimizer", "amsgrad") is True and built in ("FusedAdam", "DeepSpeedCPUAdam", "ZenFlowCPUAdam"):
        yield Finding(
            "optimizer.params.amsgrad",
            f'{config.value("optimizer.type")} is built as {built} here, which raises RuntimeError "{built} does not support the AMSGrad variant" in deepspeed.initialize.',
            help='Remove it, or add "torch_adam": true for PyTorch\'s Adam.',
            fix=write(config, "optimizer.params.torch_adam", "true") if _takes_all(config, "torch.optim.AdamW", "torch_adam") else None,
        )


@rule(
    "DS621", "parameter-of-another-build", effect=Effect.CRASH, phase=Phase.INITIALIZE, watches=("optimizer.params",), references=(BUILT,)
)
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "fused": true}}}}}}', at="optimizer.params.fused")
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "torch_adam": true, "bias_correction": true}}}}}}',
    at="optimizer.params.bias_correction",
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "set_grad_none": true}}}}, "zero_optimization": {{"stage": 2, "offload_optimizer": {{"device": "cpu"}}}}}}',
    at="optimizer.params.set_grad_none",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "torch_adam": true, "fused": false}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "bias_correction": true}}}}}}')
def parameter_of_another_build(config: Config) -> Iterator[Finding]:
    """The type has this parameter, but not in the build that is chosen here.

    One type stands for several classes: Adam is DeepSpeed's fused Adam on the GPU, its CPU Adam with optimizer offload, and PyTorch's with `torch_adam`. Their
    parameters differ, and the constructor raises a `TypeError` at one it does not have. DeepSpeed's Adam is fused without being told: `fused` is a
    parameter of PyTorch's.

    Remove it, or choose the build that has it.
    """
    entry, built = find_type("optimizer", config.value("optimizer.type")), implementation(config)
    params = config.node("optimizer.params")
    if entry is None or built is None or not isinstance(params, Mapping):
        return
    for member in params.members:
        name = member.key.value
        only = entry["params"].get(name, {}).get("only")
        if only is None or built in only:
            continue
        having = [name for name in only if name in entry["classes"]]
        value, default = written(config, name), entry["params"][name].get("default")
        idle = (value == default and type(value) is type(default)) or (name == "fused" and built == "FusedAdam" and value is True)
        yield Finding(
            ("optimizer", "params", name),
            f'{config.value("optimizer.type")} is built as {built} here ({entry["classes"][built]}), which has no parameter "{name}": it raises TypeError "unexpected keyword argument" in deepspeed.initialize.',
            help=f"Remove it; {' and '.join(having)} {'has' if len(having) == 1 else 'have'} it ({entry['classes'][having[0]]}).",
            on="key",
            fix=without(config, ("optimizer", "params", name), Applicability.SAFE if idle else Applicability.UNSAFE),
        )


@rule("DS622", "adam-w-mode-of-adamw", effect=Effect.IGNORED, watches=("optimizer.params.adam_w_mode",), references=(BUILT,))
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "adam_w_mode": false}}}}}}', at="optimizer.params.adam_w_mode")
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-4, "adam_w_mode": false}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "adam_w_mode": true}}}}}}')
def adam_w_mode_of_adamw(config: Config) -> Iterator[Finding]:
    """AdamW is AdamW, whatever `adam_w_mode` says.

    DeepSpeed takes the parameter out and forgets it where the type is AdamW. It counts for the type Adam, which is AdamW too unless it is false.

    Write `"type": "Adam"` with `"adam_w_mode": false` for Adam as published, or remove the parameter.
    """
    key = "optimizer.params.adam_w_mode"
    if lower_type(config) == "adamw" and written(config, "adam_w_mode") is False:
        yield Finding(
            key,
            f"adam_w_mode {config.quote(key)} does nothing with the type AdamW: weight decay stays decoupled.",
            help='Write "type": "Adam" with it, or remove it.',
            related=(("optimizer.type", "the type is set here"),),
            fix=without(config, key),
        )


@rule(
    "DS623",
    "torch-adam-with-offload",
    effect=Effect.SLOW,
    watches=("optimizer.params.torch_adam",),
    references=("deepspeed/runtime/engine.py, get_optimizer_configuration",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "torch_adam": true}}}}, "zero_optimization": {{"stage": 2, "offload_optimizer": {{"device": "cpu"}}}}}}',
    at="optimizer.params.torch_adam",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "torch_adam": true}}}}, "zero_optimization": {{"stage": 2}}}}')
def torch_adam_with_offload(config: Config) -> Iterator[Finding]:
    """PyTorch's Adam updates offloaded parameters on the CPU, several times slower than DeepSpeed's CPU Adam.

    With optimizer offload DeepSpeed takes an Adam that is written for the CPU's vector units, on all cores; `torch_adam` puts PyTorch's in its place. While it
    computes, the GPU waits. It also takes away `fp32_optimizer_states`, and a `ratio` below 1.

    Remove `torch_adam`, unless it is there because the CPU Adam cannot be compiled on this machine.
    """
    key = "optimizer.params.torch_adam"
    if (
        written(config, "torch_adam") is True
        and config.value(STAGE) >= 1
        and config.value("zero_optimization.offload_optimizer.device") in OFFLOADED
    ):
        yield Finding(
            key,
            "torch_adam with optimizer offload runs PyTorch's Adam on the CPU, several times slower than the CPU Adam that DeepSpeed takes otherwise.",
            help="Remove it, unless the CPU Adam cannot be compiled here.",
            related=(("zero_optimization.offload_optimizer", "the optimizer is offloaded here"),),
            fix=without(config, key, Applicability.UNSAFE)
            if _takes_all(config, "DeepSpeedCPUAdam", "torch_adam") and parameter(config, "optimizer", "amsgrad") is not True
            else None,
        )


@rule(
    "DS624",
    "fp32-optimizer-states-not-read",
    effect=Effect.IGNORED,
    watches=("optimizer.params.fp32_optimizer_states",),
    references=("deepspeed/runtime/engine.py, get_optimizer_configuration",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "fp32_optimizer_states": false}}}}, "zero_optimization": {{"stage": 2}}}}',
    at="optimizer.params.fp32_optimizer_states",
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "fp32_optimizer_states": false}}}}, "zero_optimization": {{"stage": 2, "offload_optimizer": {{"device": "cpu"}}}}}}'
)
def fp32_optimizer_states_not_read(config: Config) -> Iterator[Finding]:
    """`fp32_optimizer_states` is for the CPU Adam of optimizer offload; elsewhere it does nothing.

    The fused Adam keeps its moments in the type of the parameters it is given, which under ZeRO are fp32 master weights. With `torch_adam` the parameter is dropped
    too, and `bf16.bf16_optimizer_states` overrules it.

    Remove it, or offload the optimizer.
    """
    key = "optimizer.params.fp32_optimizer_states"
    value, built = written(config, "fp32_optimizer_states"), implementation(config)
    if not isinstance(value, bool) or lower_type(config) not in ("adam", "adamw", "muon") or built is None:
        return
    offloaded = config.value("zero_optimization.offload_optimizer.device")
    if offloaded is UNKNOWN:
        return
    if offloaded in OFFLOADED and parameter(config, "optimizer", "torch_adam") is False:
        if value and config.value("bf16.bf16_optimizer_states") is True:
            yield Finding(
                key,
                "bf16.bf16_optimizer_states overrules fp32_optimizer_states: the moments are kept in bf16.",
                help="Keep one of the two.",
                related=(("bf16.bf16_optimizer_states", "set here"),),
                fix=without(config, key),
            )
        return
    why = "with torch_adam" if offloaded in OFFLOADED else "without optimizer offload"
    yield Finding(
        key,
        f"fp32_optimizer_states {config.quote(key)} does nothing {why}: only DeepSpeed's CPU Adam reads it.",
        help="Remove it.",
        fix=without(config, key),
    )


@rule(
    "DS625",
    "legacy-fusion-not-read",
    effect=Effect.IGNORED,
    watches=("optimizer.legacy_fusion",),
    references=("deepspeed/runtime/engine.py, _configure_fp16_optimizer",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}, "legacy_fusion": true}}, "bf16": {{"enabled": true}}, "zero_optimization": {{"stage": 2}}}}',
    at="optimizer.legacy_fusion",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}, "legacy_fusion": true}}, "bf16": {{"enabled": true}}}}')
def legacy_fusion_not_read(config: Config) -> Iterator[Finding]:
    """`legacy_fusion` counts for the fused Adam under fp16 or bf16 without ZeRO, and nowhere else.

    It picks an older way to divide the update among kernels, in the optimizer that DeepSpeed wraps around Adam at stage 0.

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
    yield Finding(key, f"legacy_fusion does nothing {why}.", help="Remove it.", fix=without(config, key))


@rule(
    "DS648",
    "lamb-on-flat-pieces",
    effect=Effect.SILENT,
    watches=("zero_allow_untested_optimizer",),
    references=("deepspeed/ops/lamb/fused_lamb.py", "deepspeed/runtime/zero/stage_1_and_2.py"),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Lamb", "params": {{"lr": 1e-3}}}}, "zero_allow_untested_optimizer": true, "zero_optimization": {{"stage": 1}}}}',
    at="optimizer.type",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Lamb", "params": {{"lr": 1e-3}}}}, "zero_optimization": {{"stage": 0}}}}')
def lamb_on_flat_pieces(config: Config) -> Iterator[Finding]:
    """Lamb scales each layer's step by the norm of the layer, and under ZeRO it sees no layers.

    ZeRO hands the optimizer one flat piece of all parameters for each rank. The trust ratio is then that of the piece: one number for everything in it, and another one when the
    number of ranks changes. `zero_allow_untested_optimizer` lets that pass.

    Take AdamW with ZeRO, or Lamb at stage 0.
    """
    if lower_type(config) == "lamb" and config.value(STAGE) >= 1 and config.value("zero_allow_untested_optimizer") is True:
        yield Finding(
            "optimizer.type",
            f"Lamb at ZeRO stage {config.value(STAGE)} gets one flat piece of the parameters on each rank: its trust ratio is that of the piece, and not of each layer.",
            help='Take AdamW, or Lamb with "stage": 0.',
            related=(("zero_allow_untested_optimizer", "lets it pass"),),
        )


@rule("DS649", "momentum-never-decays", effect=Effect.SILENT, watches=("optimizer.params.momentum",), references=("torch.optim.SGD",))
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1, "momentum": 1.0}}}}}}', at="optimizer.params.momentum")
@good(f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1, "momentum": 0.9}}}}}}')
def momentum_never_decays(config: Config) -> Iterator[Finding]:
    """With a momentum of 1 the first gradient still counts in full at the last step, and above 1 it counts for more and more.

    The optimizers look only whether it is negative. Steps grow without end, and training diverges.

    Write a value below 1, such as 0.9.
    """
    key = "optimizer.params.momentum"
    if number(written(config, "momentum")) >= 1:
        yield Finding(
            key,
            f"momentum {config.quote(key)} is not below 1: old gradients never fade, the steps grow without end, and nothing checks it.",
            help="Write a value below 1, such as 0.9.",
        )


@rule(
    "DS650",
    "cpu-adam-of-0-14-2",
    effect=Effect.ADVICE,
    watches=("zero_optimization.offload_optimizer",),
    references=("https://github.com/deepspeedai/DeepSpeed/issues/5469",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "zero_optimization": {{"stage": 3, "offload_optimizer": {{"device": "cpu"}}}}}}',
    at="zero_optimization.offload_optimizer.device",
    deepspeed="0.14.2",
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "zero_optimization": {{"stage": 3, "offload_optimizer": {{"device": "cpu"}}}}}}'
)
def cpu_adam_of_0_14_2(config: Config) -> Iterator[Finding]:
    """Release 0.14.2 was reported to raise in the optimizer's step with optimizer offload at stage 3.

    People went back to 0.14.0, or on to a later release.

    Take another release.
    """
    key = "zero_optimization.offload_optimizer.device"
    if tuple(config.release) == (0, 14, 2) and config.value(STAGE) == 3 and config.value(key) in OFFLOADED:
        yield Finding(
            key,
            "DeepSpeed 0.14.2 was reported to raise RuntimeError in the optimizer's step with optimizer offload at stage 3.",
            help="Take another release.",
        )
