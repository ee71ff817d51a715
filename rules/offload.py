"""DS5: offload to host memory and NVMe."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.rule import Finding, bad, good, rule

OFF = (None, "none")


@rule(
    "DS501",
    "offload-param-below-stage-3",
    effect=Effect.IGNORED,
    references=(
        "https://www.deepspeed.ai/docs/config-json/#parameter-offloading",
        "deepspeed/runtime/engine.py, DeepSpeedEngine._configure_zero_optimizer",
    ),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}',
    at="zero_optimization.offload_param",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"offload_param": {"device": "nvme", "nvme_path": "/local"}}}',
    at="zero_optimization.offload_param",
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}')
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_param": {"device": "none"}}}')
def offload_param_below_stage_3(config: Config) -> Iterator[Finding]:
    """Parameter offload works at ZeRO stage 3 alone; below it the parameters stay on the GPU.

    Stages 1 and 2 keep a whole copy of the parameters on every rank, and their optimizer never looks at `offload_param`. No error, no
    warning: the memory that was meant to be saved is not.

    Set `"stage": 3` to offload parameters, or remove the block. To save memory at stages 1 and 2, `offload_optimizer` moves the optimizer
    states and the fp32 master weights to the host.
    """
    stage, device = config.value("zero_optimization.stage"), config.value("zero_optimization.offload_param.device")
    if not (stage < 3 and isinstance(device, str)) or device in OFF:
        return
    written = config.has("zero_optimization.stage")
    yield Finding(
        "zero_optimization.offload_param",
        f'offload_param to "{device}" does nothing at ZeRO stage {stage}{"" if written else ", the default"}: the parameters stay on the GPU, whole, on every rank.',
        help='Set "stage": 3 to offload parameters, or remove the block; at stages 1 and 2 offload_optimizer is what saves memory.',
        related=(("zero_optimization.stage", "the stage is set here"),) if written else (),
    )
