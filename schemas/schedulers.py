"""The `scheduler` section, and what each schedule takes as `params`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from dslint.schemas.base import HandReadSection, Parameters
from dslint.schemas.marks import Bounds, Default, ExactInt, Forbids, NullRaises, Open, OutOfRange, Passes, Raises, Since
from dslint.schemas.optimizers import Switch, TypeSpec

_STEPS = Raises("initialize", "ValueError: could not convert string to float: 'x'", lets=("bool", "quoted float"))
_STEPS_KIND = Raises("initialize", "TypeError: float() argument must be a string or a real number, not '{type}'", only=("list", "dict"))
"""A number of steps, which the schedule converts with `float`: a string with a number is one."""


class Scheduler(HandReadSection):
    """The learning rate schedule that DeepSpeed builds and steps. Without `type`, or without an optimizer, the section has no effect."""

    type: Annotated[
        str | None,
        Raises("initialize", "AssertionError: DeepSpeed does not recognize LR scheduler x"),
        Forbids("auto", "initialize", "AssertionError: DeepSpeed does not recognize LR scheduler auto"),
    ] = None
    """One of DeepSpeed's schedules or a class of `torch.optim.lr_scheduler`, in its exact spelling."""

    params: Annotated[
        dict[str, Any] | None,
        Open(),
        Raises("initialize", "TypeError: deepspeed.runtime.lr_schedules.WarmupLR() argument after ** must be a mapping, not {type}"),
        NullRaises("initialize", "TypeError: deepspeed.runtime.lr_schedules.WarmupLR() argument after ** must be a mapping, not NoneType"),
    ] = None
    """The schedule's settings: the keyword arguments of its constructor. Required, even if empty (`{}`)."""


ToSubtract: TypeAlias = Annotated[
    float | list[float],
    Raises("initialize", "TypeError: unsupported operand type(s) for -: 'float' and 'str'", lets=("bool",)),
    NullRaises("initialize", "TypeError: unsupported operand type(s) for -: 'float' and 'NoneType'"),
]
"""A learning rate, or one for each parameter group."""

ToMultiply: TypeAlias = Annotated[
    float | list[float],
    Raises("step", "TypeError: can't multiply sequence by non-int of type 'float'", lets=("bool",)),
    NullRaises("step", "TypeError: unsupported operand type(s) for *: 'NoneType' and 'float'"),
]
"""The same, used in the step."""

RealNumber: TypeAlias = Annotated[
    float,
    Raises("initialize", "TypeError: must be real number, not str", lets=("bool",)),
    NullRaises("initialize", "TypeError: must be real number, not NoneType"),
]
Steps: TypeAlias = Annotated[int, Passes("It is not checked.")]
LateNumber: TypeAlias = Annotated[float, Passes("It is not checked before it is used.")]
Momentum: TypeAlias = Annotated[
    float | list[float],
    Raises("initialize", "TypeError: unsupported operand type(s) for -: 'float' and 'str'", lets=("bool",)),
    NullRaises("initialize", "TypeError: unsupported operand type(s) for -: 'float' and 'NoneType'"),
]


class Resumed(Parameters):
    """Common parameters of DeepSpeed's schedules."""

    last_batch_iteration: Annotated[
        int, Passes("DeepSpeed catches the TypeError of the first step and starts the schedule at step number train_batch_size.")
    ] = -1
    """The step to continue from. Checkpoints set it; -1 starts from the beginning."""


class Warmup(Resumed):
    """Common parameters of schedules with a warm-up."""

    warmup_num_steps: Annotated[
        int,
        ExactInt("0.19.3"),
        Bounds("0.19.2"),
        Raises("initialize", "ValueError: warmup_num_steps must be a positive integer, got x", lets=("bool", "float")),
        NullRaises("initialize", "ValueError: warmup_num_steps must be a positive integer, got None"),
        OutOfRange("initialize", "ValueError: warmup_num_steps must be a positive integer, got 0"),
    ] = Field(default=1000, gt=0)
    """Steps of the warm-up, as an integer. 1 counts as 2."""

    warmup_type: Annotated[Literal["log", "linear"], Passes('DeepSpeed warns and uses "log".')] = "log"
    """How the learning rate rises: logarithmically (fast at first) or linearly. Anything else is read as "log"."""


