"""DS3: the data types of parameters, gradients, communication and autocast, and those that the hardware and the model bear."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase, Severity
from dslint.rule import Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import switched, without, write
from dslint.rules.helpers.precision import bf16_section, dtype_of, model_dtype
from dslint.source.tree import Sequence

ENGINE = "deepspeed/runtime/engine.py"
AUTOCAST = "deepspeed/runtime/torch_autocast.py"
STAGE = "zero_optimization.stage"

SAFE_MODULES = ("Linear", "Conv1d", "Conv2d", "Conv3d")
"""Classes of torch.nn that autocast lowers by default: what these names mean is plain."""


def half_type(config: Config) -> str:
    """The half-precision type to take, as JSON: bf16, unless the GPU is known not to have it."""
    return '"bf16"' if config.facts.gpu is None or config.facts.gpu.has_bf16 else '"fp16"'


def _mode(config: Config, dtype: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """How the model's type came about, in words and as a place."""
    if dtype == "fp32":
        return "neither fp16 nor bf16 is on", ()
    section = "fp16" if dtype == "fp16" else bf16_section(config)
    return f"{section} is on", ((f"{section}.enabled", f"{section} is enabled here"),)


@rule(
    "DS315",
    "param-dtype-conflict",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=(f"{ENGINE}, DeepSpeedEngine._assert_valid_mixed_precision_config",),
    watches=("data_types.param_dtype",),
)
@bad(trained('"bf16": {"enabled": true}, "data_types": {"param_dtype": "fp16"}'), at="data_types.param_dtype")
@bad(trained('"data_types": {"param_dtype": "bf16"}'), at="data_types.param_dtype")
@good(trained('"bf16": {"enabled": true}, "data_types": {"param_dtype": "bfloat16"}'))
@good(trained('"data_types": {"param_dtype": "fp32"}'))
def param_dtype_conflict(config: Config) -> Iterator[Finding]:
    """`data_types.param_dtype` contradicts fp16 and bf16, which decide the type of the parameters.

    The key chooses nothing: DeepSpeed 0.19.2 and newer compare it with the enabled mode and raise an `AssertionError` where they differ. Alone, with
    neither fp16 nor bf16 on, only fp32 passes.

    Remove it and enable `fp16` or `bf16`.
    """
    key = "data_types.param_dtype"
    wanted, dtype = dtype_of(config, key), model_dtype(config)
    if config.release < (0, 19, 2) or wanted is None or dtype is None or wanted == dtype:
        return
    why, place = _mode(config, dtype)
    yield Finding(
        key,
        f"param_dtype {config.quote(key)} contradicts the mode of training, {dtype} ({why}): DeepSpeed raises an AssertionError in deepspeed.initialize.",
        help=f'Remove it, or enable "{wanted}".' if wanted in ("fp16", "bf16") else "Remove it.",
        fix=_agreed(config, wanted, dtype),
        related=place,
    )


def _agreed(config: Config, wanted: str, dtype: str) -> FixPlan | None:
    """Enable the type that is asked for where nothing is said about a mode; otherwise the mode is the one to keep."""
    if dtype == "fp32" and wanted in ("fp16", "bf16") and not any(config.has(section) for section in ("fp16", "bf16", "bfloat16")):
        return switched(config, on=wanted)
    return without(config, "data_types.param_dtype", Applicability.UNSAFE)


