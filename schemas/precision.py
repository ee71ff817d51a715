"""Precision: `fp16`, `bf16` (`bfloat16` in old files), `torch_autocast`, `data_types`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from dslint.schemas.base import HandReadSection, PydanticSection
from dslint.schemas.marks import AutoIsReal, Bounds, Default, FractionByHand, NoBool, NullRaises, Raises, ReadWith, Since, Truthy

DTYPES = Literal[
    "fp16", "float16", "half", "torch.float16",
    "bf16", "bfloat16", "torch.bfloat16",
    "fp32", "float32", "float", "torch.float32",
    "int8", "torch.int8",
]  # fmt: skip
"""The spellings of data types that DeepSpeed accepts, all in lower case."""


class Fp16(PydanticSection):
    """Mixed precision training in fp16: fp16 parameters and gradients, fp32 master weights, and a loss scale that keeps gradients in range.

    Without `enabled: true` the section has no effect, and the model trains in the precision in which it was built.
    """

    forbids_since: ClassVar[str] = "0.17.1"

    enabled: Annotated[bool, Truthy()] = False
    """Train in fp16. Cannot be combined with `bf16`."""

    auto_cast: Annotated[bool, Truthy()] = False
    """Cast the inputs of the model's forward to fp16, even if `enabled` is false."""

    loss_scale: Annotated[float, NoBool("0.18.8"), Bounds("0.18.7")] = Field(default=0, ge=0, allow_inf_nan=False)
    """A fixed factor by which the loss is multiplied before the backward pass. 0 enables dynamic scaling."""

    initial_scale_power: Annotated[
        int,
        Default("0", 32),
        Default("0.8.0", 16),
        Raises("parse", "TypeError: unsupported operand type(s) for ** or pow(): 'int' and 'str'", lets=("bool", "float")),
        ReadWith("enabled"),
    ] = 16
    """The dynamic loss scale starts at 2 to this power. Each power above about 16 costs a skipped optimizer step at the start."""

    loss_scale_window: Annotated[int, NoBool("0.19.3")] = 1000
    """Optimizer steps without an overflow after which the dynamic loss scale is doubled. Must be above 0 for a dynamic scale."""

    hysteresis: int = 2
    """Overflows that are tolerated before the dynamic loss scale is halved. Read at ZeRO stage 1 and above."""

    consecutive_hysteresis: Annotated[bool, Since("0.9.3"), Truthy()] = False
    """Count only consecutive overflows for `hysteresis`: a step without one resets the count. Read at ZeRO stage 1 and above."""

    min_loss_scale: Annotated[int, NoBool("0.19.3"), FractionByHand()] = 1
    """The dynamic loss scale never falls below this. Must be above 0 for a dynamic scale."""

    fp16_master_weights_and_grads: Annotated[bool, Truthy(), ReadWith("enabled")] = False
    """Keep master weights and gradients in fp16 as well, which halves their memory at the cost of accuracy. Requires ZeRO with optimizer offload to
    the CPU and DeepSpeed's own CPU Adam; releases before 0.18.3 allow it at stage 2 only."""


class Bf16(PydanticSection):
    """Training in bf16: it has the range of fp32 and needs no loss scale; master weights are fp32 by default.

    Without `enabled: true` the section has no effect, and the model trains in the precision in which it was built.
    """

    forbids_since: ClassVar[str] = "0.17.1"

    enabled: Annotated[bool, Truthy()] = False
    """Train in bf16. Cannot be combined with `fp16`. Requires a GPU with bf16 support (NVIDIA Ampere or newer)."""

    immediate_grad_update: Annotated[
        bool, Since("0.13.3"), Default("0", value=False), Default("0.16.5", value=True), Default("0.17.1", value=False), Truthy()
    ] = False
    """Add each gradient to its fp32 accumulator as soon as it is computed instead of after the whole backward pass, which holds fewer
    gradients at a time. Read only by the optimizer for ZeRO stage 1 with `grad_accum_dtype` fp32 and for pipelines."""

    check_grad_overflow: Annotated[bool, Since("0.17.1"), Default("0", value=False), Default("0.19.3", value=True)] = True
    """Look for infinite and undefined gradients before every optimizer step and skip the step if there are any. Read at ZeRO stages 1
    and 2."""

    bf16_master_weights_and_grads: Annotated[bool, Since("0.18.3")] = False
    """Keep master weights and gradients in bf16 as well, which halves their memory at the cost of accuracy. Requires ZeRO, and either
    `bf16_optimizer_states` or offload to DeepSpeed's CPU Adam."""

    bf16_optimizer_states: Annotated[bool, Since("0.18.3")] = False
    """Keep the optimizer's moments in bf16, which halves their memory. Requires `bf16_master_weights_and_grads`."""


class TorchAutocast(HandReadSection):
    """PyTorch's own automatic mixed precision under ZeRO: parameters stay in fp32 and every operation picks its precision.

    An alternative to `fp16` and `bf16`, which store the parameters in half precision. Read since 0.17.2.
    """

    enabled: Annotated[bool, Truthy()] = False
    """Run the forward pass under `torch.autocast`."""

    dtype: Annotated[
        DTYPES | None,
        Raises("parse", "ValueError: 'x' is not a valid DtypeEnum"),
        NullRaises("parse", "ValueError: None is not a valid DtypeEnum"),
    ] = None
    """The data type of eligible operations: bf16 or fp16."""

    lower_precision_safe_modules: Annotated[
        list[str] | None,
        Raises("initialize", "ValueError: Failed to import lower precision safe module x"),
        Raises("parse", "TypeError: 'int' object is not iterable", only=("bool", "int", "float")),
        Raises("parse", "ValueError: Invalid module names for torch autocast", only=("list",)),
        NullRaises("parse", "TypeError: 'NoneType' object is not iterable"),
    ] = None
    """Import paths of module classes with parameters and gradients that may be communicated in lower precision
    (default: `torch.nn.Linear`, `torch.nn.Conv1d`, `torch.nn.Conv2d` and `torch.nn.Conv3d`)."""


class DataTypes(HandReadSection):
    """Data types that differ from that of the model."""

    grad_accum_dtype: Annotated[DTYPES | None, Raises("initialize", "ValueError: 'x' is not a valid DtypeEnum")] = None
    """The data type in which gradients are accumulated. Default: the type of the model. fp32 is more accurate with many
    accumulation steps and needs 4 bytes per parameter. Without ZeRO it must be the type of the model."""

    param_dtype: Annotated[DTYPES | None, Since("0.19.2"), Raises("initialize", "ValueError: 'x' is not a valid DtypeEnum")] = None
    """The data type of the parameters. It must match `fp16` and `bf16`, which determine it."""

    buffer_dtype: Annotated[DTYPES | None, Since("0.19.2"), Raises("initialize", "ValueError: 'x' is not a valid DtypeEnum")] = None
    """The data type to which the model's buffers are cast. Default: buffers stay as loaded. Read with fp16 or bf16."""

    keep_in_fp32_modules: Annotated[
        Literal["auto"] | list[str],
        Since("0.19.8"),
        AutoIsReal(),
        Raises("parse", 'DeepSpeedConfigError: data_types.keep_in_fp32_modules must be "auto" or a list of name patterns'),
    ] = "auto"
    """Name patterns of the buffers to keep in fp32 under fp16 or bf16. "auto" uses the model's own list, if it has one."""
