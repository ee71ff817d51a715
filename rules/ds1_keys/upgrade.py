"""DS1: what changes when DeepSpeed is upgraded. These rules run only with `--deepspeed OLD..NEW`, such as 0.14.5..0.19.8."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config, Origin, ViolationKind, resolve
from dslint.config.effective import EffectiveEntry, effective
from dslint.config.sections import default_of
from dslint.diagnostics import Applicability, Effect
from dslint.facts import Integration, Release
from dslint.rule import Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.fixes import json_text, write
from dslint.rules.helpers.messages import shown_value
from dslint.rules.helpers.model import may_be_pipelined
from dslint.rules.helpers.precision import uses_bf16_optimizer
from dslint.schemas.auto import MISMATCH_CHECKED
from dslint.schemas.key_table import KEYS
from dslint.source.change import Rename, Set
from dslint.source.tree import Path, dotted

READ = (Origin.WRITTEN, Origin.MAPPED, Origin.FILLED)
"""Origins of values that DeepSpeed reads from the config."""

OF_THE_LOG = ("steps_per_print",)
"""Keys that change what DeepSpeed logs, and not the training."""

RELEASES = "https://github.com/deepspeedai/DeepSpeed/releases"


@rule("DS116", effect=Effect.ADVICE, references=(RELEASES,), watches=("fact:upgrade_from",))
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "steps_per_print": 10}',
    at="gradient_clipping",
    deepspeed="0.14.5..0.19.8",
    message="gradient_clipping is not written, and DeepSpeed 0.19.3 changed its default from 0.0 to 1.0.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "steps_per_print": 10, "gradient_clipping": 0.0}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "steps_per_print": 10, "gradient_clipping": 0.0}', deepspeed="0.14.5..0.19.8")
@good('{"train_micro_batch_size_per_gpu": 4}', deepspeed="0.18.8..0.18.9")
@good(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}, "gradient_clipping": 0.0}',
    deepspeed="0.16.9..0.17.6",
)
def default_changed(config: Config) -> Iterator[Finding]:
    """A key that is not written has another default in the newer release, which changes the training.

    The rule runs only with `--deepspeed OLD..NEW`. It compares the keys that every training has and those of the sections in the file.
    `--fix` writes the old default, with which the training stays as it is. Under the Hugging Face Trainer it leaves out keys that the
    Trainer compares with its own arguments.

    Write the value that you mean; then every release uses it.
    """
    for old, new in _pairs(config):
        if old.origin is new.origin is Origin.DEFAULT and old.value != new.value and _is_read(config, new.key):
            release = _changed_at(new.key, config.facts.upgrade_from, config.release)
            before, after = shown_value(old.value), shown_value(new.value)
            yield Finding(
                new.path,
                f"{new.key} is not written, and DeepSpeed {release} changed its default from {before} to {after}.",
                help=f'Write "{new.path[-1]}": {before} to keep the behavior of DeepSpeed {config.facts.upgrade_from}'
                + (", and the same in the training arguments." if _is_compared(config, new.path) else "."),
                fix=_keep(config, new.path, before),
                costly=new.key not in OF_THE_LOG,
            )


def _is_read(config: Config, key: str) -> bool:
    """Whether the optimizer of this config reads a key that the engine always has."""
    return key.rpartition(".")[2] != "immediate_grad_update" or may_be_pipelined(config) or uses_bf16_optimizer(config)


def _keep(config: Config, path: Path, literal: str) -> FixPlan | None:
    """Write the old default. None for a key that the Hugging Face Trainer compares with its arguments: it raises if the two differ."""
    if _is_compared(config, path):
        return None
    for violation in config.violations_of(ViolationKind.DEPRECATED):
        section = violation.meant
        if section == path[:-1] and section in config.mapped and section[:-1] == violation.path[:-1]:
            return _write_section(config, violation.path, section, path[-1], literal)
    return write(config, path, literal, Applicability.SAFE)


def _is_compared(config: Config, path: Path) -> bool:
    """Whether the Hugging Face Trainer loads the config and compares the key with its arguments."""
    return config.facts.integration is Integration.TRANSFORMERS and dotted(path) in MISMATCH_CHECKED[Integration.TRANSFORMERS.value]


def _write_section(config: Config, deprecated: Path, section: Path, name: str | int, literal: str) -> FixPlan | None:
    """Write the section that a deprecated key stands for, with one more setting: DeepSpeed accepts only one of the two."""
    value = config.mapped[section].value
    if not isinstance(value, dict):
        return None
    inside = ", ".join([*(f"{json_text(key)}: {json_text(held)}" for key, held in value.items()), f'"{name}": {literal}'])
    changes = (Rename(deprecated, str(section[-1])), Set(deprecated, f"{{{inside}}}"))
    return FixPlan(f'write "{section[-1]}": {{{inside}}}', changes, Applicability.SAFE)


@rule("DS117", effect=Effect.SILENT, references=(RELEASES,), watches=("fact:upgrade_from",))
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0, "fp16": {"enabled": "false"}}',
    at="fp16.enabled",
    deepspeed="0.14.5..0.19.8",
    message='fp16.enabled is "false": DeepSpeed 0.14.5 reads it as true, 0.19.8 as false.',
)
@good('{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0, "fp16": {"enabled": true}}', deepspeed="0.14.5..0.19.8")
@good(
    '{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0, "fp16": {"enabled": false, "initial_scale_power": 16}}',
    deepspeed="0.9.5..0.19.8",
)
def value_read_differently(config: Config) -> Iterator[Finding]:
    """The newer release reads a written value differently, which changes the training.

    The rule runs only with `--deepspeed OLD..NEW`. Where a release began to parse a section with a pydantic model, a string in place of a
    boolean no longer counts as true, and a key that DeepSpeed ignored before takes effect.

    Write the value that you mean, in the type that the key expects.
    """
    old_release = config.facts.upgrade_from
    reported = {violation.path for violation in config.violations}
    for old, new in _pairs(config):
        if new.written is None or new.path in reported or new.value is UNKNOWN or new.value == old.value:
            continue
        if old.value is not UNKNOWN and old.origin in READ:
            before, after = shown_value(old.value), shown_value(new.value)
            message = f"{new.key} is {new.written}: DeepSpeed {old_release} reads it as {before}, {config.release} as {after}."
            yield Finding(new.path, message, help=f"Write {before} or {after}, whichever you mean.", on="value")
        elif old_release is not None and new.value == default_of(KEYS.get(new.key, {}), old_release):
            continue  # what the older release used, too
        elif old.lost and new.origin in READ and not _replaces_known_key(new.key, config.facts.upgrade_from):
            since = _added_in(new.key) or config.release
            message = f"DeepSpeed {old_release} silently ignores {new.key}; {since} and newer releases use {shown_value(new.value)}."
            yield Finding(new.path, message, help="Check that you still mean this value.")


def _pairs(config: Config) -> Iterator[tuple[EffectiveEntry, EffectiveEntry]]:
    """Each key that matters, as the old and as the new release resolve it; nothing without an upgrade."""
    start = config.facts.upgrade_from
    if start is None:
        return
    before = {entry.path: entry for entry in _compared(resolve(config.document, config.context.but(deepspeed=start, upgrade_from=None)))}
    for new in _compared(config):
        old = before.get(new.path)
        since = _added_in(new.key)
        if old is not None and (new.written is not None or since is None or since <= start):
            yield old, new


def _compared(config: Config) -> list[EffectiveEntry]:
    """The entries that an upgrade may change. Only DeepSpeed itself logs by default; the loaders tell it what to log."""
    entries = effective(config)
    if config.facts.integration not in (None, Integration.DEEPSPEED):
        return entries
    known = {entry.key for entry in entries}
    return [*entries, *(entry for entry in effective(config, everything=True) if entry.key in OF_THE_LOG and entry.key not in known)]


def _replaces_known_key(key: str, start: Release | None) -> bool:
    """Whether a key replaces one that the older release reads: a config with it is migrated already."""
    ends = (spec["until"] for spec in KEYS.values() if spec.get("until", {}).get("use") == key)
    return any(start is not None and Release.parse(until["release"]) >= start for until in ends)


def _added_in(key: str) -> Release | None:
    """The release that added a key; None for a key that the oldest supported release has."""
    since = KEYS.get(key, {}).get("since")
    return Release.parse(since) if since else None


def _changed_at(key: str, start: Release | None, to: Release) -> Release:
    """The first release after `start`, up to `to`, that changed the default of a key."""
    assert start is not None
    changes = (Release.parse(word) for word, _ in KEYS[key].get("defaults", ()) if word != "0")
    return min((release for release in changes if start < release <= to), default=to)
