"""DS6: betas, epsilon, momentum and weight decay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.optimizer import OPTIMIZERS_DOCS, lower_type
from dslint.rules.helpers.parameters import implementation, number, parameter, written
from dslint.rules.helpers.schedule import overrides_lr

UNCHECKED = ("FusedAdam", "DeepSpeedCPUAdam", "ZenFlowCPUAdam", "FusedLion", "DeepSpeedCPULion", "FusedLamb")
"""DeepSpeed's own classes, which do not check the values that they get."""


UNCHECKED_BETAS = (*UNCHECKED, "MuonWithAuxAdam")
"""Classes that do not check the betas."""


@rule(
    "DS628",
    effect=Effect.SILENT,
    watches=("optimizer.params.betas",),
    references=("deepspeed/ops/adam/fused_adam.py", OPTIMIZERS_DOCS),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "betas": [0.9, 1.0]}}}}}}',
    at="optimizer.params.betas",
    message="betas[1] is 1, outside 0 <= beta < 1: FusedAdam does not check it, its averages never include a gradient, and the model does not train.",
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "torch_adam": true, "betas": [0.9, 1.5]}}}}}}',
    at="optimizer.params.betas",
    message='betas[1] is 1.5, outside 0 <= beta < 1: torch.optim.AdamW raises ValueError "Invalid beta parameter" in deepspeed.initialize.',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "betas": [0.9, 0.95]}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Lion", "params": {{"lr": 1e-4, "betas": [0, 0.99]}}}}}}')
def betas_out_of_range(config: Config) -> Iterator[Finding]:
    """Betas weight the past in moving averages: each has to be at least 0 and below 1.

    DeepSpeed's own Adam, Lamb and Lion accept any number. With a beta of 1 the average never includes a gradient, and its bias
    correction divides by zero; above 1 the average grows without bound, and the parameters become NaN. PyTorch's classes raise a
    `ValueError`.

    Write values such as 0.9 and 0.999.
    """
    key = "optimizer.params.betas"
    betas, built = written(config, "betas"), implementation(config)
    if not isinstance(betas, list) or len(betas) != 2 or built is None:
        return
    for index, beta in enumerate(map(number, betas)):
        if not (beta < 0 or beta >= 1):
            continue
        found = f"betas[{index}] is {beta:g}, outside 0 <= beta < 1"
        if built in UNCHECKED_BETAS:
            averages = "never include a gradient" if beta == 1 else "grow without bound" if beta > 1 else "change sign at every step"
            yield Finding(
                key,
                f"{found}: {built} does not check it, its averages {averages}, and the model does not train.",
                help="Write values such as 0.9 and 0.999.",
            )
        else:
            yield Finding(
                key,
                f'{found}: {built} raises ValueError "Invalid beta parameter" in deepspeed.initialize.',
                help="Write values such as 0.9 and 0.999.",
                effect=Effect.CRASH,
                phase=Phase.INITIALIZE,
            )
        return


@rule(
    "DS629",
    effect=Effect.SILENT,
    watches=("optimizer.params.eps",),
    references=("deepspeed/ops/adam/fused_adam.py",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "eps": 0}}}}}}',
    at="optimizer.params.eps",
    message="eps 0: if a gradient is zero, AdamW divides 0 by 0, and the parameter becomes NaN.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "eps": 1e-8}}}',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "eps": 1e-8}}}}}}')
def epsilon_not_positive(config: Config) -> Iterator[Finding]:
    """Without an epsilon above 0, parameters with a gradient of zero become NaN.

    Adam divides by the root of the averaged squared gradient plus epsilon. If the gradient was always zero, as in embedding rows of words
    that have not occurred yet, it divides 0 by 0. One NaN spreads to the whole model.

    Write 1e-8.
    """
    key = "optimizer.params.eps"
    epsilon = number(written(config, "eps"))
    checked = implementation(config) not in UNCHECKED
    if lower_type(config) in ("adam", "adamw", "adagrad", "lamb") and (epsilon == 0 or (epsilon < 0 and not checked)):
        yield Finding(
            key,
            f"eps {config.quote(key)}: if a gradient is zero, {config.value('optimizer.type')} divides 0 by 0, and the parameter becomes NaN.",
            help="Write 1e-8.",
            fix=write(config, key, "1e-8"),
        )