@rule(
    "DS316",
    "accumulation-dtype-without-zero",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=(f"{ENGINE}, DeepSpeedEngine._do_optimizer_sanity_check",),
    watches=("data_types.grad_accum_dtype",),
)
@bad(trained('"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}'), at="data_types.grad_accum_dtype")
@bad(
    trained('"zero_optimization": {"stage": 0}, "data_types": {"grad_accum_dtype": "fp16"}'),
    at="data_types.grad_accum_dtype",
)
@good(trained('"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1}'))
@good(trained('"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "bf16"}'))
def accumulation_dtype_without_zero(config: Config) -> Iterator[Finding]:
    """Without ZeRO gradients are accumulated in the model's own type, and in no other.

    Where `data_types.grad_accum_dtype` differs from it at stage 0, DeepSpeed raises `NotImplementedError: unsupported mix of model_dtype and
    grad_accum_dtype`. ZeRO stages 1 to 3 keep a gradient buffer in any type.

    Set a ZeRO stage, or remove the key.
    """
    key = "data_types.grad_accum_dtype"
    wanted, dtype = dtype_of(config, key), model_dtype(config)
    if wanted is None or dtype is None or wanted == dtype or not config.value(STAGE) == 0:  # noqa: SIM201 - UNKNOWN is neither
        return
    why, place = _mode(config, dtype)
    yield Finding(
        key,
        f"grad_accum_dtype {config.quote(key)} differs from the model's type, {dtype} ({why}), which needs ZeRO: at stage 0 DeepSpeed raises NotImplementedError in deepspeed.initialize.",
        help='Set "zero_optimization": {"stage": 1} or higher, or remove it.',
        fix=without(config, key, Applicability.UNSAFE),
        related=(*place, *(((STAGE, "the stage is set here"),) if config.has(STAGE) else ())),
    )


@rule(
    "DS317",
    "accumulates-in-fp16",
    effect=Effect.SILENT,
    references=(f"{ENGINE}, DeepSpeedEngine.get_data_types", "https://www.deepspeed.ai/docs/config-json/#data-type-options"),
    watches=("data_types.grad_accum_dtype",),
)
@bad(
    trained('"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp16"}, "zero_optimization": {"stage": 2}'),
    at="data_types.grad_accum_dtype",
)
@bad(trained('"data_types": {"grad_accum_dtype": "int8"}, "zero_optimization": {"stage": 2}'), at="data_types.grad_accum_dtype")
@good(trained('"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 2}'))
@good(trained('"fp16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp16"}, "zero_optimization": {"stage": 2}'))
def accumulates_in_fp16(config: Config) -> Iterator[Finding]:
    """Gradients are summed up in a type that cannot hold them: fp16 without a loss scale, or 8-bit integers.

    fp16 holds numbers from 6e-8 to 65504. Only fp16 training has a loss scale that keeps gradients in that range; in a bf16 or fp32 run those that are small become
    0 in the accumulator. `int8` is accepted too, and makes every gradient below 1 a 0. DeepSpeed says nothing.

    Write "fp32", which is exact, or leave the key out.
    """
    key, dtype = "data_types.grad_accum_dtype", model_dtype(config)
    wanted = dtype_of(config, key)
    if not config.value(STAGE) > 0:
        return
    if wanted == "int8":
        consequence = "sums gradients in 8-bit integers: every gradient between -1 and 1 becomes 0, and nothing is learned"
    elif dtype in ("bf16", "fp32") and wanted == "fp16":
        consequence = f"sums the gradients of a {dtype} run in fp16, where no loss scale keeps them in range: those below 6e-8 become 0"
    else:
        return
    yield Finding(
        key,
        f"grad_accum_dtype {config.quote(key)} {consequence}.",
        help='Write "fp32", or leave it out.',
        fix=write(config, key, '"fp32"'),
        related=_mode(config, dtype)[1] if dtype and wanted == "fp16" else (),
    )