class WarmupLRParams(Warmup):
    """Rises from one learning rate to another, and stays constant."""

    warmup_min_lr: ToSubtract = 0.0
    """The learning rate at the start; a list has one for each parameter group."""

    warmup_max_lr: Annotated[
        float | list[float] | None,
        Default("0", 0.001),
        Default("0.17.2", None),
        Raises("initialize", "TypeError: unsupported operand type(s) for -: 'str' and 'float'", lets=("bool",)),
    ] = None
    """The learning rate at the end of the warm-up, and after it. Absent or null: that of the optimizer."""


class WarmupDecayLRParams(Warmup):
    """Rises from one learning rate to another, then falls linearly to zero."""

    total_num_steps: Annotated[
        int,
        Raises("initialize", "TypeError: '<' not supported between instances of 'str' and 'int'", lets=("bool", "float")),
        NullRaises("initialize", "TypeError: '<' not supported between instances of 'NoneType' and 'int'"),
    ]
    """Steps of the whole run; at its end the learning rate is zero."""

    warmup_min_lr: ToSubtract = 0.0
    """The learning rate at the start; a list has one for each parameter group."""

    warmup_max_lr: Annotated[
        float | list[float] | None,
        Raises("initialize", "TypeError: unsupported operand type(s) for -: 'str' and 'float'", lets=("bool",)),
    ] = 0.001
    """The learning rate at the end of the warm-up. Absent: 0.001; null: that of the optimizer."""


class WarmupCosineLRParams(Warmup):
    """Rises to the optimizer's learning rate, then falls along a cosine."""

    total_num_steps: Annotated[
        int,
        Raises("initialize", "TypeError: '<' not supported between instances of 'str' and 'int'", lets=("bool", "float")),
        NullRaises("initialize", "TypeError: '<' not supported between instances of 'NoneType' and 'int'"),
    ]
    """Steps of the whole run; at its end the learning rate is `cos_min_ratio` of that of the optimizer."""

    warmup_min_ratio: Annotated[
        float,
        Raises("step", "TypeError: unsupported operand type(s) for -: 'float' and 'str'", lets=("bool",)),
        NullRaises("step", "TypeError: unsupported operand type(s) for -: 'float' and 'NoneType'"),
    ] = 0.0
    """The fraction of the optimizer's learning rate at the start."""

    cos_min_ratio: Annotated[
        float,
        Passes("After the warm-up DeepSpeed catches the TypeError of every step and sets the schedule to step number train_batch_size."),
    ] = 0.0001
    """The fraction of the optimizer's learning rate at the end."""


class LRRangeTestParams(Resumed):
    """Raises the learning rate continuously, to find the largest one that trains."""

    lr_range_test_min_lr: ToMultiply = 0.001
    """The learning rate at the start; a list has one for each parameter group."""

    lr_range_test_step_size: Annotated[
        int,
        ExactInt("0.19.4"),
        Bounds("0.19.3"),
        Raises("initialize", "ValueError: lr_range_test_step_size must be a positive integer, got x", lets=("bool",)),
        NullRaises("initialize", "ValueError: lr_range_test_step_size must be a positive integer, got None"),
        OutOfRange("initialize", "ValueError: lr_range_test_step_size must be a positive integer, got 0"),
    ] = Field(default=2000, gt=0)
    """Steps between two rises, as an integer."""

    lr_range_test_step_rate: Annotated[
        float,
        Raises("step", "TypeError: can't multiply sequence by non-int of type 'float'", lets=("bool",)),
        NullRaises("step", "TypeError: unsupported operand type(s) for *: 'NoneType' and 'float'"),
    ] = 1.0
    """By how much of the first learning rate it rises."""

    lr_range_test_staircase: Switch = False
    """Rise in steps rather than linearly."""


