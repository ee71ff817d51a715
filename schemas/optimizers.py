"""The `optimizer` section, and what each type of optimizer takes as `params`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from dslint.schemas.base import HandReadSection, Parameters
from dslint.schemas.marks import NullRaises, OnlyFor, Open, Raises, Since, Truthy, Until


class Optimizer(HandReadSection):
    """The optimizer that DeepSpeed builds over the model's parameters. Without `type` the whole section does nothing."""

    type: Annotated[str | None, Raises("initialize", "AssertionError: x is not a supported DeepSpeed Optimizer")] = None
    """One of DeepSpeed's own optimizers, in any case (AdamW, Lion, Muon, ...), or a class of `torch.optim`, spelt as there (SGD)."""

    params: Annotated[dict[str, Any] | None, Open(), Raises("parse", "AttributeError: 'str' object has no attribute 'keys'")] = None
    """The optimizer's settings: the keyword arguments of its constructor."""

    legacy_fusion: Annotated[bool, Truthy()] = False
    """Use the older fused update. Read with fp16 or bf16, without ZeRO, and for Adam only."""


class Rated(Parameters):
    """What every optimizer takes."""

    lr: float = 0.001
    """Learning rate."""

    weight_decay: float = 0.0
    """How strongly weights are pulled to zero."""

    max_grad_norm: Annotated[
        float | None,
        Until(
            "0.0.0",
            then="raises",
            use="gradient_clipping",
            note="Gradients are clipped by the top-level key, for every optimizer.",
        ),
    ] = None
    """Refused for every optimizer, at any value."""


class Foreach(Parameters):
    """The switches of PyTorch's implementations that most of its optimizers have."""

    foreach: bool | None = None
    """Update many tensors in one kernel. Absent: as PyTorch sees fit."""

    maximize: bool = False
    """Make the loss larger instead of smaller."""


class Differentiable(Foreach):
    """The same, and one more."""

    differentiable: bool = False
    """Let gradients flow through the step itself."""


class Capturable(Differentiable):
    """The same, and one more."""

    capturable: bool = False
    """Safe to record in a CUDA graph."""


_TORCH = OnlyFor("torch.optim.Adam", "torch.optim.AdamW")
_OWN = OnlyFor("FusedAdam", "DeepSpeedCPUAdam", "ZenFlowCPUAdam")


class AdamParams(Rated):
    """Adam. DeepSpeed turns the type "Adam" into AdamW unless `adam_w_mode` is false."""

    lr: float = 0.001
    """Learning rate."""

    betas: tuple[float, float] = (0.9, 0.999)
    """How slowly the running averages of the gradient and of its square forget."""

    eps: float = 1e-8
    """Added to the denominator, against division by zero."""

    weight_decay: float = 0.0
    """How strongly weights are pulled to zero. 0.01 where `torch_adam` makes it PyTorch's AdamW."""

    amsgrad: bool = False
    """The AMSGrad variant. Only PyTorch's own implementation (`torch_adam`) has it; DeepSpeed's raise a RuntimeError."""

    torch_adam: Annotated[bool, Truthy()] = False
    """Use PyTorch's Adam instead of DeepSpeed's fused one (on the GPU) or its CPU Adam (with offload)."""

    adam_w_mode: Annotated[bool, Truthy()] = True
    """Decay the weights as AdamW does, apart from the gradient. Heeded for the type "Adam"; "AdamW" always does."""

    fp32_optimizer_states: Annotated[bool | None, Truthy()] = None
    """Keep the moments in fp32. False stores them in the parameters' type. Heeded with optimizer offload only."""

    bias_correction: Annotated[bool, _OWN] = True
    """Correct the averages for their start at zero."""

    set_grad_none: Annotated[bool, OnlyFor("FusedAdam")] = True
    """Drop gradients after the step instead of filling them with zeros."""

    foreach: Annotated[bool | None, _TORCH] = None
    """Update many tensors in one kernel."""

    maximize: Annotated[bool, _TORCH] = False
    """Make the loss larger instead of smaller."""

    capturable: Annotated[bool, _TORCH] = False
    """Safe to record in a CUDA graph."""

    differentiable: Annotated[bool, _TORCH] = False
    """Let gradients flow through the step itself."""

    fused: Annotated[bool | None, _TORCH] = None
    """PyTorch's own fused kernel."""