@rule(
    "DS318",
    "communicates-in-fp16",
    effect=Effect.SILENT,
    references=(f"{ENGINE}, DeepSpeedEngine.communication_data_type", "https://www.deepspeed.ai/docs/config-json/#communication-options"),
    watches=("communication_data_type",),
)
@bad(trained('"bf16": {"enabled": true}, "communication_data_type": "fp16"'), at="communication_data_type")
@good(trained('"bf16": {"enabled": true}, "communication_data_type": "fp32"'))
@good(trained('"fp16": {"enabled": true}, "communication_data_type": "fp16"'))
def communicates_in_fp16(config: Config) -> Iterator[Finding]:
    """Gradients of a bf16 run are averaged over the ranks in fp16, without a loss scale.

    `communication_data_type` is what gradients are cast to before they are reduced. bf16 has the range of fp32; fp16 ends at 65504 and at 6e-8. Larger
    gradients become infinite on the way and smaller ones 0.

    Write "bf16" or "fp32", or leave the key out: DeepSpeed then takes bf16.
    """
    key = "communication_data_type"
    if model_dtype(config) == "bf16" and dtype_of(config, key) == "fp16":
        yield Finding(
            key,
            f"communication_data_type {config.quote(key)} averages the gradients of a bf16 run in fp16, which has no loss scale here: those above 65504 become infinite, those below 6e-8 become 0.",
            help='Write "bf16" or "fp32", or leave it out.',
            fix=write(config, key, '"bf16"'),
            related=_mode(config, "bf16")[1],
        )


@rule(
    "DS319",
    "autocast-with-quantized-weights",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=(f"{AUTOCAST}, _validate_auto_cast_settings",),
    watches=("torch_autocast.enabled",),
)
@bad(
    trained('"torch_autocast": {"enabled": true, "dtype": "bf16"}, "zero_optimization": {"stage": 3, "zero_quantized_weights": true}'),
    at="torch_autocast.enabled",
)
@good(trained('"torch_autocast": {"enabled": true, "dtype": "bf16"}, "zero_optimization": {"stage": 3}'))
@good(trained('"torch_autocast": {"enabled": false}, "zero_optimization": {"stage": 2, "zero_quantized_weights": true}'))
def autocast_with_quantized_weights(config: Config) -> Iterator[Finding]:
    """torch_autocast and ZeRO++'s quantized weights exclude each other, at every ZeRO stage.

    DeepSpeed raises `AssertionError: Cannot enable both torch autocast and zero quantized weights` in `deepspeed.initialize`.

    Keep one of them; beside quantized weights, `bf16` or `fp16`.
    """
    key = "zero_optimization.zero_quantized_weights"
    if config.release >= (0, 17, 2) and config.enabled("torch_autocast") is True and config.value(key) is True:
        yield Finding(
            "torch_autocast.enabled",
            'torch_autocast does not go with zero_quantized_weights: DeepSpeed raises AssertionError "Cannot enable both torch autocast and zero quantized weights".',
            help="Disable one of them; beside quantized weights use bf16 or fp16.",
            related=((key, "weights are quantized here"),),
        )


@rule(
    "DS320",
    "autocast-module-without-path",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=(f"{AUTOCAST}, init_autocast_params",),
    watches=("torch_autocast.lower_precision_safe_modules",),
)
@bad(
    trained('"torch_autocast": {"enabled": true, "dtype": "bf16", "lower_precision_safe_modules": ["Linear"]}'),
    at=("torch_autocast", "lower_precision_safe_modules", 0),
)
@good(trained('"torch_autocast": {"enabled": true, "dtype": "bf16", "lower_precision_safe_modules": ["torch.nn.Linear"]}'))
@good(trained('"torch_autocast": {"enabled": false, "lower_precision_safe_modules": ["Linear"]}'))
def autocast_module_without_path(config: Config) -> Iterator[Finding]:
    """A module class of `lower_precision_safe_modules` is named without the module it is imported from.

    DeepSpeed splits each entry at its last dot into a module and a class, and raises `ValueError: Failed to import lower precision safe module` where
    there is none.

    Write the whole path: `torch.nn.Linear`.
    """
    key = "torch_autocast.lower_precision_safe_modules"
    entries = config.node(key)
    if config.release < (0, 17, 2) or config.enabled("torch_autocast") is not True or not isinstance(entries, Sequence):
        return
    for index, entry in enumerate(entries.items):
        name = getattr(entry, "value", None)
        if isinstance(name, str) and "." not in name:
            yield Finding(
                ("torch_autocast", "lower_precision_safe_modules", index),
                f'"{name}" has no module to import it from: DeepSpeed raises ValueError "Failed to import lower precision safe module {name}".',
                help=f'Write the whole path, such as "torch.nn.{name}".',
                fix=write(config, ("torch_autocast", "lower_precision_safe_modules", index), f'"torch.nn.{name}"', Applicability.SAFE)
                if name in SAFE_MODULES
                else None,
            )