class OneCycleParams(Resumed):
    """One cycle of the learning rate up and down, with the momentum inverted, then decay."""

    cycle_min_lr: ToMultiply
    """The learning rate at the start and end of the cycle."""

    cycle_max_lr: Annotated[
        float | list[float],
        Raises("step", "TypeError: unsupported operand type(s) for -: 'str' and 'float'", lets=("bool",)),
        NullRaises("step", "TypeError: unsupported operand type(s) for -: 'NoneType' and 'float'"),
    ]
    """The learning rate at the top of the cycle."""

    decay_lr_rate: RealNumber = 0.0
    """How fast the learning rate falls after the cycle."""

    cycle_first_step_size: Annotated[
        float,
        Bounds("0.19.3"),
        _STEPS,
        _STEPS_KIND,
        NullRaises("initialize", "TypeError: float() argument must be a string or a real number, not 'NoneType'"),
        OutOfRange("initialize", "ValueError: cycle_first_step_size must be positive, got 0.0"),
    ] = Field(default=2000, gt=0)
    """Steps of the rise."""

    cycle_second_step_size: Annotated[
        float | None,
        Bounds("0.19.3"),
        _STEPS,
        _STEPS_KIND,
        OutOfRange("initialize", "ValueError: cycle_second_step_size must be non-negative, got -1.0"),
    ] = Field(default=None, ge=0)
    """Steps of the fall. Default: as many as of the rise."""

    cycle_first_stair_count: Annotated[
        int,
        Raises("step", "TypeError: '>' not supported between instances of 'str' and 'int'", lets=("bool", "float")),
        NullRaises("step", "TypeError: '>' not supported between instances of 'NoneType' and 'int'"),
    ] = 0
    """Stairs of the rise; 0 rises linearly."""

    cycle_second_stair_count: Annotated[int | None, Passes("It fails when the fall begins.")] = None
    """Stairs of the fall. Default: as many as of the rise."""

    decay_step_size: Annotated[
        int,
        Raises("initialize", "TypeError: must be real number, not str", lets=("bool", "float")),
        NullRaises("initialize", "TypeError: must be real number, not NoneType"),
    ] = 0
    """Steps between two falls after the cycle; 0 means no decay."""

    cycle_momentum: Switch = True
    """Cycle the momentum too. Only for optimizers with `betas`."""

    cycle_min_mom: Annotated[
        float | list[float],
        Raises("step", "TypeError: unsupported operand type(s) for -: 'int' and 'str'"),
        NullRaises("step", "TypeError: unsupported operand type(s) for -: 'int' and 'NoneType'"),
    ] = 0.8
    """The momentum at the top of the cycle."""

    cycle_max_mom: Annotated[
        float | list[float],
        Raises("step", "TypeError: unsupported operand type(s) for -: 'str' and 'float'", lets=("bool",)),
        NullRaises("step", "TypeError: unsupported operand type(s) for -: 'NoneType' and 'float'"),
    ] = 0.9
    """The momentum at the start and end of the cycle."""

    decay_mom_rate: RealNumber = 0.0
    """How fast the momentum changes after the cycle."""


class Epoch(Parameters):
    """Common parameters of PyTorch's schedules."""

    last_epoch: Annotated[
        int,
        Field(ge=-1, le=-1),
        Raises("initialize", "KeyError: \"param 'initial_lr' is not specified in param_groups[0]"),
        NullRaises("initialize", "KeyError: \"param 'initial_lr' is not specified in param_groups[0]"),
        OutOfRange("initialize", "KeyError: \"param 'initial_lr' is not specified in param_groups[0]"),
    ] = -1
    """The step to continue from. From a config file only -1, a new start, works."""


class ConstantLRParams(Epoch):
    """A fixed fraction of the learning rate for some steps, then all of it."""

    factor: Annotated[
        float,
        Raises("initialize", "TypeError: '>' not supported between instances of 'str' and 'float'", lets=("bool",)),
        NullRaises("initialize", "TypeError: '>' not supported between instances of 'NoneType' and 'float'"),
        OutOfRange("initialize", "ValueError: Constant multiplicative factor expected to be between 0 and 1."),
    ] = Field(default=1 / 3, ge=0, le=1)
    """The part."""

    total_iters: Steps = 5
    """Steps until the full learning rate."""


class LinearLRParams(Epoch):
    """Linearly from one fraction of the learning rate to another."""

    start_factor: Annotated[
        float,
        Raises("initialize", "TypeError: '>' not supported between instances of 'str' and 'float'", lets=("bool",)),
        NullRaises("initialize", "TypeError: '>' not supported between instances of 'NoneType' and 'float'"),
        OutOfRange("initialize", "ValueError: Starting multiplicative factor expected to be greater than 0"),
    ] = Field(default=1 / 3, gt=0, le=1)
    """The fraction at the start."""

    end_factor: Annotated[
        float,
        Raises("initialize", "TypeError: '>' not supported between instances of 'str' and 'float'", lets=("bool",)),
        NullRaises("initialize", "TypeError: '>' not supported between instances of 'NoneType' and 'float'"),
        OutOfRange("initialize", "ValueError: Ending multiplicative factor expected to be between 0 and 1."),
    ] = Field(default=1.0, ge=0, le=1)
    """The fraction at the end."""

    total_iters: Annotated[
        int,
        Raises("step", "TypeError: '<' not supported between instances of 'int' and 'str'", lets=("bool", "float")),
        NullRaises("step", "TypeError: '<' not supported between instances of 'int' and 'NoneType'"),
    ] = 5
    """Steps from start to end."""