class PlainAdamParams(AdamParams):
    """Adam, with what PyTorch's Adam takes and its AdamW does not."""

    decoupled_weight_decay: Annotated[bool, OnlyFor("torch.optim.Adam")] = False
    """Decay the weights apart from the gradient."""


class AdagradParams(Rated):
    """Adagrad: learning rates that shrink with the squares of all gradients so far."""

    lr: float = 0.01
    """Learning rate."""

    eps: float = 1e-10
    """Added to the denominator, against division by zero."""

    amsgrad: Annotated[bool, OnlyFor("DeepSpeedCPUAdagrad")] = False
    """Accepted, and without effect."""

    fp32_optimizer_states: Annotated[bool, OnlyFor("DeepSpeedCPUAdagrad")] = True
    """Keep the sums in fp32."""

    lr_decay: Annotated[float, OnlyFor("torch.optim.Adagrad")] = 0.0
    """How fast the learning rate falls with the steps."""

    initial_accumulator_value: Annotated[float, OnlyFor("torch.optim.Adagrad")] = 0.0
    """What the sums of squares start at."""

    foreach: Annotated[bool | None, OnlyFor("torch.optim.Adagrad")] = None
    """Update many tensors in one kernel."""

    maximize: Annotated[bool, OnlyFor("torch.optim.Adagrad")] = False
    """Make the loss larger instead of smaller."""

    differentiable: Annotated[bool, OnlyFor("torch.optim.Adagrad")] = False
    """Let gradients flow through the step itself."""

    fused: Annotated[bool | None, OnlyFor("torch.optim.Adagrad")] = None
    """PyTorch's own fused kernel."""


class LambParams(Rated):
    """LAMB: Adam whose step is scaled layer by layer, for very large batches. Not among the optimizers tested with ZeRO."""

    betas: tuple[float, float] = (0.9, 0.999)
    """How slowly the running averages of the gradient and of its square forget."""

    eps: float = 1e-8
    """Added to the denominator, against division by zero."""

    eps_inside_sqrt: bool = False
    """Add `eps` before the root is taken."""

    bias_correction: bool = True
    """Correct the averages for their start at zero."""

    max_coeff: float = 10.0
    """The most that a layer's step may be scaled by."""

    min_coeff: float = 0.01
    """The least that a layer's step may be scaled by."""

    amsgrad: bool = False
    """Not implemented: true raises a RuntimeError."""


class LionParams(Rated):
    """Lion: steps by the sign of the momentum. One moment, so 4 bytes a parameter less than Adam."""

    betas: tuple[float, float] = (0.9, 0.999)
    """How gradient and momentum are mixed for the step, and how slowly the momentum forgets."""

    set_grad_none: Annotated[bool, OnlyFor("FusedLion")] = True
    """Drop gradients after the step instead of filling them with zeros."""

    fp32_optimizer_states: Annotated[bool, OnlyFor("DeepSpeedCPULion")] = True
    """Keep the momentum in fp32."""


class MupParams(Rated):
    """Arguments of the package mup's optimizers, which hand them on to PyTorch's: learning rates that hold across model widths."""


class MuAdamParams(MupParams):
    """Adam of the package mup."""

    betas: tuple[float, float] = (0.9, 0.999)
    """How slowly the running averages of the gradient and of its square forget."""

    eps: float = 1e-8
    """Added to the denominator, against division by zero."""

    amsgrad: bool = False
    """The AMSGrad variant."""


class MuSgdParams(MupParams):
    """SGD of the package mup."""

    momentum: float = 0.0
    """How much of the last step is kept."""

    dampening: float = 0.0
    """How much less of the gradient enters the momentum."""

    nesterov: bool = False
    """Nesterov's momentum."""


