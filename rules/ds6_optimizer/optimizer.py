"""DS6: optimizer, scheduler and clipping."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Integration
from dslint.rule import Finding, FixPlan, bad, good, rule, unsafe
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import json_text, spelling, without, write
from dslint.rules.helpers.optimizer import OPTIMIZERS_DOCS
from dslint.rules.helpers.parameters import in_release, meant_parameter, parameter, respelt_parameter
from dslint.rules.helpers.schedule import SCHEDULERS_DOCS
from dslint.schemas.auto import FILLED
from dslint.schemas.typed import find_type, registry
from dslint.source.change import Move, Rename
from dslint.source.tree import Mapping, Scalar


@rule(
    "DS601",
    "max-grad-norm-in-optimizer",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.params.max_grad_norm",),
    references=(OPTIMIZERS_DOCS,),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "max_grad_norm": 1.0}}}}}}', at="optimizer.params.max_grad_norm"
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "max_grad_norm": "1"}}}}}}', at="optimizer.params.max_grad_norm"
)
@good(f'{{{MINIMAL}, "gradient_clipping": 1.0, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}}}')
def max_grad_norm_in_optimizer(config: Config) -> Iterator[Finding]:
    """max_grad_norm among the optimizer's parameters.

    DeepSpeed clips gradients by the top-level `gradient_clipping`, for every optimizer. Given `max_grad_norm` in `optimizer.params` it warns while
    parsing and raises a `ValueError` when it builds the optimizer; if the value is no number, it raises a `TypeError` at once.

    Write `"gradient_clipping"` at the top level.
    """
    key = "optimizer.params.max_grad_norm"
    if not config.has(key):
        return
    number = config.quote(key)
    parses = isinstance(getattr(config.node(key), "value", None), int | float)
    error = (
        'ValueError "max_grad_norm is not supported as an optimizer parameter" in deepspeed.initialize'
        if parses
        else "TypeError \"'>' not supported between instances\" while parsing"
    )
    yield Finding(
        key,
        f"max_grad_norm {number} is no parameter of an optimizer: DeepSpeed raises {error}.",
        help=f'Write "gradient_clipping": {number} at the top level.'
        if parses
        else 'Write "gradient_clipping" with a number at the top level.',
        fix=_clipping(config, key) if parses else None,
        phase=None if parses else Phase.PARSE,
    )


def _clipping(config: Config, key: str) -> FixPlan | None:
    """The norm where DeepSpeed reads it; where one is written there, this one goes."""
    path = tuple(key.split("."))
    if not config.has("gradient_clipping"):
        return unsafe("move to gradient_clipping", Move(path, ("gradient_clipping",)))
    same = getattr(config.node("gradient_clipping"), "value", None) == getattr(config.node(key), "value", None)
    return without(config, path) if same else without(config, path, Applicability.UNSAFE)


def _unknown_type(config: Config, section: str, error: str) -> Iterator[Finding]:
    from difflib import get_close_matches

    key = f"{section}.type"
    name = config.value(key)
    if not isinstance(name, str) or not config.has(key) or name == "auto" or find_type(section, name) is not None:
        return
    types = {known: entry for known, entry in (registry(section) or {}).items() if in_release(entry, config.release)}
    same = [known for known in types if known.lower() == name.lower()]
    close = same or get_close_matches(name, types, n=1)
    exactly = f" `{close[0]}` has to be spelt exactly so." if same else ""
    yield Finding(
        key,
        f"{key} {config.quote(key)} is none that DeepSpeed {config.release} knows: it raises {error} in deepspeed.initialize.{exactly}",
        help=f'Write "{close[0]}".' if close else f"DeepSpeed's own are {', '.join(known for known in types if '.' not in known)}.",
        on="value",
        fix=write(config, key, json_text(guess.word), Applicability.SAFE if guess.sure else Applicability.UNSAFE)
        if (guess := spelling(name, types))
        else None,
    )


@rule(
    "DS602",
    "unknown-optimizer-type",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.type",),
    references=(OPTIMIZERS_DOCS,),
)
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "sgd", "params": {{"lr": 0.1}}}}}}', at="optimizer.type")
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW8bit", "params": {{"lr": 1e-4}}}}}}', at="optimizer.type")
@good(f'{{{MINIMAL}, "optimizer": {{"type": "ADAMW", "params": {{"lr": 1e-4}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1}}}}}}')
def unknown_optimizer_type(config: Config) -> Iterator[Finding]:
    """The optimizer's type is none that DeepSpeed can build.

    DeepSpeed's own optimizers are matched in any case (`ADAMW`); every other name is looked up in `torch.optim`, to the letter (`SGD`, and not
    `sgd`). Optimizers of other packages are not found: the program has to build those and hand them to `deepspeed.initialize`.

    Correct the name, or leave the section out and build the optimizer in the program.
    """
    yield from _unknown_type(config, "optimizer", "AssertionError or AttributeError")


@rule(
    "DS603",
    "unknown-scheduler-type",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("scheduler.type",),
    references=(SCHEDULERS_DOCS,),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "scheduler": {{"type": "WarmupCosine", "params": {{}}}}}}',
    at="scheduler.type",
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_max_lr": 1e-4}}}}}}'
)
def unknown_scheduler_type(config: Config) -> Iterator[Finding]:
    """The scheduler's type is none that DeepSpeed can build.

    DeepSpeed has WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle and LRRangeTest, spelt exactly so; other names are looked up in
    `torch.optim.lr_scheduler`.

    Correct the name.
    """
    yield from _unknown_type(config, "scheduler", "AssertionError")


def _has_type(config: Config, section: str) -> bool:
    return config.has(f"{section}.type") and config.quote(f"{section}.type") != "null"


@rule(
    "DS604",
    "section-without-type",
    effect=Effect.SILENT,
    watches=("optimizer", "scheduler"),
    references=("deepspeed/runtime/config.py, get_optimizer_name",),
)
@bad(f'{{{MINIMAL}, "optimizer": {{"params": {{"lr": 1e-4}}}}}}', at="optimizer")
@bad(f'{{{MINIMAL}, "scheduler": {{"name": "WarmupLR", "params": {{"warmup_num_steps": 10}}}}}}', at="scheduler")
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{}}}}')
def section_without_type(config: Config) -> Iterator[Finding]:
    """An optimizer or scheduler section without a type builds nothing.

    DeepSpeed looks at `type` first, and where there is none it takes the section for absent: the parameters in it are lost, and training uses
    what the program brings, or nothing.

    Write the type.
    """
    for section in ("optimizer", "scheduler"):
        node = config.node(section)
        if not isinstance(node, Mapping) or not node.members or _has_type(config, section):
            continue
        if any(violation.meant == (section, "type") for violation in config.violations):
            continue
        yield Finding(
            section,
            f'{section} has no "type", and DeepSpeed takes it for absent: no {section} is built from what is written here.',
            help='Add "type": "AdamW".' if section == "optimizer" else 'Add "type": "WarmupLR".',
            on="key",
            fix=_named_type(config, section, node),
        )


def _named_type(config: Config, section: str, node: Mapping) -> FixPlan | None:
    """The key whose value is a type gets the name "type"; nothing where none is one, or several are."""
    named = [
        member.key.value
        for member in node.members
        if isinstance(member.value, Scalar) and find_type(section, member.value.value) is not None and member.key.value != "type"
    ]
    return (
        unsafe('rename to "type"', Rename((section, named[0]), "type")) if len(named) == 1 and not config.has(f"{section}.type") else None
    )


def _names_its_own_lr(config: Config) -> bool:
    """Whether there is a schedule that does not start from the optimizer's learning rate, or may not."""
    if not _has_type(config, "scheduler"):
        return False
    name = config.value("scheduler.type")
    if name == "WarmupLR":
        return parameter(config, "scheduler", "warmup_max_lr") is not None
    return bool(name != "WarmupCosineLR")