class PolynomialLRParams(Epoch):
    """Falls to zero by a power function."""

    total_iters: Annotated[
        int,
        Raises("step", "TypeError: '<' not supported between instances of 'int' and 'str'", lets=("bool", "float")),
        NullRaises("step", "TypeError: '<' not supported between instances of 'int' and 'NoneType'"),
    ] = 5
    """Steps until zero."""

    power: Annotated[
        float,
        Raises("step", "TypeError: unsupported operand type(s) for ** or pow(): 'float' and 'str'", lets=("bool",)),
        NullRaises("step", "TypeError: unsupported operand type(s) for ** or pow(): 'float' and 'NoneType'"),
    ] = 1.0
    """The power; 1 is linear."""


class ExponentialLRParams(Epoch):
    """Falls by the same factor at every step."""

    gamma: Annotated[
        float,
        Raises("step", "TypeError: unsupported operand type(s) for ** or pow(): 'str' and 'int'", lets=("bool",)),
        NullRaises("step", "TypeError: unsupported operand type(s) for ** or pow(): 'NoneType' and 'int'"),
    ]
    """The factor."""


class StepLRParams(Epoch):
    """Falls by a factor after each number of steps."""

    step_size: Annotated[
        int,
        Raises("step", "TypeError: unsupported operand type(s) for //: 'int' and 'str'", lets=("bool", "float")),
        NullRaises("step", "TypeError: unsupported operand type(s) for //: 'int' and 'NoneType'"),
        Forbids(0, "step", "ZeroDivisionError: integer modulo by zero"),
    ]
    """Steps between two falls."""

    gamma: LateNumber = 0.1
    """The factor."""


class MultiStepLRParams(Epoch):
    """Falls by a factor at given steps."""

    milestones: Annotated[
        list[int],
        Passes("It is not checked before a milestone is reached."),
        Raises("initialize", "TypeError: '{type}' object is not iterable", only=("bool", "int", "float")),
    ]
    """The steps."""

    gamma: LateNumber = 0.1
    """The factor."""


class CosineAnnealingLRParams(Epoch):
    """Falls along a cosine, and rises again."""

    T_max: Annotated[
        int,
        Raises("step", "TypeError: unsupported operand type(s) for /: 'float' and 'str'", lets=("bool", "float")),
        NullRaises("step", "TypeError: unsupported operand type(s) for /: 'float' and 'NoneType'"),
        Forbids(0, "step", "ZeroDivisionError: integer modulo by zero"),
    ]
    """Steps until the lowest point."""

    eta_min: Annotated[
        float,
        Raises("step", "TypeError: unsupported operand type(s) for -: 'float' and 'str'", lets=("bool",)),
        NullRaises("step", "TypeError: unsupported operand type(s) for -: 'float' and 'NoneType'"),
    ] = 0.0
    """The lowest learning rate."""


class CosineAnnealingWarmRestartsParams(Epoch):
    """Falls along a cosine, and starts over at the top."""

    T_0: Annotated[
        int,
        Field(gt=0),
        ExactInt("0.0.0"),
        Raises("initialize", "TypeError: '<=' not supported between instances of 'str' and 'int'", lets=("bool",)),
        NullRaises("initialize", "TypeError: '<=' not supported between instances of 'NoneType' and 'int'"),
        OutOfRange("initialize", "ValueError: Expected positive integer T_0, but got 0"),
    ]
    """Steps until the first restart."""

    T_mult: Annotated[
        int,
        ExactInt("0.0.0"),
        Raises("initialize", "TypeError: '<' not supported between instances of 'str' and 'int'", lets=("bool",)),
        NullRaises("initialize", "TypeError: '<' not supported between instances of 'NoneType' and 'int'"),
        OutOfRange("initialize", "ValueError: Expected integer T_mult >= 1, but got 0"),
    ] = Field(default=1, ge=1)
    """The factor by which each cycle is longer than the one before."""

    eta_min: Annotated[
        float,
        Raises("initialize", "ValueError: Expected float or int eta_min, but got x of type <class 'str'>", lets=("bool",)),
        NullRaises("initialize", "ValueError: Expected float or int eta_min, but got None of type <class 'NoneType'>"),
    ] = 0.0
    """The learning rate at the lowest point."""