class MuonParams(Rated):
    """Muon for the weight matrices, Adam for everything else. Parameters that it does not know are dropped without a word."""

    lr: float = 0.02
    """Learning rate of both halves. Absent: 0.02 for Muon, 0.0003 for Adam."""

    muon_lr: Annotated[float | None, Since("0.18.0")] = None
    """Learning rate of the matrices, in place of `lr`."""

    adam_lr: Annotated[float | None, Since("0.18.0")] = None
    """Learning rate of everything else, in place of `lr`."""

    momentum: float = 0.95
    """Muon: how much of the last steps is kept."""

    ns_method: Annotated[
        Literal["gram", "standard"], Since("0.19.0"), Raises("initialize", "AssertionError: ns_method must be one of")
    ] = "gram"
    """Muon: which form of the Newton-Schulz iteration makes the update orthogonal."""

    betas: tuple[float, float] = (0.9, 0.95)
    """Adam: how slowly the running averages of the gradient and of its square forget."""

    eps: float = 1e-10
    """Adam: added to the denominator, against division by zero."""

    per_head_muon: Annotated[bool, Since("0.19.8"), Truthy()] = False
    """Treat every attention head's part of a projection as a matrix of its own."""

    adam_w_mode: Annotated[bool, Since("0.19.6"), Truthy()] = True
    """Adam: decay the weights apart from the gradient."""

    torch_adam: Annotated[bool, Since("0.19.6"), Truthy()] = False
    """Adam: PyTorch's implementation instead of DeepSpeed's."""

    fp32_optimizer_states: Annotated[bool | None, Since("0.19.6"), Truthy()] = None
    """Adam: keep the moments in fp32. Heeded with optimizer offload only."""

    foreach: Annotated[bool | None, Since("0.19.6")] = None
    """Adam: update many tensors in one kernel. Heeded with `torch_adam` only."""


class SgdParams(Rated, Differentiable):
    """Stochastic gradient descent."""

    momentum: float = 0.0
    """How much of the last step is kept."""

    dampening: float = 0.0
    """How much less of the gradient enters the momentum."""

    nesterov: bool = False
    """Nesterov's momentum. Needs `momentum` and no `dampening`."""

    fused: bool | None = None
    """PyTorch's own fused kernel."""


class AdadeltaParams(Rated, Capturable):
    """Adadelta."""

    lr: float = 1.0
    """Learning rate."""

    rho: float = 0.9
    """How slowly the running average of the squared gradient forgets."""

    eps: float = 1e-6
    """Added to the denominator, against division by zero."""


class AdafactorParams(Rated, Foreach):
    """Adafactor: Adam with the second moment stored as rows and columns, for little memory."""

    lr: float = 0.01
    """Learning rate."""

    beta2_decay: float = -0.8
    """How the second moment's memory grows with the steps."""

    eps: tuple[float | None, float] = (None, 0.001)
    """Two small numbers against division by zero: for the squared gradient, and for the parameter's scale."""

    d: float = 1.0
    """Where the update is clipped."""


class BetasParams(Rated):
    """What the variants of Adam share."""

    betas: tuple[float, float] = (0.9, 0.999)
    """How slowly the running averages of the gradient and of its square forget."""

    eps: float = 1e-8
    """Added to the denominator, against division by zero."""


class AdamaxParams(BetasParams, Capturable):
    """Adam with the infinity norm."""

    lr: float = 0.002
    """Learning rate."""


class NAdamParams(BetasParams, Capturable):
    """Adam with Nesterov's momentum."""

    lr: float = 0.002
    """Learning rate."""

    momentum_decay: float = 0.004
    """How the momentum changes with the steps."""

    decoupled_weight_decay: bool = False
    """Decay the weights apart from the gradient."""


class RAdamParams(BetasParams, Capturable):
    """Rectified Adam."""

    decoupled_weight_decay: bool = False
    """Decay the weights apart from the gradient."""


class SparseAdamParams(Parameters):
    """Adam for sparse gradients."""

    lr: float = 0.001
    """Learning rate."""

    betas: tuple[float, float] = (0.9, 0.999)
    """How slowly the running averages of the gradient and of its square forget."""

    eps: float = 1e-8
    """Added to the denominator, against division by zero."""

    maximize: bool = False
    """Make the loss larger instead of smaller."""


