"""The precision that a config trains in, its loss scale, and the optimizer that DeepSpeed builds for it."""

from __future__ import annotations

from dslint.config import Config
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER
from dslint.rules.helpers.zero import STAGE

ENGINE = "deepspeed/runtime/engine.py"
FP16_DOCS = "https://www.deepspeed.ai/docs/config-json/#fp16-training-options"
DYNAMIC_SCALER = "deepspeed/runtime/fp16/loss_scaler.py, DynamicLossScaler.update_scale"

DEFAULT_SCALE_POWER = 16
"""The default of `initial_scale_power`. The largest power of two that fp16 holds is 2**15, so a scale of 2**16 overflows at most once."""

FP16_CAPABILITY = (7, 0)
"""The first compute capability on which DeepSpeed trains in fp16."""

_SHORT_NAMES = {"half": "fp16", "float16": "fp16", "bfloat16": "bf16", "bfp16": "bf16", "float": "fp32", "float32": "fp32"}


def bf16_section(config: Config) -> str:
    """The section that DeepSpeed reads for bf16: `bfloat16`, the old name, if only that is written."""
    absent = not config.has("bf16") or config.is_null("bf16")
    return "bfloat16" if absent and config.has("bfloat16") else "bf16"


def model_dtype(config: Config) -> str | None:
    """The type that DeepSpeed casts the model to: "fp16", "bf16", or "fp32" if neither is enabled. None where that is unknown."""
    fp16, bf16 = config.enabled("fp16"), config.enabled(bf16_section(config))
    if fp16 is True or bf16 is True:
        return "fp16" if fp16 is True else "bf16"
    return "fp32" if fp16 is False and bf16 is False else None


def steps_in_initialize(config: Config) -> bool:
    """Whether the optimizer takes its first step in `deepspeed.initialize`: fp16 and bf16 without ZeRO make its states that way."""
    return bool(config.value(STAGE) == 0) and model_dtype(config) in ("fp16", "bf16")


def half_types(config: Config) -> str:
    """The half precision that the GPU and the arguments of the training leave to enable, in words; "" if the GPU has none."""
    gpu, arguments = config.facts.gpu, config.arguments
    asked = [name for name in ("bf16", "fp16") if arguments is not None and arguments.value(name) is True]
    if len(asked) == 1:
        return asked[0]
    if gpu is None or gpu.has_bf16:
        return "bf16 or fp16"
    return "fp16" if gpu.capability is not None and gpu.capability >= FP16_CAPABILITY else ""


def dtype_of(config: Config, key: str) -> str | None:
    """The short name of the type that is written at a key, in any spelling; None if the key holds no type that DeepSpeed knows."""
    value = config.value(key) if config.has(key) else None
    if not isinstance(value, str):
        return None
    name = value.lower().removeprefix("torch.")
    name = _SHORT_NAMES.get(name, name)
    return name if name in ("fp16", "bf16", "fp32", "int8") else None


def has_dynamic_loss_scale(config: Config) -> bool:
    """Whether a training in fp16 certainly scales its loss, dynamically."""
    return config.enabled("fp16") is True and bool(config.value("fp16.loss_scale") == 0) and not runs_without_optimizer(config)


def cpu_adam(config: Config) -> bool | None:
    """Whether DeepSpeed builds its CPU Adam for the config; None where the program may pass it, no optimizer is built, or a value is unknown."""
    if runs_without_optimizer(config):
        return None
    device, name = config.value(f"{OFFLOAD_OPTIMIZER}.device"), config.value("optimizer.type")
    if device == "none" or (device is None and not config.has(OFFLOAD_OPTIMIZER)):
        return False
    if device not in ("cpu", "nvme") or not config.has("optimizer.type") or not isinstance(name, str):
        return None
    if config.may_be_written("optimizer.params.torch_adam") or config.may_be_written("zero_optimization.zenflow"):
        return None  # the dict is completed by a program
    torch_adam = getattr(config.node("optimizer.params.torch_adam"), "value", False)
    zenflow = config.has("zero_optimization.zenflow") and not config.is_null("zero_optimization.zenflow")
    return name.lower() in ("adam", "adamw") and not torch_adam and not zenflow


def uses_bf16_optimizer(config: Config) -> bool:
    """Whether ZeRO stage 1 runs in `BF16_Optimizer`: in bf16 with gradients accumulated in fp32, and without offload to the CPU."""
    device = config.value(f"{OFFLOAD_OPTIMIZER}.device")
    return (
        bool(config.value(STAGE) == 1)
        and model_dtype(config) == "bf16"
        and dtype_of(config, "data_types.grad_accum_dtype") == "fp32"
        and (device in ("none", "nvme") or (device is None and not config.has(OFFLOAD_OPTIMIZER)))
    )
