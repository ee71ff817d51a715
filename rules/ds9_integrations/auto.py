"""DS9: integrations, and files that must agree. Here: "auto", and who replaces it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config, Violation
from dslint.config.validate import default_of, drops_auto, forbids_unknown
from dslint.diagnostics import Applicability, Effect, Phase, Severity
from dslint.facts import Integration
from dslint.rule import Finding, FixPlan, bad, good, rule, safe
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.messages import raises, shown_value
from dslint.schemas.auto import FILLED
from dslint.schemas.derive import ACCUMULATION, MICRO, TRAIN
from dslint.source.change import Rename

HF_DOCS = "https://huggingface.co/docs/transformers/deepspeed"
MATTERS = {
    "fp16.enabled": "trains in fp32",
    "bf16.enabled": "trains in fp32",
    "bfloat16.enabled": "trains in fp32",
    "zero_optimization.stage": "trains without ZeRO",
    "zero_optimization.offload_optimizer": "offloads nothing",
    "zero_optimization.offload_param": "offloads nothing",
    "zero_optimization.offload_optimizer.device": "offloads nothing",
    "zero_optimization.offload_param.device": "offloads nothing",
}
"""Keys whose default, in the place of a dropped "auto", changes what is trained or what fits, and how."""


NEEDED = ("type", "params")
"""Keys whose section is nothing without them."""

OF_LIGHTNING = (MICRO, ACCUMULATION, "gradient_clipping")
"""Keys that Lightning adds from its own arguments where they are missing."""


def _default(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float) and value >= 10_000:
        return f"{value:,.0f}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _dropped(violation: Violation) -> str:
    """What DeepSpeed does with "auto" where it drops it."""
    key = violation.key
    used = "" if violation.becomes is UNKNOWN or violation.becomes is None else f" (uses {_default(violation.becomes)})"
    return f"{MATTERS[key]}{used}" if key in MATTERS else f"uses its default{f', {_default(violation.becomes)}' if used else ''}"


@rule(
    "DS901",
    "auto-dropped",
    effect=Effect.SILENT,
    watches=("violation:auto-dropped", "violation:auto-undecided"),
    references=(HF_DOCS, "deepspeed/runtime/config_utils.py, DeepSpeedConfigModel.__init__"),
)
@bad('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": "auto"}}', at="bf16.enabled", integration="deepspeed")
@bad('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": "auto"}}', at="fp16.enabled")
@bad('{"zero_optimization": {"stage": "auto"}}', at="zero_optimization.stage", integration="lightning")
@good('{"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}', integration="transformers")
@good('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}', integration="deepspeed")
def auto_dropped(config: Config) -> Iterator[Finding]:
    """An "auto" that nobody replaces, where DeepSpeed drops the key and uses the default.

    "auto" is a word of the Hugging Face integrations: the Trainer and Accelerate put a value in its place before DeepSpeed sees the config.
    DeepSpeed itself removes every "auto" from `zero_optimization`, `fp16`, `bf16` and the other sections that it parses with pydantic, so
    that `"bf16": {"enabled": "auto"}` trains in fp32, without a word. (Up to 0.17.0 the string counted as true for fp16 and bf16.) Lightning
    replaces nothing either.

    Write the value. If the Trainer or Accelerate does load the file, say so: `--integration transformers`. While that is not known, the
    finding is a warning.
    """
    for violation in config.violations_of("auto-dropped", "auto-undecided"):
        if violation.kind == "auto-undecided" and not _drops(config, violation):
            continue
        key = violation.key
        known = violation.kind == "auto-dropped"
        who = "Nobody replaces it" if known else "Only the Hugging Face Trainer and Accelerate replace it"
        alone = "" if known else " alone"
        yield Finding(
            violation.path,
            f'{key} is "auto". {who}: DeepSpeed {config.release}{alone} drops the key and {_dropped(violation)}.',
            help=_advice(violation)
            + ("" if known else " If the Trainer or Accelerate loads this file, pass --integration transformers (or accelerate)."),
            fix=_default_written(config, violation, Applicability.UNSAFE if key in MATTERS else Applicability.SAFE) if known else None,
            on="value",
            effect=Effect.SILENT if key in MATTERS else Effect.IGNORED,
            severity=None if known else Severity.WARNING if key in MATTERS else Severity.INFO,
        )


def _drops(config: Config, violation: Violation) -> bool:
    """Whether DeepSpeed itself drops an "auto" there, as it does in the sections that it parses with a model."""
    release, section = config.release, violation.section
    return "hand" not in violation.spec and forbids_unknown(section, release) and drops_auto(section, release)


def _advice(violation: Violation) -> str:
    return "Write true or false." if "bool" in violation.spec.get("types", ()) else "Write the value."


def _default_written(config: Config, violation: Violation, kind: Applicability) -> FixPlan | None:
    """DeepSpeed's default in place of an "auto"; where that is nothing that can be written, the key goes. None for a key that is needed."""
    default = default_of(violation.spec, config.release)
    if isinstance(default, bool | int | float | str | list | tuple):
        return write(config, violation.path, shown_value(default), kind)
    return without(config, violation.path, kind) if violation.path[-1] not in NEEDED and default is not UNKNOWN else None