class AsgdParams(Rated, Capturable):
    """Averaged stochastic gradient descent."""

    lr: float = 0.01
    """Learning rate."""

    lambd: float = 0.0001
    """How fast the step decays."""

    alpha: float = 0.75
    """The power by which the learning rate falls."""

    t0: float = 1_000_000.0
    """The step at which averaging starts."""


class RMSpropParams(Rated, Capturable):
    """RMSprop."""

    lr: float = 0.01
    """Learning rate."""

    alpha: float = 0.99
    """How slowly the running average of the squared gradient forgets."""

    eps: float = 1e-8
    """Added to the denominator, against division by zero."""

    momentum: float = 0.0
    """How much of the last step is kept."""

    centered: bool = False
    """Divide by the gradient's estimated variance."""


class RpropParams(Capturable):
    """Rprop: steps by the gradient's sign alone."""

    lr: float = 0.01
    """Learning rate."""

    etas: tuple[float, float] = (0.5, 1.2)
    """By how much a step shrinks or grows."""

    step_sizes: tuple[float, float] = (1e-6, 50.0)
    """The smallest and the largest step."""


class LbfgsParams(Parameters):
    """L-BFGS, which needs the loss as a function: DeepSpeed's `step()` passes none."""

    lr: float = 1.0
    """Learning rate."""

    max_iter: int = 20
    """Iterations in one step."""

    max_eval: int | None = None
    """Evaluations of the loss in one step."""

    tolerance_grad: float = 1e-7
    """Stop where the gradient is this small."""

    tolerance_change: float = 1e-9
    """Stop where nothing changes by more than this."""

    history_size: int = 100
    """Past steps that are kept."""

    line_search_fn: Literal["strong_wolfe"] | None = None
    """How far to go along a direction."""


class OneBitParams(Rated):
    """What the 1-bit optimizers shared: after a warm-up they sent gradients in one bit."""

    betas: tuple[float, float] = (0.9, 0.999)
    """How slowly the running averages of the gradient and of its square forget."""

    eps: float = 1e-8
    """Added to the denominator, against division by zero."""

    eps_inside_sqrt: bool = False
    """Add `eps` before the root is taken."""

    bias_correction: bool = True
    """Correct the averages for their start at zero."""

    amsgrad: bool = False
    """Not implemented: true raises a RuntimeError."""

    cuda_aware: bool = False
    """The MPI library takes GPU memory."""

    comm_backend_name: str = "nccl"
    """What sends the bits: nccl, mpi or hccl."""


class OneBitAdamParams(OneBitParams):
    """1-bit Adam."""

    freeze_step: int = 100_000
    """Steps of plain Adam before compression starts."""


class ZeroOneAdamParams(OneBitParams):
    """0/1 Adam."""

    var_freeze_step: int = 100_000
    """The step from which on the variance is kept as it is."""

    var_update_scaler: int = 16
    """How the variance's updates grow rarer."""

    local_step_scaler: int = 32_678
    """How the local steps grow longer."""

    local_step_clipper: int = 16
    """The most local steps between two that are sent."""


class OneBitLambParams(OneBitParams):
    """1-bit LAMB."""

    freeze_step: int = 100_000
    """Steps of plain LAMB before compression starts."""

    max_coeff: float = 10.0
    """The most that a layer's step may be scaled by."""

    min_coeff: float = 0.01
    """The least that a layer's step may be scaled by."""

    coeff_beta: float = 0.9
    """How slowly the average of a layer's scale forgets."""

    factor_max: float = 4.0
    """The most by which a frozen scale may change."""

    factor_min: float = 0.5
    """The least by which a frozen scale may change."""

    factor_threshold: float = 0.1
    """The most by which a scale may change from one step to the next."""