@rule("DS605", "optimizer-without-lr", effect=Effect.SILENT, watches=("optimizer.type",), references=(OPTIMIZERS_DOCS,))
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "lr": 3e-5}}}}', at="optimizer.type")
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"weight_decay": 0.1}}}}}}', at="optimizer.type")
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW"}}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"warmup_num_steps": 100, "total_num_steps": 9000}}}}}}',
    at="optimizer.type",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 3e-5}}}}}}')
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW"}}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_max_lr": 3e-5, "warmup_num_steps": 100}}}}}}'
)
def optimizer_without_lr(config: Config) -> Iterator[Finding]:
    """No learning rate is written, and the optimizer takes its own default.

    For most optimizers that is 1e-3, far more than large models bear. It happens when `params` is missing or misspelt, and when `lr` stands beside `type` in place
    of inside `params`. Under the Hugging Face Trainer too: it fills "auto", and adds nothing that is absent.

    Write `"params": {"lr": ...}`. A schedule that names its own learning rates, such as WarmupLR with `warmup_max_lr`, needs none of the optimizer.
    """
    name = config.value("optimizer.type")
    entry = find_type("optimizer", name)
    if not config.has("optimizer.type") or entry is None or "lr" not in entry["params"]:
        return
    if config.has("optimizer.params.lr") or any(
        v.section in ("optimizer", "optimizer.params") and v.meant is not None for v in config.violations
    ):
        return
    params = config.node("optimizer.params")
    if _names_its_own_lr(config) or not (params is None or isinstance(params, Mapping) or config.quote("optimizer.params") == "null"):
        return
    if isinstance(params, Mapping) and any(member.key.value not in entry["params"] for member in params.members):
        return  # with a parameter that it does not take, it is not built at all
    default = entry["params"]["lr"].get("default")
    if default is None:
        return
    yield Finding(
        "optimizer.type",
        f"No learning rate is written in optimizer.params: {name} takes its own default, {default:g}.",
        help='Write "params": {"lr": ...}.',
        fix=unsafe("move to optimizer.params", Move(("optimizer", "lr"), ("optimizer", "params", "lr")))
        if config.has("optimizer.lr")
        else write(config, "optimizer.params.lr", '"auto"')
        if config.facts.integration is Integration.TRANSFORMERS
        else None,
    )


