"""DS6: parameters that an optimizer or schedule type does not take, or requires."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Integration
from dslint.rule import Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.optimizer import OPTIMIZER_SOURCE, OPTIMIZERS_DOCS
from dslint.rules.helpers.parameters import implementation, meant_parameter, respelt_parameter, type_in_release, written
from dslint.rules.helpers.project import is_set_elsewhere
from dslint.rules.helpers.schedule import SCHEDULERS_DOCS
from dslint.schemas.auto import FILLED
from dslint.schemas.typed import find_type
from dslint.source.change import Rename, Set
from dslint.source.tree import Mapping

RATES_OF_WARMUP = ("warmup_min_lr", "warmup_max_lr")
"""Parameters of WarmupLR and WarmupDecayLR that are rates."""

OTHER_NAMES = {"learning_rate": "lr", "epsilon": "eps", "wd": "weight_decay", "beta1": "betas", "beta2": "betas"}
"""Names of parameters in other libraries, with their names here."""


@rule(
    "DS609",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.params", "scheduler.params"),
    references=(OPTIMIZERS_DOCS, SCHEDULERS_DOCS),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "weight_deacy": 0.1}}}}}}',
    at="optimizer.params.weight_deacy",
    message='AdamW has no parameter "weight_deacy": DeepSpeed raises TypeError "unexpected keyword argument" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "scheduler": {{"type": "WarmupLR", "params": {{"total_num_steps": 100}}}}}}',
    at="scheduler.params.total_num_steps",
    message='WarmupLR has no parameter "total_num_steps": DeepSpeed raises TypeError "unexpected keyword argument" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "scheduler": {"type": "WarmupLR", "params": {}}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"total_num_steps": 9000, "warmup_min_lr": 1e-6}}}}}}',
    at="scheduler.params.warmup_min_lr",
    message='WarmupCosineLR has no parameter "warmup_min_lr": DeepSpeed raises TypeError "unexpected keyword argument" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 9000, "warmup_min_ratio": 0.01}}}',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "weight_decay": 0.1}}}}}}')
def unknown_parameter(config: Config) -> Iterator[Finding]:
    """The optimizer or the schedule does not take this parameter.

    DeepSpeed passes `params` to the constructor, which raises `TypeError: unexpected keyword argument` in `deepspeed.initialize`.

    Correct the spelling, or remove the parameter.
    """
    for section in ("optimizer", "scheduler"):
        entry = find_type(section, config.value(f"{section}.type"))
        params = config.node(f"{section}.params")
        if entry is None or entry.get("open") or not type_in_release(config, section) or not isinstance(params, Mapping):
            continue
        for member in params.members:
            name = member.key.value
            if name not in entry["params"]:
                close = meant_parameter(section, name, entry["params"])
                other = OTHER_NAMES.get(name)
                if other in entry["params"]:
                    yield _named_otherwise(config, section, name, str(other))
                    continue
                if config.value("scheduler.type") == "WarmupCosineLR" and section == "scheduler" and name in RATES_OF_WARMUP:
                    yield _rate_of_cosine(config, name)
                    continue
                yield Finding(
                    (section, "params", name),
                    _no_such_parameter(config, section, name),
                    help=f'Did you mean "{close.word}"?' if close else "Remove it.",
                    on="key",
                    fix=respelt_parameter(config, section, name, close.word if close else None, Applicability.SAFE)
                    if close is None or close.sure
                    else None,
                )


def _rate_of_cosine(config: Config, name: str) -> Finding:
    """The finding for a learning rate among the parameters of WarmupCosineLR, which takes shares of the optimizer's rate instead."""
    path = ("scheduler", "params", name)
    peak, rate = config.literal("optimizer.params.lr"), config.literal(path)
    known = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (peak, rate)) and 0 <= rate <= peak > 0
    fix = None
    if name == "warmup_max_lr":
        advice = 'Write the peak as "lr" of the optimizer.'
        fix = without(config, path) if known and rate == peak else None
    else:
        ratio = f"{rate / peak:.6g}" if known else ""
        advice = f'Write "warmup_min_ratio": {ratio} instead.' if known else 'Write "warmup_min_ratio" instead: its share of the peak.'
        if known and config.lacks("scheduler.params.warmup_min_ratio"):
            changes = (Rename(path, "warmup_min_ratio"), Set(path, ratio))
            fix = FixPlan(f'write "warmup_min_ratio": {ratio}', changes, Applicability.SAFE)
    return Finding(path, _no_such_parameter(config, "scheduler", name), help=advice, on="key", fix=fix)


def _no_such_parameter(config: Config, section: str, name: str) -> str:
    return (
        f'{config.value(f"{section}.type")} has no parameter "{name}": '
        'DeepSpeed raises TypeError "unexpected keyword argument" in deepspeed.initialize.'
    )


def _named_otherwise(config: Config, section: str, name: str, meant: str) -> Finding:
    """The finding for a parameter with its name in another library. Two betas have to become one list; there is no fix for that."""
    is_beta = meant == "betas"
    return Finding(
        (section, "params", name),
        _no_such_parameter(config, section, name),
        help='Write both in a list: "betas": [0.9, 0.999].' if is_beta else f'Write "{meant}".',
        on="key",
        fix=None
        if is_beta or config.has((section, "params", meant))
        else FixPlan(f'rename to "{meant}"', (Rename((section, "params", name), meant),), Applicability.SAFE),
    )


