"""DS5: partial offload of the optimizer, with `offload_optimizer.ratio`."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER, offloads_optimizer, to_nvme
from dslint.rules.helpers.precision import cpu_adam
from dslint.rules.helpers.zero import STAGE, excludes_stage_3, related_stage

RATIO = f"{OFFLOAD_OPTIMIZER}.ratio"


@rule(
    "DS502",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    watches=("zero_optimization.offload_optimizer.ratio",),
    references=("deepspeed/runtime/zero/config.py, DeepSpeedZeroConfig.offload_ratio_check",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}',
    at="zero_optimization.offload_optimizer.ratio",
    message='offload_optimizer.ratio 0.5 requires ZeRO stage 3, and the stage is 2: DeepSpeed raises ValidationError "Partial offloading only supported for ZeRO Stage 3".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}'
)
def offload_ratio_below_stage_3(config: Config) -> Iterator[Finding]:
    """`offload_optimizer.ratio` below 1 requires ZeRO stage 3.

    A ratio below 1 keeps a part of the optimizer states on the GPU, which only stage 3 supports. At the other stages DeepSpeed raises a `ValidationError` while
    it parses the config, for every device.

    Set `"stage": 3`, or remove the ratio.
    """
    stage = config.value(STAGE)
    if config.release < (0, 15, 0):
        return  # the check exists since 0.12.3, but until 0.15.0 it checks nothing
    if config.has(RATIO) and config.value(RATIO) < 1 and stage < 3:
        yield Finding(
            RATIO,
            f'offload_optimizer.ratio {config.quote(RATIO)} requires ZeRO stage 3, and the stage is {stage}: DeepSpeed raises ValidationError "Partial offloading only supported for ZeRO Stage 3".',
            help='Remove "ratio".' if excludes_stage_3(config) else 'Set "stage": 3, or remove "ratio".',
            fix=without(config, RATIO, Applicability.UNSAFE),
            related=related_stage(config),
        )


@rule(
    "DS531",
    effect=Effect.IGNORED,
    watches=("zero_optimization.offload_optimizer.ratio",),
    references=("deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3._create_fp32_partitions",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "ratio": 0.5}}'),
    at=RATIO,
    message="ratio 0.5 keeps nothing on the GPU with the device nvme: DeepSpeed swaps the parameters all the same, updates 50% of them with torch's AdamW, and keeps their moments in host memory.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "ratio": 0.5}}'),
    at=RATIO,
    deepspeed="0.12.6",
    message='ratio 0.5 keeps nothing on the GPU with the device nvme: DeepSpeed swaps the parameters all the same, and its fused Adam, which updates 50% of them on the GPU, may raise RuntimeError "expected input to be on cuda".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}}',
)
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}'))
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "ratio": 1.0}}'))
def offload_ratio_with_nvme(config: Config) -> Iterator[Finding]:
    """With the device nvme, `offload_optimizer.ratio` keeps nothing on the GPU.

    The ratio divides the optimizer between GPU and CPU. With nvme, DeepSpeed swaps all parts to NVMe that are large enough. Those that the
    ratio assigns to the GPU are still updated by torch's AdamW, on the CPU, and their moments stay in host memory instead of on NVMe.

    DeepSpeed 0.12.3 to 0.13.2 use their fused Adam, which accepts only weights on the GPU and raises RuntimeError "expected input to be on
    cuda". Earlier releases do not have the ratio.

    Remove the ratio, or offload to the CPU.
    """
    release = config.release
    if release < (0, 12, 3) or not to_nvme(config, OFFLOAD_OPTIMIZER) or not config.has(RATIO):
        return
    if config.value(RATIO) < 1 and not _is_refused(config):
        share, is_fused = f"{1 - config.value(RATIO):.0%} of them", release < (0, 13, 3)
        follows = (
            f'and its fused Adam, which updates {share} on the GPU, may raise RuntimeError "expected input to be on cuda"'
            if is_fused
            else f"updates {share} with torch's AdamW, and keeps their moments in host memory"
        )
        yield Finding(
            RATIO,
            f"ratio {config.quote(RATIO)} keeps nothing on the GPU with the device nvme: DeepSpeed swaps the parameters all the same, {follows}.",
            effect=Effect.CRASH if is_fused else None,
            phase=Phase.STEP if is_fused else None,
            certain=not is_fused,
            help='Remove the ratio, or write "device": "cpu".',
            fix=without(config, RATIO, Applicability.UNSAFE),
            related=((f"{OFFLOAD_OPTIMIZER}.device", "the device is set here"),),
        )


@rule(
    "DS520",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.offload_optimizer.ratio",),
    references=("deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3.__init__",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Lion", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}',
    at="zero_optimization.offload_optimizer.ratio",
    message='offload_optimizer.ratio 0.5 requires DeepSpeed\'s CPU Adam: DeepSpeed raises AssertionError "Hybrid Optimizer Only Supports DeepSpeedCPUAdam".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Lion", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": true}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}',
    at="zero_optimization.offload_optimizer.ratio",
    message='offload_optimizer.ratio 0.5 requires DeepSpeed\'s CPU Adam: DeepSpeed raises AssertionError "Hybrid Optimizer Only Supports DeepSpeedCPUAdam".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": true}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}',
)
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}'))
def offload_ratio_without_cpu_adam(config: Config) -> Iterator[Finding]:
    """`offload_optimizer.ratio` below 1 requires DeepSpeed's CPU Adam.

    With a ratio below 1 DeepSpeed updates some partitions on the GPU with torch's AdamW, which must have the same parameters as the optimizer on the CPU.
    DeepSpeed asserts that the latter is its CPU Adam. Lion, Adagrad, torch's Adam and ZenFlow raise an `AssertionError`.

    Use Adam or AdamW without `torch_adam`, or remove the ratio.
    """
    if _is_refused(config):
        yield Finding(
            RATIO,
            f'offload_optimizer.ratio {config.quote(RATIO)} requires DeepSpeed\'s CPU Adam: DeepSpeed raises AssertionError "Hybrid Optimizer Only Supports DeepSpeedCPUAdam".',
            help='Use the type "AdamW" without torch_adam, or remove "ratio".',
            fix=without(config, RATIO, Applicability.UNSAFE),
            related=(("optimizer.type", "the optimizer is set here"),),
        )


def _is_refused(config: Config) -> bool:
    """Whether DeepSpeed refuses a ratio below 1, because it does not build its CPU Adam."""
    partial = config.value(STAGE) == 3 and offloads_optimizer(config) and config.value(RATIO) < 1
    return config.release >= (0, 12, 3) and bool(partial) and cpu_adam(config) is False