@rule(
    "DS606",
    "scheduler-lr-not-the-optimizers",
    effect=Effect.SILENT,
    watches=("scheduler.type",),
    references=(SCHEDULERS_DOCS, "deepspeed/runtime/lr_schedules.py"),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-5}}}}, "scheduler": {{"type": "WarmupDecayLR", "params": {{"total_num_steps": 1000, "warmup_max_lr": 1e-3}}}}}}',
    at="scheduler.params.warmup_max_lr",
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-5}}}}, "scheduler": {{"type": "WarmupDecayLR", "params": {{"total_num_steps": 1000}}}}}}',
    at="scheduler.params",
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-5}}}}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 100}}}}}}',
    at="scheduler.params",
    deepspeed="0.17.1",
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-5}}}}, "scheduler": {{"type": "WarmupDecayLR", "params": {{"total_num_steps": 1000, "warmup_num_steps": 50, "warmup_max_lr": 1e-5}}}}}}'
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-5}}}}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 100}}}}}}'
)
def scheduler_lr_not_the_optimizers(config: Config) -> Iterator[Finding]:
    """The scheduler goes up to another learning rate than the optimizer's, and the scheduler wins.

    The warm-up schedulers set the learning rate at every step, from `warmup_min_lr` up to `warmup_max_lr`; `optimizer.params.lr` is overwritten at the first.
    Where `warmup_max_lr` is absent, WarmupLR takes the optimizer's (before 0.17.2 it took 0.001), and WarmupDecayLR takes 0.001.

    Write the same value in both.
    """
    kind, lr = config.value("scheduler.type"), config.node("optimizer.params.lr")
    key = "scheduler.params.warmup_max_lr"
    rate = getattr(lr, "value", None)
    if kind not in ("WarmupLR", "WarmupDecayLR") or isinstance(rate, bool) or not isinstance(rate, int | float):
        return
    if config.has(key):
        peak = getattr(config.node(key), "value", None)
        at = key
    else:
        peak = parameter(config, "scheduler", "warmup_max_lr")
        at = "scheduler.params"
        if not isinstance(config.node(at), Mapping):
            return
    if isinstance(peak, bool) or not isinstance(peak, int | float) or abs(peak - rate) <= 1e-9 * max(abs(peak), abs(rate)):
        return
    written = f"warmup_max_lr {config.quote(key)}" if at == key else f"warmup_max_lr is absent, and {kind} takes {peak:g}"
    yield Finding(
        at,
        f"{written}{', but' if at == key else ', where'} optimizer.params.lr is {config.quote('optimizer.params.lr')}: the scheduler overwrites it, and training goes up to {peak:g}.",
        help=f'Write "warmup_max_lr": {config.quote("optimizer.params.lr")}, or the peak that is meant in both places.',
        related=(("optimizer.params.lr", "overwritten by the scheduler"),),
        on="key" if at != key else "member",
        fix=write(config, key, config.quote("optimizer.params.lr")) if at != key else None,
    )


