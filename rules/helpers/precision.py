"""The precision that a config trains in, and which optimizer that makes DeepSpeed build."""

from __future__ import annotations

from dslint.config import Config

STAGE = "zero_optimization.stage"
OFFLOAD = "zero_optimization.offload_optimizer"

SETTLED_POWER = 16
"""Where the loss scale of an fp16 run starts by default. fp16 holds no power of two above 2**15, so that 2**16 overflows at most once."""

_SPELLINGS = {"half": "fp16", "float16": "fp16", "bfloat16": "bf16", "float": "fp32", "float32": "fp32"}


def bf16_section(config: Config) -> str:
    """The section that DeepSpeed reads for bf16: `bfloat16`, the former name, where there is no other."""
    absent = not config.has("bf16") or config.quote("bf16") == "null"
    return "bfloat16" if absent and config.has("bfloat16") else "bf16"


def model_dtype(config: Config) -> str | None:
    """The type that DeepSpeed takes the model to have: "fp16", "bf16", or "fp32" where neither is on. None where that cannot be known."""
    fp16, bf16 = config.enabled("fp16"), config.enabled(bf16_section(config))
    if fp16 is True or bf16 is True:
        return "fp16" if fp16 is True else "bf16"
    return "fp32" if fp16 is False and bf16 is False else None


def dtype_of(config: Config, key: str) -> str | None:
    """The type written under a key, by its short name, whatever its spelling; None where there is none that DeepSpeed knows."""
    value = config.value(key) if config.has(key) else None
    if not isinstance(value, str):
        return None
    name = value.lower().removeprefix("torch.")
    name = _SPELLINGS.get(name, name)
    return name if name in ("fp16", "bf16", "fp32", "int8") else None


def cpu_adam(config: Config) -> bool | None:
    """Whether the config makes DeepSpeed build its CPU Adam; None where the program may bring it, or a value cannot be known."""
    device, name = config.value(f"{OFFLOAD}.device"), config.value("optimizer.type")
    if device == "none" or (device is None and not config.has(OFFLOAD)):
        return False
    if device not in ("cpu", "nvme") or not config.has("optimizer.type") or not isinstance(name, str):
        return None
    torch_adam = getattr(config.node("optimizer.params.torch_adam"), "value", False)
    zenflow = config.has("zero_optimization.zenflow") and config.quote("zero_optimization.zenflow") != "null"
    return name.lower() in ("adam", "adamw") and not torch_adam and not zenflow


def uses_bf16_optimizer(config: Config) -> bool:
    """Whether ZeRO stage 1 runs in `BF16_Optimizer`, an optimizer of its own: bf16 with gradients accumulated in fp32, and no CPU offload."""
    device = config.value(f"{OFFLOAD}.device")
    return (
        bool(config.value(STAGE) == 1)
        and model_dtype(config) == "bf16"
        and dtype_of(config, "data_types.grad_accum_dtype") == "fp32"
        and (device in ("none", "nvme") or (device is None and not config.has(OFFLOAD)))
    )
