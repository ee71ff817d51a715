"""The `scheduler` section, and what each schedule takes as `params`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dslint.schemas.base import HandReadSection, Parameters
from dslint.schemas.marks import Bounds, Default, NullRaises, Open, OutOfRange, Raises, Since
from dslint.schemas.optimizers import Kind


class Scheduler(HandReadSection):
    """The learning rate schedule that DeepSpeed builds and steps. Without `type`, or without an optimizer, the section does nothing."""

    type: Annotated[str | None, Raises("initialize", "AssertionError: DeepSpeed does not recognize LR scheduler x")] = None
    """One of DeepSpeed's schedules or a class of `torch.optim.lr_scheduler`, spelt as there, upper and lower case included."""

    params: Annotated[
        dict[str, Any] | None,
        Open(),
        Raises("initialize", "TypeError: deepspeed.runtime.lr_schedules.WarmupLR() argument after ** must be a mapping, not str"),
        NullRaises("initialize", "TypeError: deepspeed.runtime.lr_schedules.WarmupLR() argument after ** must be a mapping, not NoneType"),
    ] = None
    """The schedule's settings: the keyword arguments of its constructor. Has to be there, if only as `{}`."""


class Resumed(Parameters):
    """What DeepSpeed's schedules share."""

    last_batch_iteration: int = -1
    """The step to go on from. Checkpoints bring it along; -1 starts anew."""


class Warmup(Resumed):
    """What the schedules with a warm-up share."""

    warmup_num_steps: int = Field(1000, gt=0)
    """Steps of the warm-up, as an integer. 1 counts as 2."""

    warmup_type: Literal["log", "linear"] = "log"
    """How the learning rate rises: along a logarithm (fast at first) or a line. Anything else is read as "log"."""


class WarmupLRParams(Warmup):
    """Rises from one learning rate to another, and stays there."""

    warmup_min_lr: float | list[float] = 0.0
    """The learning rate at the start; a list has one for each parameter group."""

    warmup_max_lr: Annotated[float | list[float] | None, Default("0", 0.001), Default("0.17.2", None)] = None
    """The learning rate at the end of the warm-up, and after it. Absent or null: the optimizer's own."""


class WarmupDecayLRParams(Warmup):
    """Rises from one learning rate to another, and falls to zero along a line."""

    total_num_steps: int
    """Steps of the whole run, at whose end the learning rate is zero."""

    warmup_min_lr: float | list[float] = 0.0
    """The learning rate at the start; a list has one for each parameter group."""

    warmup_max_lr: float | list[float] | None = 0.001
    """The learning rate at the end of the warm-up. It does not default to the optimizer's own."""


class WarmupCosineLRParams(Warmup):
    """Rises to the optimizer's learning rate, and falls along a cosine."""

    total_num_steps: int
    """Steps of the whole run, at whose end the learning rate is `cos_min_ratio` of the optimizer's."""

    warmup_min_ratio: float = 0.0
    """The part of the optimizer's learning rate to start at."""

    cos_min_ratio: float = 0.0001
    """The part of the optimizer's learning rate to end at."""


class LRRangeTestParams(Resumed):
    """Raises the learning rate on and on, to find the largest one that trains."""

    lr_range_test_min_lr: float | list[float] = 0.001
    """The learning rate at the start; a list has one for each parameter group."""

    lr_range_test_step_size: int = Field(2000, gt=0)
    """Steps between two rises, as an integer."""

    lr_range_test_step_rate: float = 1.0
    """By how much of the first learning rate it rises."""

    lr_range_test_staircase: bool = False
    """Rise in stairs rather than along a line."""


class OneCycleParams(Resumed):
    """One cycle of the learning rate up and down, the other way round for the momentum, then decay."""

    cycle_min_lr: float | list[float]
    """The learning rate at the start and end of the cycle."""

    cycle_max_lr: float | list[float]
    """The learning rate at the top of the cycle."""

    decay_lr_rate: float = 0.0
    """How fast the learning rate falls after the cycle."""

    cycle_first_step_size: float = Field(2000, gt=0)
    """Steps of the way up."""

    cycle_second_step_size: Annotated[float | None, Field(ge=0)] = None
    """Steps of the way down. Absent: as many as up."""

    cycle_first_stair_count: int = 0
    """Stairs on the way up; 0 rises along a line."""

    cycle_second_stair_count: int | None = None
    """Stairs on the way down. Absent: as many as up."""

    decay_step_size: int = 0
    """Steps between two falls after the cycle; 0 means no decay."""

    cycle_momentum: bool = True
    """Cycle the momentum too. Only for optimizers with `betas`."""

    cycle_min_mom: float | list[float] = 0.8
    """The momentum at the top of the cycle."""

    cycle_max_mom: float | list[float] = 0.9
    """The momentum at the start and end of the cycle."""

    decay_mom_rate: float = 0.0
    """How fast the momentum changes after the cycle."""


class Epoch(Parameters):
    """What PyTorch's schedules share."""

    last_epoch: int = -1
    """The step to go on from; -1 starts anew."""


class ConstantLRParams(Epoch):
    """A fixed part of the learning rate for some steps, then all of it."""

    factor: float = 1 / 3
    """The part."""

    total_iters: int = 5
    """Steps until the learning rate is whole."""