FELT = 1e-5
"""The least weight decay that one notices: the 3e-7 of DeepSpeed's own examples changes nothing either way."""


@rule(
    "DS607",
    "adam-is-adamw",
    effect=Effect.ADVICE,
    watches=("optimizer.params.weight_decay",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._configure_basic_optimizer",),
)
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-4, "weight_decay": 0.1}}}}}}', at="optimizer.type")
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "weight_decay": 0.1}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-4, "weight_decay": 3e-7}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-4, "weight_decay": 0.1, "adam_w_mode": false}}}}}}')
def adam_is_adamw(config: Config) -> Iterator[Finding]:
    """The type Adam runs AdamW, unless `adam_w_mode` is false.

    DeepSpeed's Adam applies weight decay to the parameters, as AdamW does, and not to the gradients, as Adam does. With weight decay the two train differently.

    Write `"type": "AdamW"` to say what runs, or `"adam_w_mode": false` in `params` for Adam as published.
    """
    name = config.value("optimizer.type")
    if not isinstance(name, str) or name.lower() != "adam" or config.has("optimizer.params.adam_w_mode"):
        return
    decay = getattr(config.node("optimizer.params.weight_decay"), "value", None)
    if isinstance(decay, int | float) and decay >= FELT:
        yield Finding(
            "optimizer.type",
            f"optimizer.type {config.quote('optimizer.type')} runs AdamW: DeepSpeed applies weight_decay {decay:g} to the parameters, not to the gradients, unless adam_w_mode is false.",
            help='Write "AdamW" to say what runs, or "adam_w_mode": false in params.',
            fix=write(config, "optimizer.type", '"AdamW"', Applicability.SAFE),
        )


@rule(
    "DS608",
    "negative-gradient-clipping",
    effect=Effect.SILENT,
    watches=("gradient_clipping",),
    references=("https://www.deepspeed.ai/docs/config-json/#gradient-clipping",),
)
@bad(f'{{{MINIMAL}, "gradient_clipping": -1.0}}', at="gradient_clipping")
@good(f'{{{MINIMAL}, "gradient_clipping": 0}}')
@good(f'{{{MINIMAL}, "gradient_clipping": 1.0}}')
def negative_gradient_clipping(config: Config) -> Iterator[Finding]:
    """A negative gradient_clipping clips nothing.

    DeepSpeed clips where the value is above 0, and otherwise leaves gradients as they are.

    Write the largest norm that is allowed, or 0 to say that clipping is off.
    """
    if config.value("gradient_clipping") < 0:
        yield Finding(
            "gradient_clipping",
            f"gradient_clipping {config.quote('gradient_clipping')} is below 0: DeepSpeed clips no gradients.",
            help="Write the largest norm that is allowed, or 0 to say that clipping is off.",
            fix=write(config, "gradient_clipping", "0", Applicability.SAFE),
        )


NICKNAMES = {"learning_rate": "lr", "epsilon": "eps", "wd": "weight_decay", "beta1": "betas", "beta2": "betas"}
"""What other libraries call parameters."""