@rule(
    "DS610",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.params", "scheduler.params"),
    references=(SCHEDULERS_DOCS, "deepspeed/runtime/lr_schedules.py"),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "scheduler": {{"type": "WarmupDecayLR", "params": {{"warmup_max_lr": 1e-4}}}}}}',
    at="scheduler.params",
    message='WarmupDecayLR requires "total_num_steps": deepspeed.initialize raises TypeError "__init__() missing 1 required positional argument: \'total_num_steps\'".',
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "scheduler": {{"type": "WarmupDecayLR", "params": {{"warmup_max_lr": 1e-4, "warmup_num_steps": 10, "total_num_steps": 100}}}}}}'
)
def missing_parameter(config: Config) -> Iterator[Finding]:
    """A parameter that the optimizer or the schedule requires is missing.

    WarmupDecayLR and WarmupCosineLR require `total_num_steps`: without it `deepspeed.initialize` raises a `TypeError`. The Hugging Face
    Trainer replaces "auto", but does not add absent keys. Where a program of the project writes the parameter into a config, the finding is reported only with `--pedantic`.

    Add the parameter.
    """
    for section in ("optimizer", "scheduler"):
        entry = find_type(section, config.value(f"{section}.type"))
        params = config.node(f"{section}.params")
        if entry is None or not type_in_release(config, section) or not isinstance(params, Mapping):
            continue
        missing = [name for name, spec in entry["params"].items() if spec.get("required") and config.lacks(f"{section}.params.{name}")]
        if missing and not any(config.is_meant((section, "params", name)) for name in missing):
            names = ", ".join(f'"{name}"' for name in missing)
            added = is_set_elsewhere(config, *missing)
            error = f" \"__init__() missing 1 required positional argument: '{missing[0]}'\"" if len(missing) == 1 else ""
            yield Finding(
                f"{section}.params",
                f"{config.value(f'{section}.type')} requires {names}: deepspeed.initialize raises TypeError{error}.",
                help=f"Add {names}.",
                on="key",
                fix=_write_auto(config, section, missing),
                certain=not added,
                pedantic=added,
            )


def _write_auto(config: Config, section: str, missing: list[str]) -> FixPlan | None:
    """Write "auto" for the only missing parameter, if the Trainer replaces it with a value."""
    key = f"{section}.params.{missing[0]}"
    known = config.facts.integration is Integration.TRANSFORMERS and key in FILLED["transformers"]
    return write(config, key, '"auto"') if known and len(missing) == 1 else None


@rule(
    "DS621",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.params",),
    references=(OPTIMIZER_SOURCE,),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "fused": true}}}}}}',
    at="optimizer.params.fused",
    message='DeepSpeed builds AdamW as FusedAdam here (without optimizer offload), which has no parameter "fused": it raises TypeError "unexpected keyword argument" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "torch_adam": true, "bias_correction": true}}}}}}',
    at="optimizer.params.bias_correction",
    message='DeepSpeed builds AdamW as torch.optim.AdamW here (with torch_adam), which has no parameter "bias_correction": it raises TypeError "unexpected keyword argument" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": true}}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "set_grad_none": true}}}}, "zero_optimization": {{"stage": 2, "offload_optimizer": {{"device": "cpu"}}}}}}',
    at="optimizer.params.set_grad_none",
    message='DeepSpeed builds AdamW as DeepSpeedCPUAdam here (with optimizer offload), which has no parameter "set_grad_none": it raises TypeError "unexpected keyword argument" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "torch_adam": true, "fused": false}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "bias_correction": true}}}}}}')
def parameter_of_another_build(config: Config) -> Iterator[Finding]:
    """The type has this parameter, but not in the class that DeepSpeed builds here.

    One type stands for several classes: Adam is DeepSpeed's fused Adam on the GPU, its CPU Adam with optimizer offload, and PyTorch's
    Adam with `torch_adam`. Their parameters differ, and a constructor raises a `TypeError` for a parameter that it does not have.
    DeepSpeed's Adam is always fused; `fused` is a parameter of PyTorch's Adam.

    Remove the parameter, or choose the class that has it.
    """
    entry, built = find_type("optimizer", config.value("optimizer.type")), implementation(config)
    params = config.node("optimizer.params")
    if entry is None or built is None or not isinstance(params, Mapping):
        return
    for member in params.members:
        name = member.key.value
        only = entry["params"].get(name, {}).get("only")
        if only is None or built in only:
            continue
        having = [name for name in only if name in entry["classes"]]
        value, default = written(config, name), entry["params"][name].get("default")
        redundant = (value == default and type(value) is type(default)) or (name == "fused" and built == "FusedAdam" and value is True)
        yield Finding(
            ("optimizer", "params", name),
            f"DeepSpeed builds {config.value('optimizer.type')} as {built} here ({entry['classes'][built]}), "
            f'which has no parameter "{name}": it raises TypeError "unexpected keyword argument" in deepspeed.initialize.',
            help=f"Remove it; {' and '.join(having)} {'has' if len(having) == 1 else 'have'} it ({entry['classes'][having[0]]}).",
            on="key",
            fix=without(config, ("optimizer", "params", name), Applicability.SAFE if redundant else Applicability.UNSAFE),
        )