class CyclicLRParams(Epoch):
    """Cycles between two learning rates."""

    base_lr: ToSubtract
    """The lower one."""

    max_lr: Annotated[
        float | list[float],
        Raises("initialize", "TypeError: unsupported operand type(s) for -: 'str' and 'float'", lets=("bool",)),
        NullRaises("initialize", "TypeError: unsupported operand type(s) for -: 'NoneType' and 'float'"),
    ]
    """The upper one."""

    step_size_up: Annotated[
        int,
        _STEPS,
        _STEPS_KIND,
        NullRaises("initialize", "TypeError: float() argument must be a string or a real number, not 'NoneType'"),
        Forbids(0, "initialize", "ZeroDivisionError: float division by zero"),
    ] = 2000
    """Steps up."""

    step_size_down: Annotated[
        int | None,
        _STEPS,
        _STEPS_KIND,
    ] = None
    """Steps down. Default: as many as up."""

    mode: Annotated[
        Literal["triangular", "triangular2", "exp_range"],
        Raises("initialize", "ValueError: mode is invalid and scale_fn is None"),
        NullRaises("initialize", "ValueError: mode is invalid and scale_fn is None"),
    ] = "triangular"
    """How the cycles change: not at all, halved each time, or by `gamma` to the step."""

    gamma: LateNumber = 1.0
    """For "exp_range"."""

    scale_mode: Annotated[Literal["cycle", "iterations"], Passes('Any value except "cycle" means "iterations".')] = "cycle"
    """What the scaling counts."""

    cycle_momentum: Switch = True
    """Cycle the momentum too."""

    base_momentum: Momentum = 0.8
    """The lower momentum."""

    max_momentum: Annotated[
        float | list[float],
        Raises("initialize", "TypeError: unsupported operand type(s) for -: 'str' and 'float'", lets=("bool",)),
        NullRaises("initialize", "TypeError: unsupported operand type(s) for -: 'NoneType' and 'float'"),
    ] = 0.9
    """The upper momentum."""


class OneCycleLRParams(Epoch):
    """PyTorch's one-cycle schedule."""

    max_lr: Annotated[
        float | list[float],
        Raises("initialize", "TypeError: unsupported operand type(s) for /: 'str' and 'float'", lets=("bool",)),
        NullRaises("initialize", "TypeError: unsupported operand type(s) for /: 'NoneType' and 'float'"),
    ]
    """The learning rate at the top."""

    total_steps: Annotated[
        int | None,
        Field(gt=0),
        ExactInt("0.0.0"),
        Raises("initialize", "TypeError: '<=' not supported between instances of 'str' and 'int'", lets=("bool",)),
        OutOfRange("initialize", "ValueError: Expected positive integer total_steps, but got 0"),
    ] = None
    """Steps of the whole run; or give `epochs` and `steps_per_epoch`."""

    epochs: Annotated[int | None, Passes("It is not read if total_steps is given.")] = None
    """Epochs of the whole run."""

    steps_per_epoch: Annotated[int | None, Passes("It is not read if total_steps is given.")] = None
    """Steps of an epoch."""

    pct_start: Annotated[
        float,
        Field(gt=0, lt=1),
        Raises("initialize", "ValueError: could not convert string to float"),
        NullRaises("initialize", "TypeError: unsupported operand type(s) for *: 'NoneType' and 'int'"),
        OutOfRange("initialize", "ValueError: Expected float between 0 and 1 pct_start, but got 1"),
    ] = 0.3
    """The fraction of steps that rise."""

    anneal_strategy: Annotated[
        Literal["cos", "linear"],
        Raises("initialize", "ValueError: anneal_strategy must be one of 'cos' or 'linear', instead got x"),
        NullRaises("initialize", "ValueError: anneal_strategy must be one of 'cos' or 'linear', instead got None"),
    ] = "cos"
    """How it falls."""

    cycle_momentum: Switch = True
    """Cycle the momentum too."""

    base_momentum: Momentum = 0.85
    """The lower momentum."""

    max_momentum: Annotated[
        float | list[float],
        Raises("initialize", "TypeError: unsupported operand type(s) for -: 'str' and 'float'", lets=("bool",)),
        NullRaises("initialize", "TypeError: unsupported operand type(s) for -: 'NoneType' and 'float'"),
    ] = 0.95
    """The upper momentum."""

    div_factor: Annotated[
        float,
        Raises("initialize", "TypeError: unsupported operand type(s) for /: 'float' and 'str'", lets=("bool",)),
        NullRaises("initialize", "TypeError: unsupported operand type(s) for /: 'float' and 'NoneType'"),
        Forbids(0, "initialize", "ZeroDivisionError: float division by zero"),
    ] = 25.0
    """The start is `max_lr` divided by this."""

    final_div_factor: Annotated[
        float,
        Raises("initialize", "TypeError: unsupported operand type(s) for /: 'float' and 'str'", lets=("bool",)),
        NullRaises("initialize", "TypeError: unsupported operand type(s) for /: 'float' and 'NoneType'"),
        Forbids(0, "initialize", "ZeroDivisionError: float division by zero"),
    ] = 10_000.0
    """The end is the start divided by this."""

    three_phase: Switch = False
    """Fall back to the start first, then to the end."""