@rule(
    "DS609",
    "unknown-parameter",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.params", "scheduler.params"),
    references=(OPTIMIZERS_DOCS, SCHEDULERS_DOCS),
)
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "weight_deacy": 0.1}}}}}}', at="optimizer.params.weight_deacy")
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "scheduler": {{"type": "WarmupLR", "params": {{"total_num_steps": 100}}}}}}',
    at="scheduler.params.total_num_steps",
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"total_num_steps": 9000, "warmup_min_lr": 1e-6}}}}}}',
    at="scheduler.params.warmup_min_lr",
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "weight_decay": 0.1}}}}}}')
def unknown_parameter(config: Config) -> Iterator[Finding]:
    """A parameter that the optimizer or the schedule does not take.

    DeepSpeed hands `params` on to the constructor, which raises `TypeError: unexpected keyword argument` in `deepspeed.initialize`.

    Correct the spelling, or remove it.
    """
    for section in ("optimizer", "scheduler"):
        entry = find_type(section, config.value(f"{section}.type"))
        params = config.node(f"{section}.params")
        if entry is None or entry.get("open") or not isinstance(params, Mapping):
            continue
        for member in params.members:
            name = member.key.value
            if name not in entry["params"]:
                close = meant_parameter(section, name, entry["params"])
                other = NICKNAMES.get(name)
                if other in entry["params"]:
                    yield _nicknamed(config, section, name, str(other))
                    continue
                yield Finding(
                    (section, "params", name),
                    f'{config.value(f"{section}.type")} takes no parameter "{name}": DeepSpeed raises TypeError "unexpected keyword argument" in deepspeed.initialize.',
                    help=f'Did you mean "{close.word}"?' if close else "Remove it.",
                    on="key",
                    fix=respelt_parameter(config, section, name, close.word if close else None, Applicability.SAFE)
                    if close is None or close.sure
                    else None,
                )


def _nicknamed(config: Config, section: str, name: str, meant: str) -> Finding:
    """The finding for a parameter that goes by the name of another library. Two betas become a list, which is left to the writer."""
    apart = meant == "betas"
    return Finding(
        (section, "params", name),
        f'{config.value(f"{section}.type")} takes no parameter "{name}": DeepSpeed raises TypeError "unexpected keyword argument" in deepspeed.initialize.',
        help='Write both in a list: "betas": [0.9, 0.999].' if apart else f'Write "{meant}".',
        on="key",
        fix=None
        if apart or config.has((section, "params", meant))
        else FixPlan(f'rename to "{meant}"', (Rename((section, "params", name), meant),), Applicability.SAFE),
    )


@rule(
    "DS610",
    "missing-parameter",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.params", "scheduler.params"),
    references=(SCHEDULERS_DOCS, "deepspeed/runtime/lr_schedules.py"),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "scheduler": {{"type": "WarmupDecayLR", "params": {{"warmup_max_lr": 1e-4}}}}}}',
    at="scheduler.params",
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "scheduler": {{"type": "WarmupDecayLR", "params": {{"warmup_max_lr": 1e-4, "warmup_num_steps": 10, "total_num_steps": 100}}}}}}'
)
def missing_parameter(config: Config) -> Iterator[Finding]:
    """A parameter without which the optimizer or the schedule cannot be built.

    WarmupDecayLR and WarmupCosineLR need `total_num_steps`: without it `deepspeed.initialize` raises a `TypeError`. The Hugging Face Trainer fills "auto", and adds
    nothing that is absent.

    Add it.
    """
    for section in ("optimizer", "scheduler"):
        entry = find_type(section, config.value(f"{section}.type"))
        params = config.node(f"{section}.params")
        if entry is None or not isinstance(params, Mapping):
            continue
        missing = [name for name, spec in entry["params"].items() if spec.get("required") and not config.has(f"{section}.params.{name}")]
        if missing and not any(violation.section == f"{section}.params" and violation.meant for violation in config.violations):
            names = ", ".join(f'"{name}"' for name in missing)
            yield Finding(
                f"{section}.params",
                f"{config.value(f'{section}.type')} cannot be built without {names}: DeepSpeed raises TypeError in deepspeed.initialize.",
                help=f"Add {names}.",
                on="key",
                fix=_filled_by_the_loader(config, section, missing),
            )


def _filled_by_the_loader(config: Config, section: str, missing: list[str]) -> FixPlan | None:
    """Leave to the Trainer the one parameter that is missing, if it has a value for it."""
    key = f"{section}.params.{missing[0]}"
    known = config.facts.integration is Integration.TRANSFORMERS and key in FILLED["transformers"]
    return write(config, key, '"auto"') if known and len(missing) == 1 else None
