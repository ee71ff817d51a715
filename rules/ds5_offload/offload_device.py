"""DS5: offload to host memory and NVMe."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase, Severity
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.offload import CPU_OPTIMIZERS, offload_to_cpu

OFF = (None, "none")


@rule(
    "DS501",
    "offload-param-below-stage-3",
    effect=Effect.IGNORED,
    watches=("zero_optimization.offload_param",),
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
        fix=without(config, "zero_optimization.offload_param") if written else None,
        related=(("zero_optimization.stage", "the stage is set here"),) if written else (),
    )


@rule(
    "DS502",
    "offload-ratio-below-stage-3",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    watches=("zero_optimization.offload_optimizer.ratio",),
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
            fix=without(config, key, Applicability.UNSAFE),
            related=(("zero_optimization.stage", "the stage is set here"),) if config.has("zero_optimization.stage") else (),
        )


@rule(
    "DS503",
    "nvme-offload-below-stage-3",
    effect=Effect.SILENT,
    watches=("zero_optimization.offload_optimizer.device",),
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
            fix=write(config, key, '"cpu"'),
            related=(("zero_optimization.stage", "the stage is set here"),),
        )


@rule(
    "DS504",
    "offload-optimizer-without-zero",
    effect=Effect.IGNORED,
    watches=("zero_optimization.offload_optimizer",),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine.zero_use_cpu_optimizer",
        "deepspeed/ops/adam/cpu_adam.py, DeepSpeedCPUAdam.step",
    ),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer",
)
@bad(trained('"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}'), at="zero_optimization.offload_optimizer")
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}}')
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "none"}}}')
def offload_optimizer_without_zero(config: Config) -> Iterator[Finding]:
    """Optimizer offload is part of ZeRO; at stage 0 nothing is offloaded.

    The optimizer states stay where the parameters are. For an Adam, AdamW, Adagrad or Lion of the config DeepSpeed builds its CPU optimizer all the same, and that
    asserts at the first step that the parameters are on the CPU: on a GPU they are not.

    Set `"stage": 1` or higher, or remove the block.
    """
    key, name = "zero_optimization.offload_optimizer", config.value("optimizer.type")
    device = config.value(f"{key}.device")
    if (
        not (config.value("zero_optimization.stage") == 0 and isinstance(device, str))
        or device in OFF
        or not config.has("zero_optimization.stage")
    ):
        return
    kind = CPU_OPTIMIZERS.get(name.lower()) if config.has("optimizer.type") and isinstance(name, str) else None
    crashes = kind is not None and not getattr(config.node("optimizer.params.torch_adam"), "value", False)
    consequence = (
        f"the parameters stay on the GPU, and the first step raises AssertionError \"{kind} param is on cuda:0 and must be 'cpu'\"."
        if crashes
        else "the optimizer states stay on the GPU."
    )
    yield Finding(
        key,
        f'offload_optimizer to "{device}" offloads nothing at ZeRO stage 0: {consequence}',
        help='Set "stage": 1 or higher, or remove the block.',
        fix=without(config, key, Applicability.UNSAFE if crashes else Applicability.SAFE),
        related=(("zero_optimization.stage", "the stage is set here"),),
        effect=Effect.CRASH if crashes else None,
        phase=Phase.STEP if crashes else None,
    )


@rule(
    "DS529",
    "offload-without-device",
    effect=Effect.SILENT,
    watches=("zero_optimization.offload_optimizer", "zero_optimization.offload_param"),
    references=("deepspeed/runtime/zero/offload_config.py",),
)
@bad(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"pin_memory": true}}'), at="zero_optimization.offload_optimizer")
@bad(trained('"zero_optimization": {"stage": 3, "offload_param": {}}'), at="zero_optimization.offload_param")
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none", "pin_memory": true}}'))
@good(trained('"zero_optimization": {"stage": 0, "offload_optimizer": {"pin_memory": true}}'))
def offload_without_device(config: Config) -> Iterator[Finding]:
    """An offload block without a device offloads nothing: the device is "none".

    The block is a section and no switch. DeepSpeed accepts it with any of its settings, and everything stays on the GPU.

    Write `"device": "cpu"`, or "none" if that is meant.
    """
    stage = config.value("zero_optimization.stage")
    for name, least in (("offload_optimizer", 1), ("offload_param", 3)):
        block = f"zero_optimization.{name}"
        members = getattr(config.node(block), "members", None)
        stays = config.value(f"{block}.device") == "none"
        if members is None or config.has(f"{block}.device") or not stage >= least or not stays:
            continue
        if any(violation.raises or violation.meant == (*block.split("."), "device") for violation in config.violations):
            continue
        yield Finding(
            block,
            f'{name} has no device, which makes it "none": nothing is offloaded, and what was to leave the GPU stays there.',
            help='Add "device": "cpu"; or "none", if nothing is to be offloaded.',
            fix=offload_to_cpu(config, block),
            on="key",
            effect=None if members else Effect.IGNORED,
        )


@rule(
    "DS530",
    "automatic-offload-device",
    effect=Effect.SILENT,
    watches=("zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device"),
    references=("accelerate/utils/dataclasses.py, DeepSpeedPlugin.__post_init__",),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "auto"}}'),
    at="zero_optimization.offload_optimizer.device",
    integration="transformers",
)
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'), integration="transformers")
@good(trained('"zero_optimization": {"stage": 2, "offload_param": {"device": "auto"}}'), integration="transformers")
def automatic_offload_device(config: Config) -> Iterator[Finding]:
    """The offload device "auto" becomes "none" under the Trainer and Accelerate: nothing is offloaded.

    They put in what `DeepSpeedPlugin` was given, or the variables `ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE` and `..._PARAM_DEVICE`, and "none" where there is
    neither. `accelerate launch` sets none of them beside a config file.

    Write `"device": "cpu"`, or "none" if that is meant.
    """
    if config.facts.integration not in (Integration.TRANSFORMERS, Integration.ACCELERATE):
        return
    for name, least in (("offload_optimizer", 1), ("offload_param", 3)):
        key = f"zero_optimization.{name}.device"
        if config.has(key) and config.quote(key) == '"auto"' and config.value("zero_optimization.stage") >= least:
            yield Finding(
                key,
                f'The device of {name} is "auto", which {config.facts.integration.label} fills from its plug-in or the environment, and with "none" where neither says more: nothing is offloaded then.',
                help='Write "device": "cpu"; or "none", if nothing is to be offloaded.',
                severity=Severity.WARNING,
            )