@rule(
    "DS321", "autocast-to-fp32", effect=Effect.IGNORED, references=(f"{AUTOCAST}, autocast_if_enabled",), watches=("torch_autocast.dtype",)
)
@bad(trained('"torch_autocast": {"enabled": true, "dtype": "fp32"}'), at="torch_autocast.dtype")
@good(trained('"torch_autocast": {"enabled": true, "dtype": "bf16"}'))
@good(trained('"torch_autocast": {"enabled": false, "dtype": "fp32"}'))
def autocast_to_fp32(config: Config) -> Iterator[Finding]:
    """Autocast to fp32 lowers no precision.

    `torch.autocast` picks the type of every operation, and saves memory and time where that is bf16 or fp16. With fp32 everything is computed in fp32, which costs
    what it cost before; on some devices PyTorch warns that the type is not supported and switches autocast off.

    Write "bf16", or "fp16" on GPUs without bf16.
    """
    key = "torch_autocast.dtype"
    if config.release >= (0, 17, 2) and config.enabled("torch_autocast") is True and dtype_of(config, key) in ("fp32", "int8"):
        yield Finding(
            key,
            f"torch_autocast to {config.quote(key)} lowers no precision: only with bf16 or fp16 does autocast save memory and time.",
            help='Write "bf16", or "fp16" on GPUs without bf16.',
            fix=write(config, key, half_type(config)),
        )


@rule(
    "DS333",
    "autocast-without-dtype",
    effect=Effect.SILENT,
    references=("deepspeed/runtime/config.py, get_torch_autocast_dtype", "https://pytorch.org/docs/stable/amp.html"),
    watches=("torch_autocast.enabled",),
)
@bad(trained('"torch_autocast": {"enabled": true}'), at="torch_autocast.enabled")
@good(trained('"torch_autocast": {"enabled": true, "dtype": "bf16"}'))
@good(trained('"torch_autocast": {"enabled": false}'))
def autocast_without_dtype(config: Config) -> Iterator[Finding]:
    """Autocast without a type is autocast to fp16 on a GPU, without a loss scale.

    DeepSpeed hands `dtype` on as it is written; where it is missing PyTorch takes its own default, which is fp16 on NVIDIA GPUs. DeepSpeed scales the loss where "fp16"
    is written, and so does not here: small gradients become 0.

    Write `"dtype": "bf16"`; or "fp16", and the loss is scaled.
    """
    if config.release >= (0, 17, 2) and config.enabled("torch_autocast") is True and not config.has("torch_autocast.dtype"):
        if config.enabled("fp16") is True:
            return  # its loss scale is there
        yield Finding(
            "torch_autocast.enabled",
            "torch_autocast has no dtype: PyTorch takes fp16 on a GPU, and DeepSpeed, which scales the loss where fp16 is written, does not: small gradients become 0.",
            help='Add "dtype": "bf16", or "fp16" on GPUs without bf16.',
            fix=write(config, "torch_autocast.dtype", half_type(config)),
        )


