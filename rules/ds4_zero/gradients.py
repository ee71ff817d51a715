"""DS4: the gradient norm, the contiguous gradient buffer, and parameters without a gradient."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER
from dslint.rules.helpers.precision import uses_bf16_optimizer
from dslint.rules.helpers.zero import STAGE, ZERO, related_stage

STAGE_1_AND_2 = "deepspeed/runtime/zero/stage_1_and_2.py, DeepSpeedZeroOptimizer"


@rule(
    "DS408",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.compute_grad_norm",),
    references=(STAGE_1_AND_2, "deepspeed/runtime/zero/config.py, DeepSpeedZeroConfig.compute_grad_norm_valid"),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "compute_grad_norm": false}'),
    at="zero_optimization.compute_grad_norm",
    message="compute_grad_norm false conflicts with gradient_clipping 1, the default: DeepSpeed raises a ValueError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "compute_grad_norm": false}, "gradient_clipping": 0'),
    at="zero_optimization.compute_grad_norm",
    message='compute_grad_norm false works only at ZeRO stages 1 and 2, and the stage is 3: DeepSpeed raises ValidationError "compute_grad_norm=false is supported only with ZeRO Stage 1 or 2".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3}, "gradient_clipping": 0}',
)
@bad(
    trained(
        '"zero_optimization": {"stage": 1, "compute_grad_norm": false, "offload_optimizer": {"device": "cpu"}}, "gradient_clipping": 0'
    ),
    at="zero_optimization.compute_grad_norm",
    message="compute_grad_norm false conflicts with optimizer offload: DeepSpeed raises a ValueError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}, "gradient_clipping": 0}',
)
@bad(
    trained(
        '"zero_optimization": {"stage": 1, "compute_grad_norm": false}, "gradient_clipping": 0, "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}'
    ),
    at="zero_optimization.compute_grad_norm",
    message="compute_grad_norm false conflicts with accumulating gradients in fp32 at stage 1 in bf16: DeepSpeed raises a ValueError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 1}, "gradient_clipping": 0, "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}}',
)
@good(trained('"zero_optimization": {"stage": 2, "compute_grad_norm": false}, "gradient_clipping": 0'))
@good(trained('"zero_optimization": {"stage": 2, "compute_grad_norm": true, "offload_optimizer": {"device": "cpu"}}'))
def grad_norm_switched_off(config: Config) -> Iterator[Finding]:
    """`compute_grad_norm: false` conflicts with gradient clipping, offload and several other settings.

    It works at ZeRO stages 1 and 2, without gradient clipping (which is on at 1.0 by default), without optimizer offload and without ZenFlow. It does not work
    at stage 1 in bf16 with gradients accumulated in fp32. Otherwise DeepSpeed raises a `ValueError`; at stages 0 and 3 it does so while parsing.

    Remove it, or write `"gradient_clipping": 0` with it.
    """
    key, stage = f"{ZERO}.compute_grad_norm", config.value(STAGE)
    if config.release < (0, 19, 7) or config.value(key) is not False:
        return
    if stage in (0, 3):
        yield Finding(
            key,
            f'compute_grad_norm false works only at ZeRO stages 1 and 2, and the stage is {stage}: DeepSpeed raises ValidationError "compute_grad_norm=false is supported only with ZeRO Stage 1 or 2".',
            help="Remove it.",
            fix=without(config, key),
            related=related_stage(config),
            phase=Phase.PARSE,
        )
        return
    conflict = _conflict_without_grad_norm(config) if stage in (1, 2) else None
    if conflict is not None:
        what, place = conflict
        yield Finding(
            key,
            f"compute_grad_norm false conflicts with {what}: DeepSpeed raises a ValueError in deepspeed.initialize.",
            help='Write "gradient_clipping": 0, or remove compute_grad_norm.' if place == "gradient_clipping" else "Remove one of the two.",
            fix=without(config, key, Applicability.UNSAFE),
            related=((place, "conflicts with it"),) if config.has(place) else (),
        )


def _conflict_without_grad_norm(config: Config) -> tuple[str, str] | None:
    """What stops training without a gradient norm at stages 1 and 2, in words and as a path; None where nothing does."""
    clipping, zenflow = config.value("gradient_clipping"), f"{ZERO}.zenflow"
    if clipping > 0:
        return f"gradient_clipping {clipping:g}{'' if config.has('gradient_clipping') else ', the default'}", "gradient_clipping"
    if config.has(zenflow) and not config.is_null(zenflow):
        return "ZenFlow", zenflow
    if config.value(f"{OFFLOAD_OPTIMIZER}.device") in ("cpu", "nvme"):
        return "optimizer offload", OFFLOAD_OPTIMIZER
    if uses_bf16_optimizer(config):
        return "accumulating gradients in fp32 at stage 1 in bf16", "data_types.grad_accum_dtype"
    return None


@rule(
    "DS411",
    effect=Effect.ADVICE,
    pedantic=True,
    watches=("zero_optimization.contiguous_gradients",),
    references=(STAGE_1_AND_2,),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "contiguous_gradients": false, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.contiguous_gradients",
    message="DeepSpeed overrides contiguous_gradients false: at stage 2 with optimizer offload it always uses true.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
)
@good(trained('"zero_optimization": {"stage": 2, "contiguous_gradients": false}'))
@good(trained('"zero_optimization": {"stage": 2, "contiguous_gradients": true, "offload_optimizer": {"device": "cpu"}}'))
def contiguous_gradients_forced(config: Config) -> Iterator[Finding]:
    """With optimizer offload DeepSpeed overrides `contiguous_gradients: false`.

    At stages 1 and 2 offload copies gradients from the contiguous buffer to the host, so DeepSpeed always uses true.

    Remove it.
    """
    key = f"{ZERO}.contiguous_gradients"
    if config.value(key) is False and config.value(STAGE) in (1, 2) and config.value(f"{OFFLOAD_OPTIMIZER}.device") in ("cpu", "nvme"):
        yield Finding(
            key,
            f"DeepSpeed overrides contiguous_gradients false: at stage {config.value(STAGE)} with optimizer offload it always uses true.",
            help="Remove it.",
            fix=without(config, key),
            related=((OFFLOAD_OPTIMIZER, "the optimizer is offloaded here"),),
        )


@rule(
    "DS412",
    effect=Effect.IGNORED,
    watches=("zero_optimization.ignore_unused_parameters",),
    references=(f"{STAGE_1_AND_2}.complete_grad_norm_calculation_for_cpu_offload",),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "ignore_unused_parameters": false}'),
    at="zero_optimization.ignore_unused_parameters",
    message="DeepSpeed reads ignore_unused_parameters false only with optimizer offload: here it does not report a parameter without a gradient.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}}',
)
@good(trained('"zero_optimization": {"stage": 2, "ignore_unused_parameters": false, "offload_optimizer": {"device": "cpu"}}'))
@good(trained('"zero_optimization": {"stage": 2, "ignore_unused_parameters": true}'))
def unused_parameters_not_looked_for(config: Config) -> Iterator[Finding]:
    """`ignore_unused_parameters: false` stops the run for an unused parameter only with optimizer offload.

    DeepSpeed checks for parameters without a gradient where it computes the gradient norm on the host, at stages 1 and 2 with offload. Without offload it
    does not report a parameter that takes no part in the loss.

    Remove it, or check for such parameters in the program.
    """
    key, device = f"{ZERO}.ignore_unused_parameters", config.value(f"{OFFLOAD_OPTIMIZER}.device")
    not_offloaded = device in (None, "none") and not config.has(f"{ZERO}.cpu_offload")
    if config.value(key) is False and config.value(STAGE) in (1, 2) and not_offloaded:
        yield Finding(
            key,
            "DeepSpeed reads ignore_unused_parameters false only with optimizer offload: here it does not report a parameter without a gradient.",
            help="Remove it.",
            fix=without(config, key),
        )