class LinearLRParams(Epoch):
    """From one part of the learning rate to another along a line."""

    start_factor: float = 1 / 3
    """The part at the start."""

    end_factor: float = 1.0
    """The part at the end."""

    total_iters: int = 5
    """Steps of the way."""


class PolynomialLRParams(Epoch):
    """Falls to zero along a power."""

    total_iters: int = 5
    """Steps until zero."""

    power: float = 1.0
    """The power; 1 is a line."""


class ExponentialLRParams(Epoch):
    """Falls by the same factor at every step."""

    gamma: float
    """The factor."""


class StepLRParams(Epoch):
    """Falls by a factor every so many steps."""

    step_size: int
    """Steps between two falls."""

    gamma: float = 0.1
    """The factor."""


class MultiStepLRParams(Epoch):
    """Falls by a factor at given steps."""

    milestones: list[int]
    """The steps."""

    gamma: float = 0.1
    """The factor."""


class CosineAnnealingLRParams(Epoch):
    """Falls along a cosine, and rises again."""

    T_max: int
    """Steps until the lowest point."""

    eta_min: float = 0.0
    """The learning rate there."""


class CosineAnnealingWarmRestartsParams(Epoch):
    """Falls along a cosine, and starts over at the top."""

    T_0: int
    """Steps until the first restart."""

    T_mult: int = 1
    """By how much each way is longer than the one before."""

    eta_min: float = 0.0
    """The learning rate at the lowest point."""


class CyclicLRParams(Epoch):
    """Up and down between two learning rates, over and over."""

    base_lr: float | list[float]
    """The lower one."""

    max_lr: float | list[float]
    """The upper one."""

    step_size_up: int = 2000
    """Steps up."""

    step_size_down: int | None = None
    """Steps down. Absent: as many as up."""

    mode: Literal["triangular", "triangular2", "exp_range"] = "triangular"
    """How the cycles change: not at all, halved each time, or by `gamma` to the step."""

    gamma: float = 1.0
    """For "exp_range"."""

    scale_mode: Literal["cycle", "iterations"] = "cycle"
    """What the scaling counts."""

    cycle_momentum: bool = True
    """Cycle the momentum too."""

    base_momentum: float | list[float] = 0.8
    """The lower momentum."""

    max_momentum: float | list[float] = 0.9
    """The upper momentum."""


class OneCycleLRParams(Epoch):
    """PyTorch's one-cycle schedule."""

    max_lr: float | list[float]
    """The learning rate at the top."""

    total_steps: int | None = None
    """Steps of the whole run; or give `epochs` and `steps_per_epoch`."""

    epochs: int | None = None
    """Epochs of the whole run."""

    steps_per_epoch: int | None = None
    """Steps of an epoch."""

    pct_start: float = 0.3
    """The part of the steps that goes up."""

    anneal_strategy: Literal["cos", "linear"] = "cos"
    """How it falls."""

    cycle_momentum: bool = True
    """Cycle the momentum too."""

    base_momentum: float | list[float] = 0.85
    """The lower momentum."""

    max_momentum: float | list[float] = 0.95
    """The upper momentum."""

    div_factor: float = 25.0
    """The start is `max_lr` divided by this."""

    final_div_factor: float = 10_000.0
    """The end is the start divided by this."""

    three_phase: bool = False
    """Fall back to the start first, then to the end."""


class ReduceLROnPlateauParams(Parameters):
    """Falls where a measured value no longer gets better."""

    mode: Literal["min", "max"] = "min"
    """Whether less is better."""

    factor: float = 0.1
    """By how much it falls."""

    patience: int = 10
    """Measurements without progress to wait for."""

    threshold: float = 0.0001
    """What counts as progress."""

    threshold_mode: Literal["rel", "abs"] = "rel"
    """Whether the threshold is a part of the best value or a distance from it."""

    cooldown: int = 0
    """Measurements to wait after a fall."""

    min_lr: float | list[float] = 0.0
    """The lowest learning rate."""

    eps: float = 1e-8
    """Smaller changes are left out."""


SCHEDULERS: dict[str, Kind] = {
    "WarmupLR": Kind(WarmupLRParams),
    "WarmupDecayLR": Kind(WarmupDecayLRParams),
    "WarmupCosineLR": Kind(WarmupCosineLRParams, since=Since("0.12.3")),
    "LRRangeTest": Kind(LRRangeTestParams),
    "OneCycle": Kind(OneCycleParams),
    "ConstantLR": Kind(ConstantLRParams),
    "LinearLR": Kind(LinearLRParams),
    "PolynomialLR": Kind(PolynomialLRParams),
    "ExponentialLR": Kind(ExponentialLRParams),
    "StepLR": Kind(StepLRParams),
    "MultiStepLR": Kind(MultiStepLRParams),
    "CosineAnnealingLR": Kind(CosineAnnealingLRParams),
    "CosineAnnealingWarmRestarts": Kind(CosineAnnealingWarmRestartsParams),
    "CyclicLR": Kind(CyclicLRParams),
    "OneCycleLR": Kind(OneCycleLRParams),
    "ReduceLROnPlateau": Kind(ReduceLROnPlateauParams),
}
"""The schedules by name, DeepSpeed's own first."""
