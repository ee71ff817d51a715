"""DS6: learning rate, betas, epsilon, weight decay and clipping that cannot work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, Phase, Severity
from dslint.facts import Integration, Release
from dslint.rule import Finding, bad, good, path_of, rule, unsafe
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.optimizer import OPTIMIZERS_DOCS, lower_type
from dslint.rules.helpers.parameters import implementation, number, parameter, runs_scheduler, written
from dslint.rules.helpers.schedule import SCHEDULERS_DOCS
from dslint.source.change import Set

LR = "optimizer.params.lr"
PEAKS = ("warmup_max_lr", "cycle_max_lr")
UNCHECKED = ("FusedAdam", "DeepSpeedCPUAdam", "ZenFlowCPUAdam", "FusedLion", "DeepSpeedCPULion", "FusedLamb")
"""DeepSpeed's own classes, which compute with whatever they are given."""


def _sets_lr(config: Config) -> bool:
    """Whether the schedule overwrites the optimizer's learning rate at once, and does not start from it."""
    name = config.value("scheduler.type")
    if not runs_scheduler(config) or name not in ("WarmupLR", "WarmupDecayLR", "OneCycle", "LRRangeTest"):
        return False
    return not (name == "WarmupLR" and parameter(config, "scheduler", "warmup_max_lr") is None)


@rule(
    "DS626",
    "learning-rate-not-positive",
    effect=Effect.SILENT,
    watches=("optimizer.params.lr", "scheduler.params.warmup_max_lr", "scheduler.params.cycle_max_lr"),
    references=(OPTIMIZERS_DOCS, SCHEDULERS_DOCS),
)
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": -1e-4}}}}}}', at=LR)
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 0}}}}}}', at=LR)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW"}}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_max_lr": 0, "warmup_num_steps": 10}}}}}}',
    at="scheduler.params.warmup_max_lr",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}}}')
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 0}}}}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3}}}}}}'
)
def learning_rate_not_positive(config: Config) -> Iterator[Finding]:
    """A learning rate of 0 learns nothing, and a negative one makes the loss larger.

    DeepSpeed's own optimizers check neither: training runs, and the loss stays where it is, or climbs.

    Write a learning rate above 0.
    """
    places = [LR] if not _sets_lr(config) else []
    places += [f"scheduler.params.{name}" for name in PEAKS] if runs_scheduler(config) else []
    for key in places:
        rate = number(written(config, key.rpartition(".")[2], key.partition(".")[0]))
        if rate < 0 or rate == 0:
            what = "the parameters never change" if rate == 0 else "every step goes uphill, and the loss grows"
            yield Finding(
                key,
                f"{key.rpartition('.')[2]} {config.quote(key)}: {what}. DeepSpeed trains with it as it stands.",
                help="Write a learning rate above 0.",
                fix=unsafe(f"write {text}", Set(path_of(key), text))
                if (text := config.quote(key).removeprefix("-")) != config.quote(key)
                else None,
            )


@rule(
    "DS627",
    "learning-rate-destroys",
    effect=Effect.ADVICE,
    watches=("optimizer.params.lr", "scheduler.params.warmup_max_lr", "scheduler.params.cycle_max_lr"),
    references=(OPTIMIZERS_DOCS,),
)
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 3}}}}}}', at=LR)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-2}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 3}}}}}}')
def learning_rate_destroys(config: Config) -> Iterator[Finding]:
    """With Adam or Lion a learning rate of 1 and more moves every weight by 1 and more at each step.

    Their steps are about as long as the learning rate, whatever the gradient: weights of a size of 0.02 are gone after one. It is mostly a lost exponent, `3` for
    `3e-5`.

    Write the exponent.
    """
    if lower_type(config) not in ("adam", "adamw", "lion", "muadam", "muadamw"):
        return
    for key in ([] if _sets_lr(config) else [LR]) + [f"scheduler.params.{name}" for name in PEAKS]:
        rate = number(written(config, key.rpartition(".")[2], key.partition(".")[0]))
        if rate >= 1:
            yield Finding(
                key,
                f"{key.rpartition('.')[2]} {config.quote(key)}: a step of {config.value('optimizer.type')} is about as long as the learning rate, so that each moves every weight by about {rate:g}.",
                help=f"Write the exponent that is missing, as in {rate:g}e-5.",
                severity=Severity.WARNING,
            )


