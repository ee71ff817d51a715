"""DS6: the learning rate of the optimizer and of the schedule."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, path_of, rule, unsafe
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.optimizer import OPTIMIZERS_DOCS, lower_type
from dslint.rules.helpers.parameters import is_passed_by_program, number, parameter, runs_scheduler, written
from dslint.rules.helpers.project import is_set_elsewhere
from dslint.rules.helpers.schedule import PLACEHOLDER, SCHEDULERS_DOCS, SCHEDULES_SOURCE, overrides_lr
from dslint.schemas.typed import find_type
from dslint.source.change import Move, Set
from dslint.source.tree import Mapping

LR = "optimizer.params.lr"
PEAKS = ("warmup_max_lr", "cycle_max_lr")
"""Parameters of schedules that hold the highest learning rate."""

_ALL_PARAMETERS = re.compile(r"""(list\()?(\w+\.)*(named_)?parameters\(\)\)?""")


def _may_set_rates(config: Config) -> bool:
    """Whether the program may set learning rates that the config does not have: in the groups of an optimizer, or by a schedule of its own."""
    program = config.setup.program if config.setup is not None else None
    if program is None:
        return False
    if program.sets_rate or {"lr_scheduler", "optimizer"} & (program.passed or frozenset()):
        return True
    given = [one.argument("model_parameters", 3) for one in program.events.of(r"deepspeed\.initialize")]
    return any(one is not None and not _ALL_PARAMETERS.fullmatch(one.raw.strip()) and "requires_grad" not in one.raw for one in given)


def _schedule_has_own_lr(config: Config) -> bool:
    """Whether there is a schedule that may not start from the optimizer's learning rate."""
    if not config.has("scheduler.type") or config.is_null("scheduler.type"):
        return False
    name = config.value("scheduler.type")
    if name == "WarmupLR":
        return parameter(config, "scheduler", "warmup_max_lr") is not None
    return bool(name != "WarmupCosineLR")


@rule("DS605", effect=Effect.SILENT, watches=("optimizer.type",), references=(OPTIMIZERS_DOCS,))
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "lr": 3e-5}}}}',
    at="optimizer.type",
    message="optimizer.params has no learning rate: AdamW uses its default, 0.001.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 3e-5}}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"weight_decay": 0.1}}}}}}',
    at="optimizer.type",
    message="optimizer.params has no learning rate: AdamW uses its default, 0.001, unless the program sets another one.",
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW"}}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"warmup_num_steps": 100, "total_num_steps": 9000}}}}}}',
    at="optimizer.type",
    message="optimizer.params has no learning rate: AdamW uses its default, 0.001, unless the program sets another one.",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 3e-5}}}}}}')
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW"}}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_max_lr": 3e-5, "warmup_num_steps": 100}}}}}}'
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW"}}}}',
    program="import deepspeed\nengine, optimizer, *_ = deepspeed.initialize(model=model, config='ds_config.json')\n"
    "for step in range(1000):\n    for group in optimizer.param_groups:\n        group['lr'] = rate(step)\n    engine.step()\n",
    integration="deepspeed",
)
def optimizer_without_lr(config: Config) -> Iterator[Finding]:
    """The optimizer has no learning rate and uses its own default.

    For most optimizers the default is 1e-3, which is far too high for large models. The usual causes are a missing or misspelt `params`,
    and an `lr` next to `type` instead of inside `params`. The Hugging Face Trainer does not help: it replaces "auto", but does not add
    absent keys.

    Write `"params": {"lr": ...}`. A schedule with its own learning rates, such as WarmupLR with `warmup_max_lr`, needs no `lr`, and neither
    does a program that writes the rate into `optimizer.param_groups` itself.
    """
    name = config.value("optimizer.type")
    program = config.setup.program if config.setup is not None else None
    if program is not None and program.sets_rate:
        return
    entry = find_type("optimizer", name)
    if not config.has("optimizer.type") or entry is None or "lr" not in entry["params"]:
        return
    if (
        config.has(LR)
        or config.may_be_written(LR)
        or any(v.section in ("optimizer", "optimizer.params") and v.meant is not None for v in config.violations)
    ):
        return
    params = config.node("optimizer.params")
    if _schedule_has_own_lr(config) or not (params is None or isinstance(params, Mapping) or config.is_null("optimizer.params")):
        return
    if isinstance(params, Mapping) and any(member.key.value not in entry["params"] for member in params.members):
        return  # a parameter that the optimizer does not take: the constructor raises
    default = entry["params"]["lr"].get("default")
    if default is None or is_set_elsewhere(config, "lr"):
        return
    # Only a program can write a rate into the groups of an optimizer; the Trainer does not, and an lr beside "type" was meant for this one.
    # Where no rate is written anywhere, the default may be the rate that is meant.
    certain = config.facts.integration is Integration.TRANSFORMERS or config.has("optimizer.lr")
    is_kept = certain or (program is not None and not _may_set_rates(config))
    yield Finding(
        "optimizer.type",
        f"optimizer.params has no learning rate: {name} uses its default, {default:g}{'' if is_kept else ', unless the program sets another one'}.",
        help='Write "params": {"lr": ...}.',
        certain=certain,
        fix=unsafe("move to optimizer.params", Move(("optimizer", "lr"), ("optimizer", "params", "lr")))
        if config.has("optimizer.lr")
        else write(config, LR, '"auto"')
        if config.facts.integration is Integration.TRANSFORMERS
        else None,
    )