@rule(
    "DS322",
    "autocast-beside-fp16",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    references=(f"{ENGINE}, DeepSpeedEngine._take_model_step",),
    watches=("torch_autocast.dtype",),
)
@bad(trained('"torch_autocast": {"enabled": true, "dtype": "fp16"}, "fp16": {"enabled": true}'), at="torch_autocast.enabled")
@good(trained('"torch_autocast": {"enabled": true, "dtype": "fp16"}'))
@good(trained('"torch_autocast": {"enabled": true, "dtype": "fp16"}, "fp16": {"enabled": true}, "zero_optimization": {"stage": 1}'))
def autocast_beside_fp16(config: Config) -> Iterator[Finding]:
    """Without ZeRO, fp16 and autocast to fp16 each bring a loss scale of their own, and the two do not work together.

    At stage 0 autocast to fp16 uses PyTorch's `GradScaler`, which looks for gradients in the parameters that it knows and finds those of DeepSpeed's fp16
    optimizer instead: `AssertionError: No inf checks were recorded for this optimizer` at the first step.

    Keep one of the two sections.
    """
    if (
        config.release >= (0, 17, 2)
        and config.enabled("torch_autocast") is True
        and config.enabled("fp16") is True
        and dtype_of(config, "torch_autocast.dtype") == "fp16"
        and config.value(STAGE) == 0
    ):
        yield Finding(
            "torch_autocast.enabled",
            'torch_autocast and fp16 are both on, without ZeRO: their two loss scales clash, and DeepSpeed raises AssertionError "No inf checks were recorded for this optimizer" at the first step.',
            help="Disable one of the two.",
            related=(("fp16.enabled", "fp16 is enabled here"),),
        )


@rule(
    "DS323",
    "bf16-on-older-gpu",
    effect=Effect.SLOW,
    needs=("gpu",),
    references=("deepspeed/accelerator/cuda_accelerator.py, CUDA_Accelerator.is_bf16_supported",),
    watches=("bf16.enabled", "bfloat16.enabled", "torch_autocast.dtype"),
)
@bad('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}', at="bf16.enabled", gpu="v100")
@bad('{"train_micro_batch_size_per_gpu": 4, "torch_autocast": {"enabled": true, "dtype": "bf16"}}', at="torch_autocast.dtype", gpu="t4")
@good('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}', gpu="a100")
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}}', gpu="v100")
def bf16_on_older_gpu(config: Config) -> Iterator[Finding]:
    """bf16 is on, and the GPU does not compute in it.

    Tensor cores take bf16 from Ampere (compute capability 8.0) on. On older GPUs what happens depends on PyTorch: the older releases make DeepSpeed raise
    `ValueError: Type bf16 is not supported on your device`, the newer ones emulate bf16, slower than fp32.

    Use fp16 on these GPUs, or fp32 where the model was trained in bf16 and overflows in fp16.
    """
    gpu = config.facts.gpu
    if gpu is None or gpu.has_bf16:
        return
    section = bf16_section(config)
    if config.enabled(section) is True:
        key = f"{section}.enabled"
    elif config.enabled("torch_autocast") is True and dtype_of(config, "torch_autocast.dtype") == "bf16":
        key = "torch_autocast.dtype"
    else:
        return
    capability = ".".join(map(str, gpu.capability or ()))
    yield Finding(
        key,
        f'A {gpu} (compute capability {capability}) has no bf16 arithmetic: depending on the PyTorch release DeepSpeed raises ValueError "Type bf16 is not supported on your device", or bf16 is emulated, slower than fp32.',
        help="Use fp16 on this GPU.",
        fix=_in_fp16(config, key, section),
        severity=Severity.WARNING,
    )


def _in_fp16(config: Config, key: str, section: str) -> FixPlan | None:
    """Take fp16 for bf16; nothing where the GPU has neither, or settings of bf16 speak of it elsewhere."""
    gpu = config.facts.gpu
    if gpu is None or gpu.capability is None or gpu.capability < (7, 0) or config.has("data_types"):
        return None
    if key == "torch_autocast.dtype":
        return write(config, key, '"fp16"')
    return switched(config, on="fp16", off=section) if len(getattr(config.node(section), "members", ())) == 1 else None