@rule(
    "DS628",
    "betas-out-of-range",
    effect=Effect.SILENT,
    watches=("optimizer.params.betas",),
    references=("deepspeed/ops/adam/fused_adam.py", OPTIMIZERS_DOCS),
)
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "betas": [0.9, 1.0]}}}}}}', at="optimizer.params.betas")
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "torch_adam": true, "betas": [0.9, 1.5]}}}}}}',
    at="optimizer.params.betas",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "betas": [0.9, 0.95]}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Lion", "params": {{"lr": 1e-4, "betas": [0, 0.99]}}}}}}')
def betas_out_of_range(config: Config) -> Iterator[Finding]:
    """Betas are the shares of the past in moving averages: at least 0, and below 1.

    DeepSpeed's own Adam, Lamb and Lion take any number. With 1 the average never takes in a gradient, and its correction divides by zero; above 1 it grows without
    end, and the parameters become NaN. PyTorch's classes raise a `ValueError`.

    Write values such as 0.9 and 0.999.
    """
    key = "optimizer.params.betas"
    betas, built = written(config, "betas"), implementation(config)
    if not isinstance(betas, list) or len(betas) != 2 or built is None:
        return
    for index, beta in enumerate(map(number, betas)):
        if not (beta < 0 or beta >= 1):
            continue
        if built in UNCHECKED:
            yield Finding(
                key,
                f"betas[{index}] is {beta:g}, outside 0 <= beta < 1: {built} checks nothing, its averages {'never take in a gradient' if beta == 1 else 'grow without end' if beta > 1 else 'change sign at every step'}, and training comes to nothing.",
                help="Write values such as 0.9 and 0.999.",
            )
        else:
            yield Finding(
                key,
                f'betas[{index}] is {beta:g}, outside 0 <= beta < 1: {built} raises ValueError "Invalid beta parameter" in deepspeed.initialize.',
                help="Write values such as 0.9 and 0.999.",
                effect=Effect.CRASH,
                phase=Phase.INITIALIZE,
            )
        return


@rule(
    "DS629",
    "epsilon-not-positive",
    effect=Effect.SILENT,
    watches=("optimizer.params.eps",),
    references=("deepspeed/ops/adam/fused_adam.py",),
)
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "eps": 0}}}}}}', at="optimizer.params.eps")
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "eps": 1e-8}}}}}}')
def epsilon_not_positive(config: Config) -> Iterator[Finding]:
    """Without an epsilon above 0, parameters whose gradient is zero become NaN.

    Adam divides by the root of the averaged squared gradient plus epsilon. Where the gradient has always been zero, such as the rows of words that have not come
    up yet, that is 0 divided by 0, and one NaN spreads to the whole model.

    Write 1e-8.
    """
    key = "optimizer.params.eps"
    epsilon = number(written(config, "eps"))
    if lower_type(config) in ("adam", "adamw", "adagrad", "lamb") and (
        epsilon == 0 or (epsilon < 0 and implementation(config) in UNCHECKED)
    ):
        yield Finding(
            key,
            f"eps {config.quote(key)}: where a gradient is zero, {config.value('optimizer.type')} divides 0 by 0, and the parameter becomes NaN.",
            help="Write 1e-8.",
            fix=write(config, key, "1e-8"),
        )