@rule(
    "DS630",
    effect=Effect.SILENT,
    watches=("optimizer.params.weight_decay",),
    references=("deepspeed/ops/adam/fused_adam.py", OPTIMIZERS_DOCS),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "weight_decay": -0.1}}}}}}',
    at="optimizer.params.weight_decay",
    message="weight_decay -0.1 is below 0: the weights grow at every step, and DeepSpeed does not check it.",
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 0.5, "weight_decay": 2}}}}}}',
    at="optimizer.params.weight_decay",
    message="weight_decay 2 with the learning rate 0.5 multiplies every weight by 1 - 0.5 * 2 = 0 at each step.",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "weight_decay": 0.1}}}}}}')
def weight_decay_out_of_range(config: Config) -> Iterator[Finding]:
    """A negative weight decay makes weights grow, and one that is too large erases them.

    AdamW and Lion multiply the weights by 1 - lr * weight_decay at every step. The factor is above 1 if the decay is negative, and 0 or
    below if the product reaches 1. DeepSpeed's own optimizers check neither.

    Write 0, or a value such as 0.01 or 0.1.
    """
    key = "optimizer.params.weight_decay"
    decay: Any = number(written(config, "weight_decay"))
    if implementation(config) not in UNCHECKED:
        return
    if decay < 0:
        yield Finding(
            key,
            f"weight_decay {config.quote(key)} is below 0: the weights grow at every step, and DeepSpeed does not check it.",
            help="Write 0, or a value such as 0.01.",
        )
        return
    rate: Any = UNKNOWN if overrides_lr(config) else number(parameter(config, "optimizer", "lr"))
    decoupled = lower_type(config) in ("adamw", "lion") or parameter(config, "optimizer", "adam_w_mode") is True
    if rate is not UNKNOWN and decoupled and decay is not UNKNOWN and decay * rate >= 1:
        yield Finding(
            key,
            f"weight_decay {config.quote(key)} with the learning rate {rate:g} multiplies every weight "
            f"by 1 - {rate:g} * {decay:g} = {1 - rate * decay:g} at each step.",
            help="Write a value such as 0.01 or 0.1.",
        )


@rule(
    "DS651",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.params.nesterov",),
    references=("https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1, "nesterov": true}}}}}}',
    at="optimizer.params.nesterov",
    message='nesterov requires a momentum and no dampening, and momentum is 0: SGD raises ValueError "Nesterov momentum requires a momentum and zero dampening" in deepspeed.initialize.',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "nesterov": true}}}}}}',
    at="optimizer.params.nesterov",
    message='nesterov requires a momentum and no dampening, and dampening is 0.1: SGD raises ValueError "Nesterov momentum requires a momentum and zero dampening" in deepspeed.initialize.',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1, "momentum": 0.9, "nesterov": true}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1, "nesterov": false}}}}}}')
def nesterov_without_momentum(config: Config) -> Iterator[Finding]:
    """SGD with `nesterov` requires a `momentum` above 0, and no `dampening`.

    torch raises `ValueError: Nesterov momentum requires a momentum and zero dampening` when DeepSpeed builds the optimizer.

    Write a momentum such as 0.9 and remove the dampening, or remove `nesterov`.
    """
    key = "optimizer.params.nesterov"
    if implementation(config) != "torch.optim.SGD" or not config.has(key) or config.value(key) is not True:
        return
    momentum, dampening = (parameter(config, "optimizer", name) for name in ("momentum", "dampening"))
    if momentum <= 0 or (dampening is not UNKNOWN and dampening != 0):
        found = "momentum is 0" if momentum <= 0 else f"dampening is {config.quote('optimizer.params.dampening')}"
        yield Finding(
            key,
            f'nesterov requires a momentum and no dampening, and {found}: SGD raises ValueError "Nesterov momentum requires a momentum and zero dampening" in deepspeed.initialize.',
            help='Add "momentum": 0.9, or remove "nesterov".' if momentum <= 0 else 'Remove "dampening", or "nesterov".',
        )


