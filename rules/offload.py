"""DS5: offload to host memory and NVMe."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
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


@rule(
    "DS502",
    "offload-ratio-below-stage-3",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("deepspeed/runtime/zero/config.py, offload_ratio_check",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}',
    at="zero_optimization.offload_optimizer.ratio",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}'
)
def offload_ratio_below_stage_3(config: Config) -> Iterator[Finding]:
    """A part of the optimizer is to be offloaded, below ZeRO stage 3.

    `offload_optimizer.ratio` below 1 keeps a part of the optimizer states on the GPU. Stage 3 alone can do that; at the others DeepSpeed raises a
    `ValidationError` while it parses the config, whatever the device.

    Set `"stage": 3`, or remove the ratio.
    """
    key = "zero_optimization.offload_optimizer.ratio"
    stage = config.value("zero_optimization.stage")
    if config.release < (0, 15, 0):
        return  # the check is there since 0.12.3 and looks at nothing
    if config.has(key) and config.value(key) < 1 and stage < 3:
        yield Finding(
            key,
            f'offload_optimizer.ratio {config.quote(key)} needs ZeRO stage 3, and the stage is {stage}: DeepSpeed raises ValidationError "Partial offloading only supported for ZeRO Stage 3".',
            help='Set "stage": 3, or remove "ratio".',
            related=(("zero_optimization.stage", "the stage is set here"),) if config.has("zero_optimization.stage") else (),
        )


@rule(
    "DS503",
    "nvme-offload-below-stage-3",
    effect=Effect.SILENT,
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._configure_zero_optimizer",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/local"}}}',
    at="zero_optimization.offload_optimizer.device",
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}')
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local"}}}'
)
def nvme_offload_below_stage_3(config: Config) -> Iterator[Finding]:
    """Optimizer states are to go to NVMe, and go to host memory: NVMe works at ZeRO stage 3 alone.

    At stages 1 and 2 DeepSpeed treats every device but "none" as host memory, and never opens `nvme_path`. The host then holds 12 bytes for each
    parameter of the rank's share, which nobody has planned for.

    Set `"stage": 3`, or write `"device": "cpu"` if host memory is enough.
    """
    key = "zero_optimization.offload_optimizer.device"
    stage = config.value("zero_optimization.stage")
    if config.value(key) == "nvme" and stage < 3 and stage > 0:
        yield Finding(
            key,
            f'offload_optimizer to "nvme" works at ZeRO stage 3 alone: at stage {stage} the optimizer states go to host memory, and nvme_path is not read.',
            help='Set "stage": 3, or write "device": "cpu".',
            related=(("zero_optimization.stage", "the stage is set here"),),
        )


@rule(
    "DS504",
    "offload-optimizer-without-zero",
    effect=Effect.IGNORED,
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._configure_basic_optimizer",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer",
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}}')
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "none"}}}')
def offload_optimizer_without_zero(config: Config) -> Iterator[Finding]:
    """Optimizer offload is part of ZeRO; at stage 0 nothing is offloaded.

    The optimizer states stay where the parameters are. DeepSpeed builds its CPU Adam all the same, in the place of the fused one for GPUs.

    Set `"stage": 1` or higher, or remove the block.
    """
    key = "zero_optimization.offload_optimizer"
    device = config.value(f"{key}.device")
    if (
        config.value("zero_optimization.stage") == 0
        and isinstance(device, str)
        and device not in OFF
        and config.has("zero_optimization.stage")
    ):
        yield Finding(
            key,
            f'offload_optimizer to "{device}" does nothing at ZeRO stage 0: the optimizer states stay on the GPU, updated by an Adam that is made for the CPU.',
            help='Set "stage": 1 or higher, or remove the block.',
            related=(("zero_optimization.stage", "the stage is set here"),),
        )
