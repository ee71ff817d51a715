"""DS6: optimizer and schedule types that DeepSpeed cannot build or cannot use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import OLDEST, Release
from dslint.rule import Finding, FixPlan, bad, good, rule, unsafe
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import Spelling, json_text, spelling, write
from dslint.rules.helpers.loaders import releases_belong_together
from dslint.rules.helpers.optimizer import ONE_BIT, OPTIMIZER_SOURCE, OPTIMIZERS_DOCS, lower_type
from dslint.rules.helpers.parameters import implementation, in_release, type_in_release
from dslint.rules.helpers.precision import steps_in_initialize
from dslint.rules.helpers.schedule import SCHEDULERS_DOCS
from dslint.rules.helpers.zero import STAGE, requires_zero
from dslint.schemas.typed import find_type, registry
from dslint.source.change import Remove, Rename, Set
from dslint.source.similar import similar
from dslint.source.tree import Mapping, Scalar

FULL_PRECISION = {"onebitadam": "AdamW", "zerooneadam": "AdamW", "onebitlamb": "Lamb"}
"""The optimizers that the 1-bit optimizers compress."""

ELEMENTWISE = ("SGD", "ASGD", "RMSprop", "Rprop", "NAdam", "RAdam", "Adamax", "Adadelta")
"""PyTorch optimizers that update each element separately, so that flat partitions of the parameters give the same result as whole tensors."""

ZERO_TESTED = (
    "FusedAdam",
    "DeepSpeedCPUAdam",
    "ZenFlowCPUAdam",
    "torch.optim.Adam",
    "torch.optim.AdamW",
    "torch.optim.Adagrad",
    "DeepSpeedCPUAdagrad",
    "FusedLion",
    "DeepSpeedCPULion",
    "MuonWithAuxAdam",
)
"""The classes that ZeRO accepts by default (deepspeed/runtime/zero/utils.py, ZERO_SUPPORTED_OPTIMIZERS)."""

_TESTED_SINCE = {"MuonWithAuxAdam": Release(0, 18, 5), "ZenFlowCPUAdam": Release(0, 19, 3)}
"""The first releases that accept these. Before it, DeepSpeed looked for Muon in a module that does not exist."""


def _unknown_type(config: Config, section: str, error: str) -> Iterator[Finding]:
    key = f"{section}.type"
    name = config.value(key)
    if not isinstance(name, str) or not config.has(key) or name == "auto" or find_type(section, name) is not None:
        return
    types = {known: entry for known, entry in (registry(section) or {}).items() if in_release(entry, config.release)}
    same = [known for known in types if known.lower() == name.lower()]
    builds = _type_of_class(name, types) if section == "optimizer" else None
    close = same or ([builds] if builds else similar(name, types))
    if not close and _is_class_of_a_package(name):
        yield _of_a_package(config, key, error)
        return
    case = f" The name is case-sensitive: `{close[0]}`." if same else ""
    guess = Spelling(builds, sure=True) if builds and not same else spelling(name, types)
    yield Finding(
        key,
        f"DeepSpeed {config.release} has no {section} named {config.quote(key)}: it raises {error} in deepspeed.initialize.{case}",
        help=f'Write "{close[0]}"{_why(name, types[close[0]])}.'
        if close
        else f"Use one of DeepSpeed's own types: {', '.join(known for known in types if '.' not in known)}.",
        on="value",
        fix=write(config, key, json_text(guess.word), Applicability.SAFE if guess.sure else Applicability.UNSAFE) if guess else None,
    )


def _is_class_of_a_package(name: str) -> bool:
    """Whether a type is the path of a class, as in `my_package.MyAdam`. DeepSpeed imports none: frameworks that do take the section out."""
    package, _, rest = name.partition(".")
    return bool(rest) and package not in ("torch", "deepspeed", "apex") and all(part.isidentifier() for part in name.split("."))


def _of_a_package(config: Config, key: str, error: str) -> Finding:
    section = key.partition(".")[0]
    return Finding(
        key,
        f"{config.quote(key)} is a class of a package, which DeepSpeed {config.release} does not import: unless the program takes the section out of "
        f"the config, DeepSpeed raises {error} in deepspeed.initialize.",
        help=f"Build the {section} in the program, pass it to deepspeed.initialize, and remove the section.",
        on="value",
        effect=Effect.ADVICE,
        certain=False,
    )


WORDS_OF_OTHER_TOOLS = ("torch", "hf", "fused", "apex", "deepspeed", "cpu")
"""Parts of optimizer names of other tools that name an implementation, which DeepSpeed chooses itself: `adamw_torch`."""


def _type_of_class(name: str, types: dict[str, Any]) -> str | None:
    """The type for which DeepSpeed builds a class (`FusedAdam`), or that another tool gives another name (`adamw_torch`)."""
    built = [known for known, entry in types.items() if name in entry.get("classes", {}) and not known.startswith("Mu")]
    if built:
        return "AdamW" if "AdamW" in built else built[0]
    folded = "".join(part for part in name.lower().replace("-", "_").split("_") if part not in WORDS_OF_OTHER_TOOLS)
    return next((known for known in types if known.lower() == folded), None)


def _why(name: str, entry: dict[str, Any]) -> str:
    """Why a type stands for a class, as the end of a sentence; empty for another name."""
    when = entry.get("classes", {}).get(name)
    return f": DeepSpeed builds {name} for it {when}" if when else ""


@rule(
    "DS602",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.type",),
    references=(OPTIMIZERS_DOCS,),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "sgd", "params": {{"lr": 0.1}}}}}}',
    at="optimizer.type",
    message='DeepSpeed 0.19.8 has no optimizer named "sgd": it raises AssertionError or AttributeError in deepspeed.initialize. The name is case-sensitive: `SGD`.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW8bit", "params": {{"lr": 1e-4}}}}}}',
    at="optimizer.type",
    message='DeepSpeed 0.19.8 has no optimizer named "AdamW8bit": it raises AssertionError or AttributeError in deepspeed.initialize.',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "ADAMW", "params": {{"lr": 1e-4}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1}}}}}}')
def unknown_optimizer_type(config: Config) -> Iterator[Finding]:
    """DeepSpeed has no optimizer of this type.

    The names of DeepSpeed's own optimizers are case-insensitive (`ADAMW`). DeepSpeed looks every other name up in `torch.optim`, where
    case matters (`SGD`, not `sgd`). It does not find optimizers of other packages: the program has to build those and pass them to
    `deepspeed.initialize`.

    The path of a class, such as `my_package.MyAdam`, is an info: frameworks that accept one build the optimizer themselves.

    Correct the name, or remove the section and build the optimizer in the program.
    """
    yield from _unknown_type(config, "optimizer", "AssertionError or AttributeError")


@rule(
    "DS603",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("scheduler.type",),
    references=(SCHEDULERS_DOCS,),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "scheduler": {{"type": "WarmupCosine", "params": {{}}}}}}',
    at="scheduler.type",
    message='DeepSpeed 0.19.8 has no scheduler named "WarmupCosine": it raises AssertionError in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "scheduler": {"type": "WarmupCosineLR", "params": {}}}',
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_max_lr": 1e-4}}}}}}'
)
def unknown_scheduler_type(config: Config) -> Iterator[Finding]:
    """DeepSpeed has no learning rate schedule of this type.

    DeepSpeed has WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle and LRRangeTest; the names are case-sensitive. It looks other names
    up in `torch.optim.lr_scheduler`.

    Correct the name.
    """
    yield from _unknown_type(config, "scheduler", "AssertionError")


@rule(
    "DS604",
    effect=Effect.SILENT,
    watches=("optimizer", "scheduler"),
    references=("deepspeed/runtime/config.py, get_optimizer_name",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"params": {{"lr": 1e-4}}}}}}',
    at="optimizer",
    message='optimizer has no "type": DeepSpeed ignores the section and builds no optimizer from it.',
)
@bad(
    f'{{{MINIMAL}, "scheduler": {{"name": "WarmupLR", "params": {{"warmup_num_steps": 10}}}}}}',
    at="scheduler",
    message='scheduler has no "type": DeepSpeed ignores the section and builds no scheduler from it.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}}',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": null}}}}')
def section_without_type(config: Config) -> Iterator[Finding]:
    """DeepSpeed ignores an optimizer or scheduler section without a type.

    DeepSpeed reads `type` first and treats a section without it as absent. Training then uses the optimizer or schedule of the program,
    or none, and the parameters in the section have no effect.

    Write the type.
    """
    for section in ("optimizer", "scheduler"):
        node = config.node(section)
        key = f"{section}.type"
        if not isinstance(node, Mapping) or not node.members or not (config.lacks(key) or config.is_null(key)):
            continue
        if all(member.key.value == "type" for member in node.members):
            continue  # `"type": None` says that there is none, as in programs that wrap a reference model
        if config.is_meant((section, "type")):
            continue
        yield Finding(
            section,
            f'{section} has no "type": DeepSpeed ignores the section and builds no {section} from it.',
            help='Add "type": "AdamW".' if section == "optimizer" else 'Add "type": "WarmupLR".',
            on="key",
            fix=_rename_to_type(config, section, node),
        )


def _rename_to_type(config: Config, section: str, node: Mapping) -> FixPlan | None:
    """Rename the one key that has a type as its value to "type"; None if no key or several keys have one."""
    named = [
        member.key.value
        for member in node.members
        if isinstance(member.value, Scalar) and find_type(section, member.value.value) is not None and member.key.value != "type"
    ]
    return (
        unsafe('rename to "type"', Rename((section, named[0]), "type")) if len(named) == 1 and not config.has(f"{section}.type") else None
    )


@rule(
    "DS611",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.type", "scheduler.type"),
    references=(OPTIMIZERS_DOCS, "deepspeed/runtime/engine.py, DeepSpeedEngine._is_supported_optimizer"),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "OneBitAdam", "params": {{"lr": 1e-4}}}}}}',
    at="optimizer.type",
    message='optimizer.type "OneBitAdam" was removed after 0.19.6: DeepSpeed 0.19.8 raises AssertionError "OneBitAdam is not a supported DeepSpeed Optimizer" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Lion", "params": {{"lr": 1e-4}}}}}}',
    at="optimizer.type",
    deepspeed="0.10.3",
    message='optimizer.type "Lion" was added in 0.11.0: DeepSpeed 0.10.3 raises AssertionError "Lion is not a supported DeepSpeed Optimizer" in deepspeed.initialize.',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "scheduler": {{"type": "WarmupCosineLR", "params": {{"total_num_steps": 9000}}}}}}',
    at="scheduler.type",
    deepspeed="0.12.2",
    message='scheduler.type "WarmupCosineLR" was added in 0.12.3: DeepSpeed 0.12.2 raises AssertionError "DeepSpeed does not recognize LR scheduler WarmupCosineLR" in deepspeed.initialize.',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Lion", "params": {{"lr": 1e-4}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "OneBitAdam", "params": {{"lr": 1e-4}}}}}}', deepspeed="0.18.9")
def type_not_in_release(config: Config) -> Iterator[Finding]:
    """This release of DeepSpeed does not have the optimizer or schedule.

    Release 0.19.7 removed the 1-bit optimizers (OneBitAdam, OneBitLamb, ZeroOneAdam). Muon was added in 0.17.6, Lion in 0.11.0, the µP
    optimizers in 0.10.2 and WarmupCosineLR in 0.12.3. DeepSpeed raises an `AssertionError` for a name that it does not know.

    Use another type or another release of DeepSpeed. AdamW and Lamb are the full-precision forms of the 1-bit optimizers.
    """
    for section, what in (
        ("optimizer", "is not a supported DeepSpeed Optimizer"),
        ("scheduler", "DeepSpeed does not recognize LR scheduler"),
    ):
        key = f"{section}.type"
        entry = find_type(section, config.value(key))
        if entry is None or in_release(entry, config.release):
            continue
        until = entry.get("until")
        when = f"was removed after {until['release']}" if until else f"was added in {entry['since']}"
        error = f"{config.value(key)} {what}" if section == "optimizer" else f"{what} {config.value(key)}"
        yield Finding(
            key,
            f'{key} {config.quote(key)} {when}: DeepSpeed {config.release} raises AssertionError "{error}" in deepspeed.initialize.',
            help=_instead_of(config) if until else f"Upgrade DeepSpeed to {entry['since']} or newer, or use another type.",
            fix=_in_full_precision(config) if section == "optimizer" else None,
            certain=releases_belong_together(config),
        )


def _instead_of(config: Config) -> str:
    """What to write for an optimizer that was removed. ZeRO does not take Lamb."""
    full = FULL_PRECISION.get(lower_type(config), "AdamW")
    if full == "Lamb" and config.value(STAGE) >= 1:
        return "Use AdamW: Lamb, the full-precision form, needs the norm of whole layers, and ZeRO passes it partitions."
    return f"Use {full}, the full-precision form, with the parameters of that type."


def _in_full_precision(config: Config) -> FixPlan | None:
    """Replace a 1-bit optimizer by its full-precision form, without the parameters that only the 1-bit form takes."""
    full = FULL_PRECISION.get(lower_type(config))
    if full is None or (full == "Lamb" and config.value(STAGE) >= 1):
        return None
    entry, params = find_type("optimizer", full), config.node("optimizer.params")
    names = [member.key.value for member in params.members] if isinstance(params, Mapping) else []
    left_out = [name for name in names if entry is not None and name not in entry["params"]]
    title = f'write "type": "{full}"' + (f" and remove {', '.join(left_out)}" if left_out else "")
    changes = [Remove(("optimizer", "params", name)) for name in left_out]
    return unsafe(title, Set(("optimizer", "type"), json_text(full)), *changes)


@rule(
    "DS612",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("optimizer.type",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._do_optimizer_sanity_check", "deepspeed/runtime/zero/utils.py"),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1}}}}, "zero_optimization": {{"stage": 1}}}}',
    at="optimizer.type",
    message='ZeRO was not tested with "SGD": at stage 1 DeepSpeed raises AssertionError "You are using an untested ZeRO Optimizer" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": true}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Lamb", "params": {{"lr": 1e-3}}}}, "zero_optimization": {{"stage": 3}}}}',
    at="optimizer.type",
    message='ZeRO was not tested with "Lamb": at stage 3 DeepSpeed raises AssertionError "You are using an untested ZeRO Optimizer" in deepspeed.initialize. Lamb needs the norm of whole layers, and ZeRO passes it partitions.',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "zero_optimization": {{"stage": 2, "overlap_comm": true, "offload_optimizer": {{"device": "cpu"}}, "zenflow": {{"topk_ratio": 0.1}}}}}}',
    at="optimizer.type",
    deepspeed="0.18.3",
    message='ZeRO was not tested with ZenFlow\'s Adam before DeepSpeed 0.19.3: at stage 2 DeepSpeed raises AssertionError "You are using an untested ZeRO Optimizer" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "overlap_comm": true, "offload_optimizer": {"device": "cpu"}, "zenflow": {"topk_ratio": 0.1}}, "zero_allow_untested_optimizer": true}',
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1}}}}, "zero_allow_untested_optimizer": true, "zero_optimization": {{"stage": 1}}}}'
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1}}}}}}')
@good(f'{{{MINIMAL}, "optimizer": {{"type": "Lion", "params": {{"lr": 1e-4}}}}, "zero_optimization": {{"stage": 2}}}}')
def untested_optimizer_with_zero(config: Config) -> Iterator[Finding]:
    """ZeRO rejects optimizers that it was not tested with, unless the config allows them.

    ZeRO was tested with Adam, AdamW, Adagrad, Lion and Muon. With any other type at stages 1 to 3 DeepSpeed raises an `AssertionError`,
    unless `zero_allow_untested_optimizer` is true. The Hugging Face loaders set it for an optimizer that the program builds, but not for
    one that the file configures.

    Add `"zero_allow_untested_optimizer": true` at the top level if the optimizer updates each element separately (SGD, RMSprop, NAdam):
    ZeRO passes it flat partitions of the parameters. An optimizer that needs whole tensors computes wrong updates; Lamb, for example,
    needs the norm of each layer.
    """
    stage = config.value(STAGE)
    if not stage >= 1 or config.value("zero_allow_untested_optimizer") is not False or lower_type(config) in ONE_BIT:
        return
    built = implementation(config)
    if built is None or not type_in_release(config, "optimizer"):
        return
    if built in ZERO_TESTED and config.release >= _TESTED_SINCE.get(built, OLDEST):
        return
    if built == "MuonWithAuxAdam" and stage >= 3:
        return  # DS613
    if built == "FusedLion" and config.release < Release(0, 11, 0):
        return
    whole = " Lamb needs the norm of whole layers, and ZeRO passes it partitions." if lower_type(config) == "lamb" else ""
    name = "ZenFlow's Adam" if built == "ZenFlowCPUAdam" else config.quote("optimizer.type")
    before = f" before DeepSpeed {_TESTED_SINCE[built]}" if built in ZERO_TESTED else ""
    yield Finding(
        "optimizer.type",
        f"ZeRO was not tested with {name}{before}: at stage {stage} DeepSpeed raises "
        f'AssertionError "You are using an untested ZeRO Optimizer" in deepspeed.initialize.{whole}',
        help=("Use AdamW." if requires_zero(config) else 'Use AdamW, or Lamb with "stage": 0.')
        if whole
        else f'Add "zero_allow_untested_optimizer": true at the top level, or {"remove zenflow" if built == "ZenFlowCPUAdam" else "use AdamW"}.',
        related=((STAGE, "ZeRO is enabled here"),) if config.has(STAGE) else (),
        fix=write(config, "zero_allow_untested_optimizer", "true")
        if built in ZERO_TESTED or built.removeprefix("torch.optim.") in ELEMENTWISE
        else None,
    )


@rule(
    "DS618",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("optimizer.type",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._take_model_step",),
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "LBFGS", "params": {{"lr": 0.1}}}}}}',
    at="optimizer.type",
    message='DeepSpeed cannot take a step with "LBFGS": it raises TypeError "LBFGS.step() missing 1 required positional argument: \'closure\'" at the first step.',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "SparseAdam", "params": {{"lr": 1e-3}}}}, "bf16": {{"enabled": true}}}}',
    at="optimizer.type",
    message='DeepSpeed cannot take a step with "SparseAdam": it raises RuntimeError "SparseAdam does not support dense gradients" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Adam", "params": {"lr": 1e-3}}, "bf16": {"enabled": true}}',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "RAdam", "params": {{"lr": 1e-3}}}}}}')
def optimizer_cannot_step(config: Config) -> Iterator[Finding]:
    """DeepSpeed can build this optimizer, but cannot take a step with it.

    LBFGS requires a closure that recomputes the loss, and DeepSpeed's step does not pass one. SparseAdam accepts only sparse gradients,
    and DeepSpeed's gradients are dense.

    Use another type.
    """
    entry = find_type("optimizer", config.value("optimizer.type"))
    stage = config.value(STAGE)
    if entry is None or "step" not in entry or not (stage == 0 or config.value("zero_allow_untested_optimizer") is True):
        return
    error, _, message = entry["step"].partition(": ")
    if stage >= 1 and config.has("zero_optimization.zenflow") and not config.is_null("zero_optimization.zenflow"):
        return  # ZenFlow steps with an optimizer of its own
    early = steps_in_initialize(config)
    yield Finding(
        "optimizer.type",
        f"DeepSpeed cannot take a step with {config.quote('optimizer.type')}: it raises "
        f'{error} "{message}" {"in deepspeed.initialize" if early else "at the first step"}.',
        help="Use another type, such as AdamW.",
        phase=Phase.INITIALIZE if early else None,
        fix=write(config, "optimizer.type", '"Adam"') if lower_type(config) == "sparseadam" else None,
    )


@rule("DS619", effect=Effect.ADVICE, watches=("optimizer.type",), references=(OPTIMIZER_SOURCE,))
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "MuAdamW", "params": {{"lr": 1e-4}}}}}}',
    at="optimizer.type",
    message='"MuAdamW" requires the package mup: if it is not installed, DeepSpeed raises UnboundLocalError "cannot access local variable \'MuAdamW\'".',
)
@good(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}}}')
def optimizer_needs_mup(config: Config) -> Iterator[Finding]:
    """The µP optimizers require the package mup; without it DeepSpeed raises an error that does not name the package.

    DeepSpeed logs the failed import, and the next line raises `UnboundLocalError`. The optimizers also require a model with base shapes,
    set by `mup.set_base_shapes`.

    Install mup where the training runs.
    """
    built = implementation(config)
    if built is not None and built.startswith("mup.") and type_in_release(config, "optimizer"):
        name = built.removeprefix("mup.")
        yield Finding(
            "optimizer.type",
            f"{config.quote('optimizer.type')} requires the package mup: if it is not installed, "
            f"DeepSpeed raises UnboundLocalError \"cannot access local variable '{name}'\".",
            help="Install mup where the training runs.",
        )