@rule(
    "DS630",
    "weight-decay-out-of-range",
    effect=Effect.SILENT,
    watches=("optimizer.params.weight_decay",),
    references=("deepspeed/ops/adam/fused_adam.py", OPTIMIZERS_DOCS),
)
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "weight_decay": -0.1}}}}}}', at="optimizer.params.weight_decay")
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 0.5, "weight_decay": 2}}}}}}', at="optimizer.params.weight_decay")
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "weight_decay": 0.1}}}}}}')
def weight_decay_out_of_range(config: Config) -> Iterator[Finding]:
    """Weight decay below 0 makes weights grow, and one that is too large wipes them out.

    AdamW and Lion multiply the weights by 1 - lr * weight_decay at every step: above 1 with a negative decay, and 0 or below where the product reaches 1.
    DeepSpeed's own optimizers check neither.

    Write a value such as 0.01 or 0.1, or 0.
    """
    key = "optimizer.params.weight_decay"
    decay: Any = number(written(config, "weight_decay"))
    if implementation(config) not in UNCHECKED:
        return
    if decay < 0:
        yield Finding(
            key,
            f"weight_decay {config.quote(key)} is below 0: it makes the weights grow at every step, and DeepSpeed trains with it as it stands.",
            help="Write 0, or a value such as 0.01.",
        )
        return
    rate: Any = UNKNOWN if _sets_lr(config) else number(parameter(config, "optimizer", "lr"))
    decoupled = lower_type(config) in ("adamw", "lion") or parameter(config, "optimizer", "adam_w_mode") is True
    if rate is not UNKNOWN and decoupled and decay is not UNKNOWN and decay * rate >= 1:
        yield Finding(
            key,
            f"weight_decay {config.quote(key)} with the learning rate {rate:g} multiplies every weight by 1 - {rate:g} * {decay:g} = {1 - rate * decay:g} at each step.",
            help="Write a value such as 0.01 or 0.1.",
        )


EXAMPLE = {"betas": [0.8, 0.999], "weight_decay": 3e-7}
"""What stands in DeepSpeed's documentation, and in thousands of files since."""


@rule(
    "DS631",
    "values-of-the-documentation",
    effect=Effect.ADVICE,
    watches=("optimizer.params.betas",),
    references=(OPTIMIZERS_DOCS,),
    pedantic=True,
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-3, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7}}}}}}',
    at="optimizer.params",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-3, "betas": [0.9, 0.999], "weight_decay": 3e-7}}}}}}')
def values_of_the_documentation(config: Config) -> Iterator[Finding]:
    """The optimizer's values are those of the example in DeepSpeed's documentation.

    Betas of 0.8 and 0.999 and a weight decay of 3e-7 belong to an experiment of 2020. Nobody would choose them today for a language model: 0.9 and 0.95 or 0.999, and
    0.01 to 0.1, are usual.

    Write the values that your model's recipe names.
    """
    if all(written(config, name) == value for name, value in EXAMPLE.items()):
        yield Finding(
            "optimizer.params",
            "betas [0.8, 0.999] with weight_decay 3e-7 are the values of the example in DeepSpeed's documentation.",
            help="Write the values of your model's recipe; 0.9, 0.95 or 0.999, and 0.01 to 0.1, are usual.",
            on="key",
        )


@rule(
    "DS632",
    "no-gradient-clipping",
    effect=Effect.IGNORED,
    needs=("integration",),
    watches=("!gradient_clipping",),
    references=("https://huggingface.co/docs/transformers/deepspeed", "deepspeed/runtime/constants.py, GRADIENT_CLIPPING_DEFAULT"),
)
@bad('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', at="", integration="transformers", deepspeed="0.18.9")
@good(
    '{"train_batch_size": "auto", "gradient_clipping": "auto", "zero_optimization": {"stage": 2}}',
    integration="transformers",
    deepspeed="0.18.9",
)
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', integration="transformers")
def no_gradient_clipping(config: Config) -> Iterator[Finding]:
    """Under a Hugging Face loader gradients are clipped where the file says so, and nowhere else.

    With DeepSpeed the Trainer's `max_grad_norm` (1.0 unless given) and Accelerate's `clip_grad_norm_` do nothing by themselves: DeepSpeed clips, by
    `gradient_clipping` in the file. Up to release 0.19.2 that is 0 where it is not written, which is no clipping; since then it is 1.0.

    Write `"gradient_clipping": "auto"`, or a number.
    """
    loader = config.facts.integration
    if (
        config.has("gradient_clipping")
        or loader not in (Integration.TRANSFORMERS, Integration.ACCELERATE)
        or config.release >= Release(0, 19, 3)
        or (config.arguments is not None and "max_grad_norm" in config.arguments)  # has a rule of its own
    ):
        return
    if config.value("gradient_clipping") == 0:
        knob = "max_grad_norm" if loader is Integration.TRANSFORMERS else "clip_grad_norm_"
        yield Finding(
            "",
            f"gradient_clipping is not written, and DeepSpeed {config.release} then clips nothing; {knob} has no effect under {loader.label} with DeepSpeed.",
            help='Write "gradient_clipping": "auto", or a number.',
            fix=write(config, "gradient_clipping", '"auto"'),
        )