@rule(
    "DS606",
    effect=Effect.SILENT,
    watches=("scheduler.type",),
    references=(SCHEDULERS_DOCS, SCHEDULES_SOURCE),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-5}}}}, "scheduler": {{"type": "WarmupDecayLR", "params": {{"total_num_steps": 1000, "warmup_max_lr": 1e-3}}}}}}',
    at="scheduler.params.warmup_max_lr",
    message="warmup_max_lr 1e-3 differs from optimizer.params.lr 1e-5: the schedule overwrites the optimizer's learning rate and warms up to 0.001.",
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-5}}}}, "scheduler": {{"type": "WarmupDecayLR", "params": {{"total_num_steps": 1000}}}}}}',
    at="scheduler.params",
    message="warmup_max_lr is not set and WarmupDecayLR defaults to 0.001, but optimizer.params.lr is 1e-5: the schedule overwrites the optimizer's learning rate and warms up to 0.001.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 1000, "warmup_max_lr": 1e-5}}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-5}}}}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 100}}}}}}',
    at="scheduler.params",
    deepspeed="0.17.1",
    message="warmup_max_lr is not set and WarmupLR defaults to 0.001, but optimizer.params.lr is 1e-5: the schedule overwrites the optimizer's learning rate and warms up to 0.001.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100, "warmup_max_lr": 1e-5}}}',
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-5}}}}, "scheduler": {{"type": "WarmupDecayLR", "params": {{"total_num_steps": 1000, "warmup_num_steps": 50, "warmup_max_lr": 1e-5}}}}}}'
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-5}}}}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 100}}}}}}'
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-5}}}}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_max_lr": 5e-4}}}}}}',
    program="import deepspeed\nimport torch\nopt = torch.optim.AdamW(model.parameters(), lr=5e-4)\n"
    "engine, optimizer, *_ = deepspeed.initialize(model=model, optimizer=opt, config='ds_config.json')\n",
    integration="deepspeed",
)
def scheduler_lr_not_the_optimizers(config: Config) -> Iterator[Finding]:
    """The schedule warms up to another learning rate than the optimizer's, and overwrites the optimizer's.

    The warm-up schedules set the learning rate at every step, from `warmup_min_lr` up to `warmup_max_lr`. They overwrite
    `optimizer.params.lr` at the first step. If `warmup_max_lr` is absent, WarmupLR uses the optimizer's learning rate (0.001 before
    DeepSpeed 0.17.2), and WarmupDecayLR uses 0.001.

    Write the same value in both places.
    """
    schedule, rate = config.value("scheduler.type"), config.literal(LR)
    key = "scheduler.params.warmup_max_lr"
    if schedule not in ("WarmupLR", "WarmupDecayLR") or isinstance(rate, bool) or not isinstance(rate, int | float):
        return
    if "optimizer" in config.replaced:
        return  # the program passes an optimizer with a learning rate of its own
    if config.has(key):
        peak = config.literal(key)
        at = key
    else:
        peak = parameter(config, "scheduler", "warmup_max_lr")
        at = "scheduler.params"
        if not isinstance(config.node(at), Mapping):
            return
    if PLACEHOLDER in (peak, rate) or is_passed_by_program(config) or is_set_elsewhere(config, "lr", "warmup_max_lr"):
        return
    if isinstance(peak, bool) or not isinstance(peak, int | float) or abs(peak - rate) <= 1e-9 * max(abs(peak), abs(rate)):
        return
    lr = config.quote(LR)
    meant = '"auto"' if config.arguments is not None and "learning_rate" in config.arguments else lr  # which the Trainer compares
    found = (
        f"warmup_max_lr {config.quote(key)} differs from optimizer.params.lr {lr}"
        if at == key
        else f"warmup_max_lr is not set and {schedule} defaults to {peak:g}, but optimizer.params.lr is {lr}"
    )
    yield Finding(
        at,
        f"{found}: the schedule overwrites the optimizer's learning rate and warms up to {peak:g}.",
        help='Write "warmup_max_lr": "auto", and "auto" as the "lr", too.'
        if meant == '"auto"'
        else f'Write "warmup_max_lr": {lr}, or the intended peak in both places.',
        related=((LR, "the schedule overwrites this"),),
        on="key" if at != key else "member",
        fix=write(config, key, meant) if at != key else None,
    )