def _default_for(config: Config, violation: Violation, *, crash: bool) -> FixPlan | None:
    """What does for an "auto" that reaches DeepSpeed: its default, or that somebody else computes the value when the key is not there."""
    kind, key = Applicability.SAFE if crash else Applicability.UNSAFE, violation.key
    others = {TRAIN: MICRO, MICRO: TRAIN}
    computed = key == ACCUMULATION or (key in others and isinstance(config.value(others[key]), int))
    if computed or (config.facts.integration is Integration.LIGHTNING and key in OF_LIGHTNING):
        return without(config, violation.path, kind)
    if key in others or (violation.section.endswith(".params") and key in FILLED[Integration.TRANSFORMERS]):
        return None  # only the writer knows
    return _default_written(config, violation, kind)


@rule(
    "DS902",
    "auto-kept",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    watches=("violation:auto-kept", "violation:auto-undecided"),
    references=(HF_DOCS,),
)
@bad('{"train_batch_size": "auto"}', at="train_batch_size", integration="deepspeed")
@bad('{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": "auto"}', at="gradient_clipping", integration="lightning")
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', integration="transformers")
@good('{"train_batch_size": 8}', integration="deepspeed")
def auto_kept(config: Config) -> Iterator[Finding]:
    """An "auto" that nobody replaces, in a key that DeepSpeed reads as it stands.

    At the top level, in `optimizer.params` and `scheduler.params` and the other sections that DeepSpeed reads by hand, the string reaches the code
    that wants a number: `TypeError: '>' not supported between instances of 'str' and 'int'`. A boolean counts as true.

    Write the value; or, if the Hugging Face Trainer or Accelerate loads the file, say so with `--integration`.
    """
    for violation in config.violations_of("auto-kept", "auto-undecided"):
        if violation.kind == "auto-undecided" and _drops(config, violation):
            continue
        known = violation.kind == "auto-kept"
        who = "Nobody replaces it" if known else "Unless an integration replaces it"
        wrong = violation.consequence or ("passes", "")
        crash = wrong[0] == "raises"
        outcome = (
            raises(wrong[2], wrong[1])
            if crash
            else "takes the string for true"
            if wrong[0] == "truthy"
            else (wrong[1] or "keeps the string")
        )
        yield Finding(
            violation.path,
            f'{violation.key} is "auto". {who}{":" if known else ","} DeepSpeed {outcome}.',
            help=_advice(violation)
            + ("" if known else " If the Trainer or Accelerate loads this file, pass --integration transformers (or accelerate)."),
            fix=_default_for(config, violation, crash=crash) if known else None,
            on="value",
            effect=None if crash else Effect.SILENT,
            phase=Phase(wrong[1]) if crash else None,
            severity=None if known else Severity.WARNING,
        )


@rule(
    "DS903",
    "auto-not-filled",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("violation:auto-unfilled",),
    references=(HF_DOCS,),
    untried="raised by Accelerate, not by DeepSpeed",
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "sub_group_size": "auto"}}',
    at="zero_optimization.sub_group_size",
    integration="transformers",
)
@bad(
    '{"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}}, "zero_optimization": {"stage": 2}}',
    at="optimizer.params.betas",
    integration="accelerate",
)
@good(
    '{"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}}, "zero_optimization": {"stage": 2}}',
    integration="transformers",
)
def auto_not_filled(config: Config) -> Iterator[Finding]:
    """An "auto" in a key that the integration has no value for.

    The Hugging Face Trainer and Accelerate replace "auto" in a fixed set of keys. For any other they raise `ValueError: ... not found in kwargs. Please specify it
    without "auto"`, and only after the model is loaded.

    Write a value, or leave the key out to get DeepSpeed's default.
    """
    for violation in config.violations_of("auto-unfilled"):
        integration = config.facts.integration
        assert isinstance(integration, Integration)
        inferred = "integration" in config.evidence
        default = violation.spec.get("default")
        prefixed = f"{violation.section}.stage3_{violation.path[-1]}"
        named = (
            f'Write "stage3_{violation.path[-1]}": the integrations fill it under that name alone. '
            if prefixed in FILLED[integration]
            else ""
        )
        yield Finding(
            violation.path,
            f'{violation.key} is "auto", and {integration.label} has no value for it: once the model is loaded it raises ValueError "not found in kwargs".',
            help=f"{named}Write a value, or leave the key out"
            + (f" (DeepSpeed then uses {_default(default)})." if default is not None else "."),
            fix=_under(config, violation, f"stage3_{violation.path[-1]}")
            if prefixed in FILLED[integration]
            else _default_written(config, violation, Applicability.SAFE),
            on="value",
            severity=Severity.WARNING if inferred else None,
        )


def _under(config: Config, violation: Violation, name: str) -> FixPlan | None:
    """The other name of a key."""
    return None if config.has((*violation.path[:-1], name)) else safe(f'rename to "{name}"', Rename(violation.path, name))
