"""DS1: keys that DeepSpeed does not know.

The judging is done by the key table (`dslint/config/validate.py`); the rules here put it into words, one rule for each thing that DeepSpeed does.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config, Violation
from dslint.config.validate import children, dotted
from dslint.diagnostics import Effect, Phase, Severity
from dslint.facts import NEWEST
from dslint.rule import Finding, FixPlan, bad, good, rule, unsafe
from dslint.rules.helpers.fixes import corrected_key, moved_together
from dslint.rules.helpers.messages import shown_value
from dslint.schemas.derive import MICRO, TRAIN
from dslint.schemas.key_table import KEYS
from dslint.schemas.typed import params_of
from dslint.source.change import Move, Remove
from dslint.source.tree import Mapping

MINIMAL = '"train_micro_batch_size_per_gpu": 4'
DOCS = "https://www.deepspeed.ai/docs/config-json/"


def _section(violation: Violation) -> str:
    return f"`{dotted(violation.path[:-1])}`" if len(violation.path) > 1 else "the top level"


def _in(violation: Violation) -> str:
    """Where a violation stands: "at the top level", "in `aio`"."""
    return f"in {_section(violation)}" if len(violation.path) > 1 else "at the top level"


def _may_be_new(config: Config) -> Severity | None:
    """A release that dslint does not know yet may know the key."""
    return Severity.WARNING if config.release > NEWEST else None


def _allowed(violation: Violation) -> str:
    """The keys of the section a violation stands in, for a help text: all of them if they are few."""
    names = [
        name
        for name, key in children().get(violation.section, {}).items()
        if "until" not in KEYS[key] and name == key.rpartition(".")[2] and name != "*"
    ]
    return f"{_section(violation).capitalize()} takes " + ", ".join(sorted(names)) + "." if 0 < len(names) <= 12 else ""


def _suggestion(violation: Violation) -> str | None:
    if violation.meant is None:
        return None
    if violation.path[0] in ("bf16", "bfloat16") and violation.meant[0] == "fp16":
        return "Remove it: only `fp16` has it."
    if violation.kind == "misplaced-key":
        return (
            f"It belongs in `{dotted(violation.meant[:-1])}`."
            if len(violation.meant) > 1
            else f'"{violation.meant[0]}" is a key of the top level.'
        )
    return f'Did you mean "{violation.meant[-1]}"?'


@rule(
    "DS101",
    "unknown-key-refused",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=(DOCS,),
    watches=("violation:unknown-key", "violation:misplaced-key"),
)
@bad(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "reduce_bucket_sise": 5e8}}}}', at="zero_optimization.reduce_bucket_sise")
@bad(f'{{{MINIMAL}, "bf16": {{"enabled": true, "loss_scale": 0}}}}', at="bf16.loss_scale")
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "reduce_bucket_size": 5e8}}}}')
def unknown_key_refused(config: Config) -> Iterator[Finding]:
    """A key that the section does not have, in a section that admits no others.

    DeepSpeed parses `zero_optimization`, `fp16`, `bf16`, the monitors and some more with pydantic models that forbid unknown keys: it raises
    `ValidationError: Extra inputs are not permitted` while it parses the config. Notes such as `_comment` are refused there too.

    Correct the spelling, move the key to its section, or remove it.
    """
    for violation in config.violations_of("unknown-key", "misplaced-key"):
        if violation.raises:
            name = violation.path[-1]
            yield Finding(
                violation.path,
                f'{_section(violation)} has no key "{name}", and refuses unknown keys: DeepSpeed raises "Extra inputs are not permitted".',
                help=" ".join(filter(None, (_suggestion(violation), "" if violation.meant else _allowed(violation)))) or "Remove it.",
                on="key",
                fix=corrected_key(config, violation),
                severity=_may_be_new(config),
            )


@rule(
    "DS102", "misspelt-key-dropped", effect=Effect.SILENT, references=(DOCS,), watches=("violation:unknown-key", "violation:misplaced-key")
)
@bad(f'{{{MINIMAL}, "zero_optimisation": {{"stage": 3}}}}', at="zero_optimisation")
@bad('{"train_micro_bach_size_per_gpu": 4}', at="train_micro_bach_size_per_gpu")
@bad(f'{{{MINIMAL}, "lr_scheduler": {{"type": "WarmupLR"}}}}', at="lr_scheduler")
@bad(f'{{{MINIMAL}, "zero_optimization": {{"stage": 3}}, "stage3_max_live_parameters": 1e8}}', at="stage3_max_live_parameters")
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 2}}, "overlap_comm": true, "reduce_bucket_size": 5e8, "round_robin_gradients": true}}',
    at="overlap_comm",
)
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 3, "stage3_max_live_parameters": 1e8}}}}')
@good(f'{{{MINIMAL}, "$schema": "ds_config.schema.json", "_comment": "zero_optimisation is off on purpose"}}')
def misspelt_key_dropped(config: Config) -> Iterator[Finding]:
    """A key that is misspelt or stands in the wrong section, where DeepSpeed drops what it does not know.

    At the top level, and in the sections that it reads by hand, DeepSpeed looks up the keys it knows and never at the others. A misspelt
    `zero_optimization` means training without ZeRO, a misspelt `bf16` training in fp32: no error, no warning.

    Correct the spelling or move the key. Keys that begin with `_`, `$`, `//` or `comment` are taken for notes and left alone.
    """
    strays = _strays(config)
    for section, together in strays.items():
        yield Finding(
            together[0].path,
            f"{len(together)} keys of `{dotted(section)}` stand {_in(together[0])}, where DeepSpeed drops them without a word: {', '.join(str(v.path[-1]) for v in together)}.",
            help=f"Move them into `{dotted(section)}`.",
            on="key",
            related=tuple((v.path, "dropped too") for v in together[1:]),
            fix=moved_together(config, [v.path for v in together], section),
            severity=_may_be_new(config),
        )
    for violation in config.violations_of("unknown-key", "misplaced-key"):
        if violation.raises or violation.meant is None or any(violation in lost for lost in strays.values()):
            continue
        name, where = violation.path[-1], _section(violation)
        fatal = _leaves_no_batch_size(config, violation)
        lost = (
            ', and raises "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"' if fatal else _lost(violation)
        )
        yield Finding(
            violation.path,
            f'"{name}" is not a key of {where}; DeepSpeed drops it without a word{lost}.',
            help=_suggestion(violation),
            on="key",
            fix=corrected_key(config, violation),
            effect=Effect.CRASH if fatal else None,
            phase=Phase.PARSE if fatal else None,
            severity=_may_be_new(config),
        )


def _strays(config: Config) -> dict[tuple[str | int, ...], list[Violation]]:
    """Dropped keys that belong into one other section, by that section, where they are so many that they were forgotten together."""
    strays: dict[tuple[str | int, ...], list[Violation]] = {}
    for violation in config.violations_of("misplaced-key"):
        if not violation.raises and violation.meant is not None and len(violation.meant) > 1 and violation.meant[-1] == violation.path[-1]:
            strays.setdefault(violation.meant[:-1], []).append(violation)
    return {section: lost for section, lost in strays.items() if len(lost) > 2}


def _leaves_no_batch_size(config: Config, violation: Violation) -> bool:
    """Whether the dropped key was the only batch size, without which DeepSpeed does not start."""
    return violation.meant in ((TRAIN,), (MICRO,)) and not config.has(TRAIN) and not config.has(MICRO)


def _lost(violation: Violation) -> str:
    """What is lost with a dropped key, where it can be said."""
    assert violation.meant is not None
    key = dotted(violation.meant)
    if key in LOST:
        return f", and {LOST[key]}"
    default = KEYS.get(key, {}).get("default", UNKNOWN)
    if default is UNKNOWN or isinstance(default, dict | list) or default is None:
        return ""
    return f", and uses {shown_value(default)}, the default of {violation.meant[-1]}"


LOST = {
    "zero_optimization": "trains without ZeRO",
    "zero_optimization.stage": "trains without ZeRO",
    "bf16": "trains in fp32",
    "fp16": "trains in fp32",
    "optimizer": "has no optimizer unless the program brings one",
    "scheduler": "keeps the learning rate constant unless the program brings a scheduler",
}


@rule("DS103", "unknown-key-ignored", effect=Effect.IGNORED, references=(DOCS,), watches=("violation:unknown-key",))
@bad(f'{{{MINIMAL}, "my_own_switch": true}}', at="my_own_switch")
@good(f'{{{MINIMAL}, "_my_own_note": true}}')
def unknown_key_ignored(config: Config) -> Iterator[Finding]:
    """A key that DeepSpeed does not know and drops.

    At the top level and in the sections that it reads by hand, DeepSpeed never looks at keys it does not know. If the program itself reads the key
    from the config, all is well; otherwise the setting does nothing.

    Remove it, or let its name begin with `_` to say that it is a note.
    """
    for violation in config.violations_of("unknown-key"):
        if not violation.raises and violation.meant is None:
            yield Finding(
                violation.path,
                f'DeepSpeed knows no key "{violation.path[-1]}" {_in(violation)} and drops it without a word.',
                help=_allowed(violation) or 'Remove it, or begin its name with "_" if it is a note.',
                on="key",
                fix=_into_params(config, violation) or _taken_out(config, violation),
            )


def _taken_out(config: Config, violation: Violation) -> FixPlan | None:
    """The removal of a key that does nothing; a whole section may be meant for something, and stays."""
    if isinstance(config.node(violation.path), Mapping):
        return None
    return unsafe(f'remove "{violation.path[-1]}"', Remove(violation.path))


def _into_params(config: Config, violation: Violation) -> FixPlan | None:
    """The move of a parameter that stands beside the type it is for, where DeepSpeed does not see it."""
    section, name = violation.section, str(violation.path[-1])
    if section not in ("optimizer", "scheduler") or name not in (params_of(section, config.value(f"{section}.type")) or {}):
        return None
    to = (section, "params", name)
    return None if config.has(to) else unsafe(f"move to {section}.params", Move(violation.path, to))