@rule(
    "DS626",
    effect=Effect.SILENT,
    watches=("optimizer.params.lr", "scheduler.params.warmup_max_lr", "scheduler.params.cycle_max_lr"),
    references=(OPTIMIZERS_DOCS, SCHEDULERS_DOCS),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": -1e-4}}}}}}',
    at=LR,
    message="lr -1e-4: every step goes uphill and the loss grows. DeepSpeed does not check the value.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 0}}}}}}',
    at=LR,
    message="lr 0: the parameters never change. DeepSpeed does not check the value.",
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": -1}}}}}}',
    at=LR,
    message="lr -1 looks like a placeholder: the program has to replace it, because DeepSpeed does not check the value.",
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW"}}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_max_lr": 0, "warmup_num_steps": 10}}}}}}',
    at="scheduler.params.warmup_max_lr",
    message="warmup_max_lr 0: the parameters never change. DeepSpeed does not check the value.",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}}}')
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 0}}}}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3}}}}}}'
)
def learning_rate_not_positive(config: Config) -> Iterator[Finding]:
    """With a learning rate of 0 the model does not learn, and with a negative one the loss grows.

    DeepSpeed's own optimizers do not check the learning rate: training runs, and the loss stays constant or grows. A value of -1 is an info:
    templates use it as a placeholder that the program replaces.

    Write a learning rate above 0.
    """
    keys = [LR] if not overrides_lr(config) else []
    keys += [f"scheduler.params.{name}" for name in PEAKS] if runs_scheduler(config) else []
    for key in keys:
        rate = number(written(config, key.rpartition(".")[2], key.partition(".")[0]))
        if rate <= 0 and (_may_set_rates(config) or is_set_elsewhere(config, key.rpartition(".")[2])):
            continue
        if rate == PLACEHOLDER:
            yield Finding(
                key,
                f"{key.rpartition('.')[2]} {config.quote(key)} looks like a placeholder: the program has to replace it, because DeepSpeed does not check the value.",
                help="Write a learning rate above 0, unless the program replaces it.",
                effect=Effect.ADVICE,
                certain=False,
            )
        elif rate < 0 or rate == 0:
            what = "the parameters never change" if rate == 0 else "every step goes uphill and the loss grows"
            yield Finding(
                key,
                f"{key.rpartition('.')[2]} {config.quote(key)}: {what}. DeepSpeed does not check the value.",
                help="Write a learning rate above 0.",
                fix=unsafe(f"write {text}", Set(path_of(key), text))
                if (text := config.quote(key).removeprefix("-")) != config.quote(key)
                else None,
            )


@rule(
    "DS627",
    effect=Effect.ADVICE,
    watches=("optimizer.params.lr", "scheduler.params.warmup_max_lr", "scheduler.params.cycle_max_lr"),
    references=(OPTIMIZERS_DOCS,),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 3}}}}}}',
    at=LR,
    message="lr 3: the size of a step of AdamW is about the learning rate, so that each step changes every weight by about 3.",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-2}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 3}}}}}}')
def learning_rate_too_high(config: Config) -> Iterator[Finding]:
    """With Adam or Lion, a learning rate of 1 or more changes every weight by 1 or more at each step.

    The size of an Adam or Lion step is about the learning rate, whatever the gradient is. Weights of about 0.02 are lost after one step.
    The usual cause is a missing exponent: `3` instead of `3e-5`.

    Write the exponent.
    """
    if lower_type(config) not in ("adam", "adamw", "lion", "muadam", "muadamw"):
        return
    for key in ([] if overrides_lr(config) else [LR]) + [f"scheduler.params.{name}" for name in PEAKS]:
        rate = number(written(config, key.rpartition(".")[2], key.partition(".")[0]))
        if rate >= 1 and not (_may_set_rates(config) or is_set_elsewhere(config, key.rpartition(".")[2])):
            yield Finding(
                key,
                f"{key.rpartition('.')[2]} {config.quote(key)}: the size of a step of {config.value('optimizer.type')} "
                f"is about the learning rate, so that each step changes every weight by about {rate:g}.",
                help=f"Write the missing exponent, as in {rate:g}e-5.",
                costly=True,
            )