@dataclass(frozen=True)
class Kind:
    """A type of optimizer or schedule."""

    params: type[Parameters]
    any_case: bool = False
    """DeepSpeed matches the name without regard to case."""
    classes: dict[str, str] = field(default_factory=dict)
    """The classes it may become, each with the circumstances."""
    since: Since | None = None
    until: Until | None = None
    open: bool = False
    """Unknown parameters are dropped without a word."""
    step: str | None = None
    """What every step raises."""
    note: str | None = None


_GPU, _OFFLOAD = "where the optimizer is not offloaded", "with optimizer offload"
_ADAM_CLASSES = {
    "FusedAdam": _GPU,
    "DeepSpeedCPUAdam": _OFFLOAD,
    "ZenFlowCPUAdam": "with optimizer offload and zenflow",
}
_ONE_BIT = Until("0.19.6", then="raises", note="The 1-bit optimizers are gone; AdamW and Lamb are their full-precision forms.")
_NEEDS_MUP = "Needs the package mup."

OPTIMIZERS: dict[str, Kind] = {
    "Adam": Kind(
        PlainAdamParams,
        any_case=True,
        classes=_ADAM_CLASSES | {"torch.optim.AdamW": "with torch_adam", "torch.optim.Adam": "with torch_adam and adam_w_mode false"},
    ),
    "AdamW": Kind(AdamParams, any_case=True, classes=_ADAM_CLASSES | {"torch.optim.AdamW": "with torch_adam"}),
    "Adagrad": Kind(AdagradParams, any_case=True, classes={"torch.optim.Adagrad": _GPU, "DeepSpeedCPUAdagrad": _OFFLOAD}),
    "Lamb": Kind(LambParams, any_case=True, classes={"FusedLamb": "always"}),
    "Lion": Kind(LionParams, any_case=True, since=Since("0.11.0"), classes={"FusedLion": _GPU, "DeepSpeedCPULion": _OFFLOAD}),
    "Muon": Kind(MuonParams, any_case=True, since=Since("0.17.6"), open=True, classes={"MuonWithAuxAdam": "always"}),
    "MuAdam": Kind(MuAdamParams, any_case=True, since=Since("0.10.2"), classes={"mup.MuAdam": "always"}, note=_NEEDS_MUP),
    "MuAdamW": Kind(MuAdamParams, any_case=True, since=Since("0.10.2"), classes={"mup.MuAdamW": "always"}, note=_NEEDS_MUP),
    "MuSGD": Kind(MuSgdParams, any_case=True, since=Since("0.10.2"), classes={"mup.MuSGD": "always"}, note=_NEEDS_MUP),
    "SGD": Kind(SgdParams, classes={"torch.optim.SGD": "always"}),
    "Adadelta": Kind(AdadeltaParams, classes={"torch.optim.Adadelta": "always"}),
    "Adafactor": Kind(AdafactorParams, classes={"torch.optim.Adafactor": "always"}, note="PyTorch has it from 2.5 on."),
    "Adamax": Kind(AdamaxParams, classes={"torch.optim.Adamax": "always"}),
    "ASGD": Kind(AsgdParams, classes={"torch.optim.ASGD": "always"}),
    "NAdam": Kind(NAdamParams, classes={"torch.optim.NAdam": "always"}),
    "RAdam": Kind(RAdamParams, classes={"torch.optim.RAdam": "always"}),
    "RMSprop": Kind(RMSpropParams, classes={"torch.optim.RMSprop": "always"}),
    "Rprop": Kind(RpropParams, classes={"torch.optim.Rprop": "always"}),
    "SparseAdam": Kind(SparseAdamParams, classes={"torch.optim.SparseAdam": "always"}, step="RuntimeError: SparseAdam does not support dense gradients"),
    "LBFGS": Kind(LbfgsParams, classes={"torch.optim.LBFGS": "always"}, step="TypeError: LBFGS.step() missing 1 required positional argument: 'closure'"),
    "OneBitAdam": Kind(OneBitAdamParams, any_case=True, until=_ONE_BIT),
    "ZeroOneAdam": Kind(ZeroOneAdamParams, any_case=True, until=_ONE_BIT),
    "OneBitLamb": Kind(OneBitLambParams, any_case=True, until=_ONE_BIT),
}
"""The types by their documented spelling, today's first."""