@rule(
    "DS652",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.params.etas",),
    references=("https://docs.pytorch.org/docs/stable/generated/torch.optim.Rprop.html",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Rprop", "params": {{"lr": 0.01, "etas": [0.9, 0.99]}}}}}}',
    at="optimizer.params.etas",
    message='etas [0.9, 0.99] are not 0 < shrink < 1 < grow: Rprop raises ValueError "Invalid eta values" in deepspeed.initialize.',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Rprop", "params": {{"lr": 0.01, "etas": [0.5, 1.2]}}}}}}')
def rprop_factors(config: Config) -> Iterator[Finding]:
    """The `etas` of Rprop are the factors that shrink and grow a step: one between 0 and 1, and one above 1.

    torch raises `ValueError: Invalid eta values` when DeepSpeed builds the optimizer.

    Write them in this order, such as `[0.5, 1.2]`.
    """
    key = "optimizer.params.etas"
    etas = written(config, "etas")
    if implementation(config) != "torch.optim.Rprop" or not isinstance(etas, list) or len(etas) != 2:
        return
    shrink, grow = map(number, etas)
    if shrink is not UNKNOWN and grow is not UNKNOWN and not 0 < shrink < 1 < grow:
        yield Finding(
            key,
            f'etas {config.quote(key)} are not 0 < shrink < 1 < grow: Rprop raises ValueError "Invalid eta values" in deepspeed.initialize.',
            help="Write factors such as [0.5, 1.2].",
        )


DOCUMENTATION_VALUES = {"betas": [0.8, 0.999], "weight_decay": 3e-7}
"""The values of the example in DeepSpeed's documentation, which many configs copy."""


@rule(
    "DS631",
    effect=Effect.ADVICE,
    watches=("optimizer.params.betas",),
    references=(OPTIMIZERS_DOCS,),
    pedantic=True,
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-3, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7}}}}}}',
    at="optimizer.params",
    message="betas [0.8, 0.999] with weight_decay 3e-7 are the values of the example in DeepSpeed's documentation.",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-3, "betas": [0.9, 0.999], "weight_decay": 3e-7}}}}}}')
def values_of_the_documentation(config: Config) -> Iterator[Finding]:
    """The optimizer's values are copied from the example in DeepSpeed's documentation.

    Betas of 0.8 and 0.999 and a weight decay of 3e-7 come from an experiment of 2020. For language models, betas of 0.9 and 0.95 or 0.999
    and a weight decay of 0.01 to 0.1 are usual today.

    Write the values of your model's recipe.
    """
    if all(written(config, name) == value for name, value in DOCUMENTATION_VALUES.items()):
        yield Finding(
            "optimizer.params",
            "betas [0.8, 0.999] with weight_decay 3e-7 are the values of the example in DeepSpeed's documentation.",
            help="Write the values of your model's recipe; usual are betas of 0.9 and 0.95 or 0.999, and a weight decay of 0.01 to 0.1.",
            on="key",
        )


@rule(
    "DS649",
    effect=Effect.SILENT,
    watches=("optimizer.params.momentum",),
    references=("https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1, "momentum": 1.0}}}}}}',
    at="optimizer.params.momentum",
    message="momentum 1.0 is not below 1: old gradients never fade and the steps grow without bound. DeepSpeed does not check it.",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1, "momentum": 0.9}}}}}}')
def momentum_never_decays(config: Config) -> Iterator[Finding]:
    """With a momentum of 1 old gradients never fade, and above 1 their weight grows.

    The optimizers only check that momentum is not negative. The steps grow without bound, and training diverges.

    Write a value below 1, such as 0.9.
    """
    key = "optimizer.params.momentum"
    if number(written(config, "momentum")) >= 1:
        yield Finding(
            key,
            f"momentum {config.quote(key)} is not below 1: old gradients never fade and the steps grow without bound. "
            "DeepSpeed does not check it.",
            help="Write a value below 1, such as 0.9.",
        )