@rule(
    "DS324",
    "fp16-on-older-gpu",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    needs=("gpu",),
    untried="it takes a GPU of compute capability 6",
    references=("deepspeed/accelerator/cuda_accelerator.py, CUDA_Accelerator.is_fp16_supported",),
    watches=("fp16.enabled",),
)
@bad('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}}', at="fp16.enabled", gpu="p100")
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}}', gpu="v100")
def fp16_on_older_gpu(config: Config) -> Iterator[Finding]:
    """fp16 is on, and DeepSpeed does not train in it on this GPU.

    Below compute capability 7.0 it raises `ValueError: Type fp16 is not supported on your device.` On capability 6 the environment variable
    `DS_ALLOW_DEPRECATED_FP16=1` lets it pass, without tensor cores and so without the speed.

    Train in fp32 on such GPUs.
    """
    gpu = config.facts.gpu
    if (
        config.release < (0, 12, 6)
        or gpu is None
        or gpu.capability is None
        or config.enabled("fp16") is not True
        or gpu.capability >= (7, 0)
    ):
        return
    yield Finding(
        "fp16.enabled",
        f'A {gpu} is of compute capability {gpu.capability[0]}.{gpu.capability[1]}, below 7.0: DeepSpeed raises ValueError "Type fp16 is not supported on your device".',
        help="Disable fp16, or set DS_ALLOW_DEPRECATED_FP16=1 in the environment.",
        fix=switched(config, off="fp16"),
    )


OVERFLOWING: dict[str, str] = {
    "t5": "T5",
    "mt5": "mT5",
    "umt5": "umT5",
    "longt5": "LongT5",
    "gemma": "Gemma",
    "gemma2": "Gemma 2",
    "gemma3": "Gemma 3",
    "gemma3_text": "Gemma 3",
}
"""Families whose activations are known to leave the range of fp16."""


def _model(family: str, dtype: str) -> Any:
    from dslint.facts.model_config import describe

    return describe({"model_type": family, "hidden_size": 2048, "dtype": dtype})


@rule(
    "DS325",
    "fp16-for-bf16-model",
    effect=Effect.ADVICE,
    needs=("model",),
    references=("https://github.com/huggingface/transformers/issues/14531", "https://github.com/deepspeedai/DeepSpeed/issues/643"),
    watches=("fp16.enabled",),
)
@bad('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}}', at="fp16.enabled", model=_model("gemma2", "bfloat16"))
@bad('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}}', at="fp16.enabled", model=_model("llama", "bfloat16"))
@good('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}', model=_model("gemma2", "bfloat16"))
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}}', model=_model("gpt2", "float16"))
def fp16_for_bf16_model(config: Config) -> Iterator[Finding]:
    """A model whose weights are bf16 is trained in fp16, which ends at 65504.

    Models that were trained in bf16 may hold activations beyond the range of fp16. Then steps overflow and are skipped one after the other, until DeepSpeed
    gives up with "Current loss scale already at minimum - cannot decrease scale anymore". T5 and Gemma are known for it; many others train well.

    Enable bf16 where the GPU has it (Ampere and newer).
    """
    model = config.facts.model
    if model is None or config.enabled("fp16") is not True:
        return
    gpu = config.facts.gpu
    help_ = "Enable bf16 instead." if gpu is None or gpu.has_bf16 else "This GPU has no bf16; train in fp32 if steps keep overflowing."
    if model.family in OVERFLOWING:
        yield Finding(
            "fp16.enabled",
            f"{OVERFLOWING[model.family]} is known to overflow in fp16: steps are skipped one after the other, and the loss scale falls to its minimum, where DeepSpeed ends the run.",
            help=help_,
            fix=_in_bf16(config),
            severity=Severity.WARNING,
        )
    elif model.dtype in ("bfloat16", "bf16"):
        yield Finding(
            "fp16.enabled",
            f"The weights of {model} are bfloat16, whose range fp16 does not have: what lies beyond 65504 overflows, and DeepSpeed skips the step.",
            help=help_,
            fix=_in_bf16(config),
        )


def _in_bf16(config: Config) -> FixPlan | None:
    """Take bf16 for fp16, where the GPU has it and no other setting speaks of fp16."""
    gpu = config.facts.gpu
    if (gpu is not None and not gpu.has_bf16) or config.has("data_types") or config.has("bfloat16"):
        return None
    return switched(config, on="bf16", off="fp16")
