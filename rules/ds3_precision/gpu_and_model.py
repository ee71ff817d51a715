"""DS3: precisions that the GPU or the model does not support."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.facts.gpus import Gpu
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.rule import Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.cost import slower
from dslint.rules.helpers.fixes import switched, write
from dslint.rules.helpers.precision import FP16_CAPABILITY, bf16_section, dtype_of
from dslint.rules.helpers.zero import STAGE

FP16_ON = '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}}'
BF16_ON = '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}'
AUTOCAST_DTYPE = "torch_autocast.dtype"

_REFUSES_FP16 = (0, 13, 0)
"""The first release whose training engine asks the device for fp16. Source: deepspeed/runtime/engine.py of 0.12.6 and 0.13.0."""

_NAMES_DEVICE = (0, 16, 0)
"""The first release whose error says "on your device". Source: deepspeed/runtime/engine.py of 0.15.4 and 0.16.0."""

_DEVICE = " on your device"

_ALLOWS_FP16 = (0, 13, 2)
"""The first release that reads DS_ALLOW_DEPRECATED_FP16. Source: accelerator/cuda_accelerator.py of 0.13.1 and 0.13.2."""

_TRAINER_ASKS_TORCH = (4, 35, 0)
"""The first release of transformers that leaves it to PyTorch whether a GPU has bf16. Source: transformers/utils/import_utils.py,
is_torch_bf16_gpu_available, of 4.34.1 and 4.35.2."""

_TORCH_EMULATES = (2, 3, 0)
"""The first release of PyTorch whose `is_bf16_supported` is true on a GPU that emulates bf16. Source: pytorch/pytorch pull request 115924."""


@rule(
    "DS323",
    effect=Effect.SLOW,
    needs=("gpu",),
    references=("deepspeed/accelerator/cuda_accelerator.py, CUDA_Accelerator.is_bf16_supported",),
    watches=("bf16.enabled", "bfloat16.enabled", AUTOCAST_DTYPE),
)
@bad(
    BF16_ON,
    at="bf16.enabled",
    gpu="v100",
    message='A v100 (compute capability 7.0) has no bf16 arithmetic: depending on the PyTorch release, DeepSpeed raises ValueError "Type bf16 is not supported on your device", or PyTorch emulates bf16, which is slower than fp32.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": false}, "fp16": {"enabled": true}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "torch_autocast": {"enabled": true, "dtype": "bf16"}}',
    at=AUTOCAST_DTYPE,
    gpu="t4",
    message='A t4 (compute capability 7.5) has no bf16 arithmetic: depending on the PyTorch release, DeepSpeed raises ValueError "Type bf16 is not supported on your device", or PyTorch emulates bf16, which is slower than fp32.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "torch_autocast": {"enabled": true, "dtype": "fp16"}}',
)
@bad(
    BF16_ON,
    at="bf16.enabled",
    gpu="p100",
    deepspeed="0.15.4",
    message='A p100 (compute capability 6.0) has no bf16 arithmetic: depending on the PyTorch release, DeepSpeed raises ValueError "Type bf16 is not supported", or PyTorch emulates bf16, which is slower than fp32.',
)
@bad(
    BF16_ON,
    at="bf16.enabled",
    gpu="v100",
    integration="transformers",
    pins={"transformers": Release(4, 30, 2)},
    message='A v100 (compute capability 7.0) has no bf16 arithmetic: the Hugging Face Trainer raises ValueError "Your setup doesn\'t support bf16".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": false}, "fp16": {"enabled": true}}',
)
@bad(
    BF16_ON,
    at="bf16.enabled",
    gpu="v100",
    integration="transformers",
    pins={"transformers": Release(4, 41, 2)},
    message='A v100 (compute capability 7.0) has no bf16 arithmetic: depending on the PyTorch release, the Hugging Face Trainer raises ValueError "Your setup doesn\'t support bf16", or PyTorch emulates bf16, which is slower than fp32.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": false}, "fp16": {"enabled": true}}',
)
@bad(
    BF16_ON,
    at="bf16.enabled",
    gpu="t4",
    pins={"torch": Release(2, 2, 2)},
    message='A t4 (compute capability 7.5) has no bf16 arithmetic: DeepSpeed raises ValueError "Type bf16 is not supported on your device".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": false}, "fp16": {"enabled": true}}',
)
@good(BF16_ON, gpu="a100")
@good(FP16_ON, gpu="v100")
def bf16_on_older_gpu(config: Config) -> Iterator[Finding]:
    """bf16 is enabled on a GPU that does not compute in it.

    Tensor cores support bf16 from Ampere (compute capability 8.0) on. On older GPUs the outcome depends on PyTorch: with older releases
    DeepSpeed raises `ValueError: Type bf16 is not supported on your device`; from 2.3 on they emulate bf16, which is slower than fp32. The
    Hugging Face Trainer asks first, and raises `Your setup doesn't support bf16/gpu`: with PyTorch before 2.3, and before transformers 4.35
    with every release.

    Use fp16 on these GPUs, or fp32 if the model was trained in bf16 and overflows in fp16.
    """
    gpu = config.facts.gpu
    if gpu is None or gpu.has_bf16:
        return
    section = bf16_section(config)
    if config.enabled(section) is True:
        key = f"{section}.enabled"
    elif config.enabled("torch_autocast") is True and dtype_of(config, AUTOCAST_DTYPE) == "bf16":
        key = AUTOCAST_DTYPE
    else:
        return
    capability = ".".join(map(str, gpu.capability or ()))
    trainer = config.facts.integration is Integration.TRANSFORMERS and key != AUTOCAST_DTYPE
    release, torch = config.context.pinned("transformers"), config.context.pinned("torch")
    crashes = (trainer and release is not None and release < _TRAINER_ASKS_TORCH) or (torch is not None and torch < _TORCH_EMULATES)
    error = (
        "the Hugging Face Trainer raises ValueError \"Your setup doesn't support bf16"
        if trainer
        else f'DeepSpeed raises ValueError "Type bf16 is not supported{_DEVICE if config.release >= _NAMES_DEVICE else ""}'
    )
    then = f'{error}".' if crashes else f'depending on the PyTorch release, {error}", or PyTorch emulates bf16, which is slower than fp32.'
    yield Finding(
        key,
        f"A {gpu} (compute capability {capability}) has no bf16 arithmetic: {then}",
        help=_other_than_bf16(config, gpu),
        fix=_use_fp16(config, key, section),
        costly=True,
        effect=Effect.CRASH if crashes else None,
        phase=(Phase.LOAD if trainer else Phase.INITIALIZE) if crashes else None,
    )


def _other_than_bf16(config: Config, gpu: Gpu) -> str:
    if config.release >= _REFUSES_FP16 and gpu.capability is not None and gpu.capability < FP16_CAPABILITY:
        return "Use fp32 on this GPU: DeepSpeed refuses fp16 on it, too."
    also = _also_in_arguments(config, "bf16")
    return f"Use fp16 on this GPU{also}{_peaks(gpu)}." + slower(config, lambda job: job.but(precision="fp16"))


def _also_in_arguments(config: Config, name: str) -> str:
    """That the arguments of the training select the same precision, which they have to leave as well."""
    arguments = config.arguments
    return f", also in {arguments.path}" if arguments is not None and arguments.value(name) is True else ""


def _peaks(gpu: Gpu) -> str:
    """What bf16 costs on a GPU, as the end of a sentence."""
    from dslint.speed.hardware import hardware_of

    hardware = hardware_of(gpu)
    if hardware.half <= hardware.bf16:
        return ""
    ratio = hardware.half / hardware.bf16
    return f": its matrix products reach {hardware.half:g} TFLOPS in fp16, and at most {hardware.bf16:g} in bf16, {ratio:.0f} times slower"


def _use_fp16(config: Config, key: str, section: str) -> FixPlan | None:
    """Replace bf16 by fp16; None if the GPU supports neither, or other settings mention bf16."""
    gpu = config.facts.gpu
    if gpu is None or gpu.capability is None or gpu.capability < FP16_CAPABILITY or config.has("data_types"):
        return None
    if key == AUTOCAST_DTYPE:
        return write(config, key, '"fp16"')
    return switched(config, on="fp16", off=section) if len(getattr(config.node(section), "members", ())) == 1 else None


@rule(
    "DS324",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    needs=("gpu",),
    untried="it takes a GPU of compute capability 6",
    references=("deepspeed/accelerator/cuda_accelerator.py, CUDA_Accelerator.is_fp16_supported",),
    watches=("fp16.enabled",),
)
@bad(
    FP16_ON,
    at="fp16.enabled",
    gpu="p100",
    message='A p100 has compute capability 6.0, below 7.0: DeepSpeed raises ValueError "Type fp16 is not supported on your device".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false}}',
)
@good(FP16_ON, gpu="p100", deepspeed="0.12.6")
@good(FP16_ON, gpu="v100")
def fp16_on_older_gpu(config: Config) -> Iterator[Finding]:
    """fp16 is enabled on a GPU on which DeepSpeed does not train in it.

    Below compute capability 7.0 DeepSpeed raises `ValueError: Type fp16 is not supported on your device.` On capability 6 the environment
    variable `DS_ALLOW_DEPRECATED_FP16=1` allows it, but without tensor cores fp16 is not faster.

    Train in fp32 on such GPUs.
    """
    gpu = config.facts.gpu
    if config.release < _REFUSES_FP16 or config.enabled("fp16") is not True:
        return
    if gpu is None or gpu.capability is None or gpu.capability >= FP16_CAPABILITY:
        return
    also = _also_in_arguments(config, "fp16")
    yield Finding(
        "fp16.enabled",
        f'A {gpu} has compute capability {gpu.capability[0]}.{gpu.capability[1]}, below 7.0: DeepSpeed raises ValueError "Type fp16 is not supported{_DEVICE if config.release >= _NAMES_DEVICE else ""}".',
        help=f"Disable fp16{also}, or set DS_ALLOW_DEPRECATED_FP16=1 in the environment."
        if config.release >= _ALLOWS_FP16
        else f"Disable fp16{also}.",
        fix=switched(config, off="fp16"),
    )


OVERFLOWING_FAMILIES: dict[str, str] = {
    "t5": "T5",
    "mt5": "mT5",
    "umt5": "umT5",
    "longt5": "LongT5",
    "gemma": "Gemma",
    "gemma2": "Gemma 2",
    "gemma3": "Gemma 3",
    "gemma3_text": "Gemma 3",
}
"""Model families with activations that are known to exceed the range of fp16, with their names."""


def _model(family: str, dtype: str) -> Any:
    return {"model_type": family, "hidden_size": 2048, "dtype": dtype}


@rule(
    "DS325",
    effect=Effect.ADVICE,
    needs=("model",),
    references=("https://github.com/huggingface/transformers/issues/14531", "https://github.com/deepspeedai/DeepSpeed/issues/643"),
    watches=("fp16.enabled",),
)
@bad(
    FP16_ON,
    at="fp16.enabled",
    model=_model("gemma2", "bfloat16"),
    message="Gemma 2 is known to overflow in fp16: DeepSpeed may skip step after step, without an end: without ZeRO the loss scale stays at its minimum.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false}, "bf16": {"enabled": true}}',
)
@bad(
    FP16_ON,
    at="fp16.enabled",
    model=_model("llama", "bfloat16"),
    message="The weights of config.json are bfloat16, which has a larger range than fp16: values beyond 65504 overflow, and DeepSpeed skips the step.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false}, "bf16": {"enabled": true}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale": 512}}',
    at="fp16.enabled",
    model=_model("gemma2", "bfloat16"),
    message="Gemma 2 is known to overflow in fp16: DeepSpeed may skip step after step, without an end, as the loss scale is static.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false, "loss_scale": 512}, "bf16": {"enabled": true}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
    at="fp16.enabled",
    model=_model("gemma2", "bfloat16"),
    message="Gemma 2 is known to overflow in fp16: DeepSpeed may skip step after step, and end the run when the loss scale reaches its minimum.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false}, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}',
)
@good(BF16_ON, model=_model("gemma2", "bfloat16"))
@good(FP16_ON, model=_model("gpt2", "float16"))
def fp16_for_bf16_model(config: Config) -> Iterator[Finding]:
    """A model with bf16 weights is trained in fp16, which ends at 65504.

    Models that were trained in bf16 can have activations beyond the range of fp16. DeepSpeed then skips step after step; under ZeRO it ends
    the run with "Current loss scale already at minimum - cannot decrease scale anymore". T5 and Gemma are known for it; many other models train
    well.

    Enable bf16 if the GPU supports it (Ampere and newer).
    """
    model = config.facts.model
    if model is None or config.enabled("fp16") is not True or runs_without_optimizer(config):
        return
    gpu = config.facts.gpu
    also = _also_in_arguments(config, "fp16")
    help_ = (
        f"Enable bf16 instead{also}." if gpu is None or gpu.has_bf16 else "This GPU has no bf16; train in fp32 if steps keep overflowing."
    )
    if model.family in OVERFLOWING_FAMILIES:
        yield Finding(
            "fp16.enabled",
            f"{OVERFLOWING_FAMILIES[model.family]} is known to overflow in fp16: DeepSpeed may skip step after step{_end(config)}.",
            help=help_,
            fix=_use_bf16(config),
            costly=True,
        )
    elif model.dtype in ("bfloat16", "bf16"):
        yield Finding(
            "fp16.enabled",
            f"The weights of {model} are bfloat16, which has a larger range than fp16: values beyond 65504 overflow, and DeepSpeed skips the step.",
            help=help_,
            fix=_use_bf16(config),
        )


def _end(config: Config) -> str:
    """How it ends if every step overflows, as the end of a sentence. Only the loss scaler of ZeRO raises at the minimum."""
    if config.value("fp16.loss_scale") > 0:
        return ", without an end, as the loss scale is static"
    if config.value(STAGE) >= 1:
        return ", and end the run when the loss scale reaches its minimum"
    return ", without an end: without ZeRO the loss scale stays at its minimum" if config.value(STAGE) == 0 else ""


def _use_bf16(config: Config) -> FixPlan | None:
    """Replace fp16 by bf16; None if the GPU does not support it, or other settings mention fp16."""
    gpu = config.facts.gpu
    if (gpu is not None and not gpu.has_bf16) or config.has("data_types") or config.has("bfloat16"):
        return None
    return switched(config, on="bf16", off="fp16")