class ReduceLROnPlateauParams(Parameters):
    """Falls when a measured value stops improving."""

    mode: Annotated[
        Literal["min", "max"],
        Raises("initialize", "ValueError: mode x is unknown!"),
        NullRaises("initialize", 'TypeError: can only concatenate str (not "NoneType") to str'),
    ] = "min"
    """Whether less is better."""

    factor: Annotated[
        float,
        Field(lt=1),
        Raises("initialize", "TypeError: '>=' not supported between instances of 'str' and 'float'"),
        NullRaises("initialize", "TypeError: '>=' not supported between instances of 'NoneType' and 'float'"),
        OutOfRange("initialize", "ValueError: Factor should be < 1.0."),
    ] = 0.1
    """By how much it falls."""

    patience: Annotated[
        int,
        Raises("step", "TypeError: '>' not supported between instances of 'int' and 'str'", lets=("bool", "float")),
        NullRaises("step", "TypeError: '>' not supported between instances of 'int' and 'NoneType'"),
    ] = 10
    """Measurements to wait for without progress."""

    threshold: Annotated[
        float,
        Raises("step", "TypeError: unsupported operand type(s) for -: 'float' and 'str'", lets=("bool",)),
        NullRaises("step", "TypeError: unsupported operand type(s) for -: 'float' and 'NoneType'"),
    ] = 0.0001
    """What counts as progress."""

    threshold_mode: Annotated[
        Literal["rel", "abs"],
        Raises("initialize", "ValueError: threshold mode x is unknown!"),
        NullRaises("initialize", 'TypeError: can only concatenate str (not "NoneType") to str'),
    ] = "rel"
    """Whether the threshold is relative to the best value or absolute."""

    cooldown: Steps = 0
    """Measurements to wait after a fall."""

    min_lr: Annotated[float | list[float], Passes("It is not checked before the first fall.")] = 0.0
    """The lowest learning rate."""

    eps: LateNumber = 1e-8
    """Smaller changes are skipped."""


_WRAPPED = "TypeError: DeepSpeedZeroOptimizer is not an Optimizer"

SCHEDULERS: dict[str, TypeSpec] = {
    "WarmupLR": TypeSpec(WarmupLRParams),
    "WarmupDecayLR": TypeSpec(WarmupDecayLRParams),
    "WarmupCosineLR": TypeSpec(WarmupCosineLRParams, since=Since("0.12.3")),
    "LRRangeTest": TypeSpec(LRRangeTestParams),
    "OneCycle": TypeSpec(OneCycleParams),
    "ConstantLR": TypeSpec(ConstantLRParams, wrapped=_WRAPPED),
    "LinearLR": TypeSpec(LinearLRParams, wrapped=_WRAPPED),
    "PolynomialLR": TypeSpec(PolynomialLRParams, wrapped=_WRAPPED),
    "ExponentialLR": TypeSpec(ExponentialLRParams, wrapped=_WRAPPED),
    "StepLR": TypeSpec(StepLRParams, wrapped=_WRAPPED),
    "MultiStepLR": TypeSpec(MultiStepLRParams, wrapped=_WRAPPED),
    "CosineAnnealingLR": TypeSpec(CosineAnnealingLRParams, wrapped=_WRAPPED),
    "CosineAnnealingWarmRestarts": TypeSpec(CosineAnnealingWarmRestartsParams, wrapped=_WRAPPED),
    "CyclicLR": TypeSpec(CyclicLRParams, wrapped=_WRAPPED),
    "OneCycleLR": TypeSpec(OneCycleLRParams, wrapped=_WRAPPED),
    "ReduceLROnPlateau": TypeSpec(ReduceLROnPlateauParams, wrapped=_WRAPPED),
}
"""The schedules by name, DeepSpeed's own first."""
