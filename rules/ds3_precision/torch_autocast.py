"""DS3: torch_autocast: its type, its modules, and what it is not compatible with."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.precision import ENGINE, dtype_of
from dslint.rules.helpers.zero import STAGE
from dslint.source.tree import Sequence

SOURCE = "deepspeed/runtime/torch_autocast.py"
ENABLED = "torch_autocast.enabled"
DTYPE = "torch_autocast.dtype"
SAFE_MODULES = "torch_autocast.lower_precision_safe_modules"

TORCH_CLASSES = ("Linear", "Conv1d", "Conv2d", "Conv3d")
"""Classes of torch.nn that autocast lowers by default, so that their bare names are unambiguous."""


def _is_enabled(config: Config) -> bool:
    """Whether autocast is enabled, in a release that has the section."""
    return config.release >= (0, 17, 2) and config.enabled("torch_autocast") is True


def _half_dtype(config: Config) -> str:
    """The half-precision type to write, as JSON: bf16, unless the GPU is known not to support it."""
    return '"bf16"' if config.facts.gpu is None or config.facts.gpu.has_bf16 else '"fp16"'


_REFUSES_FP16, _TAKES_FP16 = Release(0, 17, 2), Release(0, 18, 3)
"""The releases between which DeepSpeedEngine asserts that only one of autocast and fp16 is enabled, by the sources of all of them."""


@rule(
    "DS319",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=(f"{SOURCE}, _validate_auto_cast_settings",),
    watches=(ENABLED,),
)
@bad(
    trained('"torch_autocast": {"enabled": true, "dtype": "bf16"}, "zero_optimization": {"stage": 3, "zero_quantized_weights": true}'),
    at=ENABLED,
    message='torch_autocast is not compatible with zero_quantized_weights: DeepSpeed raises AssertionError "Cannot enable both torch autocast and zero quantized weights".',
)
@good(trained('"torch_autocast": {"enabled": true, "dtype": "bf16"}, "zero_optimization": {"stage": 3}'))
@good(trained('"torch_autocast": {"enabled": false}, "zero_optimization": {"stage": 2, "zero_quantized_weights": true}'))
def autocast_with_quantized_weights(config: Config) -> Iterator[Finding]:
    """torch_autocast is enabled together with ZeRO++'s quantized weights, at any ZeRO stage.

    DeepSpeed raises `AssertionError: Cannot enable both torch autocast and zero quantized weights` in `deepspeed.initialize`.

    Keep one of them. With quantized weights, use `bf16` or `fp16`.
    """
    key = "zero_optimization.zero_quantized_weights"
    if _is_enabled(config) and config.value(key) is True:
        yield Finding(
            ENABLED,
            'torch_autocast is not compatible with zero_quantized_weights: DeepSpeed raises AssertionError "Cannot enable both torch autocast and zero quantized weights".',
            help="Disable one of them. With quantized weights, use bf16 or fp16.",
            related=((key, "weights are quantized here"),),
        )


@rule(
    "DS320",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=(f"{SOURCE}, init_autocast_params",),
    watches=(SAFE_MODULES,),
)
@bad(
    trained('"torch_autocast": {"enabled": true, "dtype": "bf16", "lower_precision_safe_modules": ["Linear"]}'),
    at=("torch_autocast", "lower_precision_safe_modules", 0),
    message='"Linear" has no module to import it from: DeepSpeed raises ValueError "Failed to import lower precision safe module Linear".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "torch_autocast": {"enabled": true, "dtype": "bf16", "lower_precision_safe_modules": ["torch.nn.Linear"]}}',
)
@good(trained('"torch_autocast": {"enabled": true, "dtype": "bf16", "lower_precision_safe_modules": ["torch.nn.Linear"]}'))
@good(trained('"torch_autocast": {"enabled": false, "lower_precision_safe_modules": ["Linear"]}'))
def autocast_module_without_path(config: Config) -> Iterator[Finding]:
    """An entry of `lower_precision_safe_modules` names a class without the module to import it from.

    DeepSpeed splits each entry at its last dot into a module and a class. Without a dot it raises `ValueError: Failed to import lower
    precision safe module`.

    Write the full path: `torch.nn.Linear`.
    """
    entries = config.node(SAFE_MODULES)
    if not _is_enabled(config) or not isinstance(entries, Sequence):
        return
    for index, entry in enumerate(entries.items):
        name = getattr(entry, "value", None)
        if isinstance(name, str) and "." not in name:
            path = ("torch_autocast", "lower_precision_safe_modules", index)
            yield Finding(
                path,
                f'"{name}" has no module to import it from: DeepSpeed raises ValueError "Failed to import lower precision safe module {name}".',
                help=f'Write the full path, such as "torch.nn.{name}".',
                fix=write(config, path, f'"torch.nn.{name}"', Applicability.SAFE) if name in TORCH_CLASSES else None,
            )


@rule("DS321", effect=Effect.IGNORED, references=(f"{SOURCE}, autocast_if_enabled",), watches=(DTYPE,))
@bad(
    trained('"torch_autocast": {"enabled": true, "dtype": "fp32"}'),
    at=DTYPE,
    message='torch_autocast to "fp32" does not lower the precision: autocast saves memory and time only with bf16 or fp16.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "torch_autocast": {"enabled": true, "dtype": "bf16"}}',
)
@good(trained('"torch_autocast": {"enabled": true, "dtype": "bf16"}'))
@good(trained('"torch_autocast": {"enabled": false, "dtype": "fp32"}'))
def autocast_to_fp32(config: Config) -> Iterator[Finding]:
    """torch_autocast to fp32 does not lower the precision.

    `torch.autocast` chooses the type of every operation, and saves memory and time with bf16 or fp16. With fp32 all operations run in fp32
    and cost the same as without it; on some devices PyTorch warns that the type is not supported and disables autocast.

    Write "bf16", or "fp16" on GPUs without bf16.
    """
    if _is_enabled(config) and dtype_of(config, DTYPE) in ("fp32", "int8"):
        yield Finding(
            DTYPE,
            f"torch_autocast to {config.quote(DTYPE)} does not lower the precision: autocast saves memory and time only with bf16 or fp16.",
            help=f"Write {_dtypes(config)}.",
            fix=write(config, DTYPE, _half_dtype(config)),
        )


@rule(
    "DS322",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    references=(f"{ENGINE}, DeepSpeedEngine._take_model_step",),
    watches=(DTYPE, ENABLED),
)
@bad(
    trained('"torch_autocast": {"enabled": true, "dtype": "fp16"}, "fp16": {"enabled": true}'),
    at=ENABLED,
    message='torch_autocast and fp16 are both enabled without ZeRO: their two loss scales conflict, and DeepSpeed raises AssertionError "No inf checks were recorded for this optimizer" at the first step.',
)
@bad(
    trained('"torch_autocast": {"enabled": true, "dtype": "bf16"}, "fp16": {"enabled": true}, "zero_optimization": {"stage": 1}'),
    at=ENABLED,
    deepspeed="0.17.6",
    message='torch_autocast and fp16 are both enabled: DeepSpeed before 0.18.3 raises AssertionError "Cannot enable both torch autocast and fp16" in deepspeed.initialize.',
)
@good(trained('"torch_autocast": {"enabled": true, "dtype": "fp16"}'))
@good(trained('"torch_autocast": {"enabled": true, "dtype": "fp16"}, "fp16": {"enabled": true}, "zero_optimization": {"stage": 1}'))
def autocast_with_fp16(config: Config) -> Iterator[Finding]:
    """fp16 and autocast to fp16 are both enabled without ZeRO, and their two loss scales conflict.

    At stage 0 autocast to fp16 uses PyTorch's `GradScaler`. It looks for gradients in the parameters that it knows, but they are in those of
    DeepSpeed's fp16 optimizer: PyTorch raises `AssertionError: No inf checks were recorded for this optimizer` at the first step. Releases from
    0.17.2 to 0.18.2 refuse the two sections at every stage.

    Keep one of the two sections.
    """
    both = _is_enabled(config) and config.enabled("fp16") is True
    if both and _REFUSES_FP16 <= config.release < _TAKES_FP16:
        yield Finding(
            ENABLED,
            f'torch_autocast and fp16 are both enabled: DeepSpeed before {_TAKES_FP16} raises AssertionError "Cannot enable both torch autocast '
            'and fp16" in deepspeed.initialize.',
            help="Disable one of the two.",
            related=(("fp16.enabled", "fp16 is enabled here"),),
            phase=Phase.INITIALIZE,
        )
    elif both and dtype_of(config, DTYPE) == "fp16" and config.value(STAGE) == 0:
        yield Finding(
            ENABLED,
            'torch_autocast and fp16 are both enabled without ZeRO: their two loss scales conflict, and DeepSpeed raises AssertionError "No inf checks were recorded for this optimizer" at the first step.',
            help="Disable one of the two.",
            related=(("fp16.enabled", "fp16 is enabled here"),),
        )


@rule(
    "DS333",
    effect=Effect.SILENT,
    references=("deepspeed/runtime/config.py, get_torch_autocast_dtype", "https://pytorch.org/docs/stable/amp.html"),
    watches=(ENABLED,),
)
@bad(
    trained('"torch_autocast": {"enabled": true}'),
    at=ENABLED,
    message="torch_autocast has no dtype: PyTorch uses fp16 on a GPU, but DeepSpeed scales the loss only if fp16 is written, and small gradients become 0.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "torch_autocast": {"enabled": true, "dtype": "bf16"}}',
)
@good(trained('"torch_autocast": {"enabled": true, "dtype": "bf16"}'))
@good(trained('"torch_autocast": {"enabled": false}'))
def autocast_without_dtype(config: Config) -> Iterator[Finding]:
    """Without a type, torch_autocast runs in fp16 on a GPU, without a loss scale.

    DeepSpeed passes `dtype` on as it is written. If it is missing, PyTorch uses its own default, which is fp16 on NVIDIA GPUs. DeepSpeed
    scales the loss only if "fp16" is written, so here small gradients become 0.

    Write `"dtype": "bf16"`, or `"dtype": "fp16"`, for which DeepSpeed scales the loss.
    """
    # with fp16 enabled, its loss scale applies
    if _is_enabled(config) and config.lacks(DTYPE) and config.enabled("fp16") is not True:
        yield Finding(
            ENABLED,
            "torch_autocast has no dtype: PyTorch uses fp16 on a GPU, but DeepSpeed scales the loss only if fp16 is written, and small gradients become 0.",
            help=f'Add "dtype": {_dtypes(config)}.',
            fix=write(config, DTYPE, _half_dtype(config)),
        )


def _dtypes(config: Config) -> str:
    """The types of autocast to choose from on the GPU."""
    return _half_dtype(config) if config.facts.gpu is not None else '"bf16", or "fp16" on GPUs without bf16'
