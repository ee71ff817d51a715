"""DS1: what another DeepSpeed release makes of the same file. Asked with `--deepspeed 0.14.5..0.19.8` alone."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config, Origin, resolve
from dslint.config.effective import EffectiveEntry, effective
from dslint.diagnostics import Effect, Severity
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.messages import shown_value
from dslint.schemas.key_table import KEYS

READ = (Origin.WRITTEN, Origin.MAPPED, Origin.FILLED)
"""Origins of what is written and used."""


@rule("DS116", "default-changed", effect=Effect.SILENT, watches=("fact:upgrade_from",))
@bad('{"train_micro_batch_size_per_gpu": 4}', at="gradient_clipping", deepspeed="0.14.5..0.19.8")
@good('{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0.0}', deepspeed="0.14.5..0.19.8")
@good('{"train_micro_batch_size_per_gpu": 4}', deepspeed="0.18.8..0.18.9")
def default_changed(config: Config) -> Iterator[Finding]:
    """A key that is not written gets another default from a later release on: the same file trains otherwise.

    Asked with `--deepspeed OLD..NEW` alone, of the keys that matter in the file: those that every training has, and those of the sections
    that are written.

    Write the value that is meant; then every release does the same.
    """
    for old, new in _pairs(config):
        if old.origin is new.origin is Origin.DEFAULT and old.value != new.value:
            release = _changed_at(new.key, config.facts.upgrade_from, config.release)
            yield Finding(
                new.path,
                f"{new.key} is not written, and its default is {shown_value(new.value)} from DeepSpeed {release} on; up to then it was {shown_value(old.value)}.",
                help=f'Write "{new.path[-1]}": {shown_value(old.value)} to keep what DeepSpeed {config.facts.upgrade_from} does.',
                fix=write(config, new.path, shown_value(old.value)),
                severity=Severity.WARNING,
            )


@rule("DS117", "value-taken-otherwise", effect=Effect.SILENT, watches=("fact:upgrade_from",))
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0, "fp16": {"enabled": "false"}}',
    at="fp16.enabled",
    deepspeed="0.14.5..0.19.8",
)
@good('{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0, "fp16": {"enabled": true}}', deepspeed="0.14.5..0.19.8")
def value_taken_otherwise(config: Config) -> Iterator[Finding]:
    """What is written becomes another value in a later release: the same file trains otherwise.

    Asked with `--deepspeed OLD..NEW` alone. A string where a boolean belongs was true in a section that was read by hand, and is something
    else, or nothing, since DeepSpeed parses the section; a key that was overlooked begins to count.

    Write the value that is meant, in the type that the key takes.
    """
    old_release = config.facts.upgrade_from
    spoken_of = {violation.path for violation in config.violations}
    for old, new in _pairs(config):
        if new.written is None or new.path in spoken_of or new.value is UNKNOWN or new.value == old.value:
            continue
        if old.value is not UNKNOWN and old.origin in READ:
            message = f"{new.key} is {new.written}: DeepSpeed {old_release} takes it for {shown_value(old.value)}, {config.release} for {shown_value(new.value)}."
            yield Finding(
                new.path, message, help=f"Write {shown_value(old.value)} or {shown_value(new.value)}, as it is meant.", on="value"
            )
        elif old.lost and new.origin in READ:
            came = _came(new.key) or config.release
            message = f"{new.key} begins to count: DeepSpeed {old_release} drops it without a word, {came} and later use {shown_value(new.value)}."
            yield Finding(new.path, message, help="Make sure that the value is still meant.", severity=Severity.WARNING)


def _pairs(config: Config) -> Iterator[tuple[EffectiveEntry, EffectiveEntry]]:
    """Each key that matters, as the release before and as the release after has it; none without an upgrade."""
    start = config.facts.upgrade_from
    if start is None:
        return
    before = {entry.path: entry for entry in effective(resolve(config.document, config.context.but(deepspeed=start, upgrade_from=None)))}
    for new in effective(config):
        old = before.get(new.path)
        came = _came(new.key)
        if old is not None and (new.written is not None or came is None or came <= start):
            yield old, new


def _came(key: str) -> Release | None:
    """The release that a key came with; None for one that was always there."""
    came = KEYS.get(key, {}).get("since")
    return Release.parse(came) if came else None


def _changed_at(key: str, start: Release | None, to: Release) -> Release:
    """The release in which a default changed, of those after `start` up to `to` the first."""
    assert start is not None
    changes = (Release.parse(word) for word, _ in KEYS[key].get("defaults", ()) if word != "0")
    return min((release for release in changes if start < release <= to), default=to)
