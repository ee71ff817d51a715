"""DS1: what changes when DeepSpeed is upgraded. These rules run only with `--deepspeed OLD..NEW`, such as 0.14.5..0.19.8."""

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
"""Origins of values that DeepSpeed reads from the config."""

RELEASES = "https://github.com/deepspeedai/DeepSpeed/releases"


@rule("DS116", "default-changed", effect=Effect.SILENT, references=(RELEASES,), watches=("fact:upgrade_from",))
@bad('{"train_micro_batch_size_per_gpu": 4}', at="gradient_clipping", deepspeed="0.14.5..0.19.8")
@good('{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0.0}', deepspeed="0.14.5..0.19.8")
@good('{"train_micro_batch_size_per_gpu": 4}', deepspeed="0.18.8..0.18.9")
def default_changed(config: Config) -> Iterator[Finding]:
    """A key that is not written has another default in the newer release, which changes the training.

    The rule runs only with `--deepspeed OLD..NEW`. It compares the keys that every training has and those of the sections in the file.

    Write the value that you mean; then every release uses it.
    """
    for old, new in _pairs(config):
        if old.origin is new.origin is Origin.DEFAULT and old.value != new.value:
            release = _changed_at(new.key, config.facts.upgrade_from, config.release)
            before, after = shown_value(old.value), shown_value(new.value)
            yield Finding(
                new.path,
                f"{new.key} is not written, and DeepSpeed {release} changed its default from {before} to {after}.",
                help=f'Write "{new.path[-1]}": {before} to keep the behavior of DeepSpeed {config.facts.upgrade_from}.',
                fix=write(config, new.path, before),
                severity=Severity.WARNING,
            )


@rule("DS117", "value-read-differently", effect=Effect.SILENT, references=(RELEASES,), watches=("fact:upgrade_from",))
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0, "fp16": {"enabled": "false"}}',
    at="fp16.enabled",
    deepspeed="0.14.5..0.19.8",
)
@good('{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0, "fp16": {"enabled": true}}', deepspeed="0.14.5..0.19.8")
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
        elif old.lost and new.origin in READ:
            since = _added_in(new.key) or config.release
            message = f"DeepSpeed {old_release} silently ignores {new.key}; {since} and newer releases use {shown_value(new.value)}."
            yield Finding(new.path, message, help="Check that you still mean this value.", severity=Severity.WARNING)


def _pairs(config: Config) -> Iterator[tuple[EffectiveEntry, EffectiveEntry]]:
    """Each key that matters, as the old and as the new release resolve it; nothing without an upgrade."""
    start = config.facts.upgrade_from
    if start is None:
        return
    before = {entry.path: entry for entry in effective(resolve(config.document, config.context.but(deepspeed=start, upgrade_from=None)))}
    for new in effective(config):
        old = before.get(new.path)
        since = _added_in(new.key)
        if old is not None and (new.written is not None or since is None or since <= start):
            yield old, new


def _added_in(key: str) -> Release | None:
    """The release that added a key; None for a key that the oldest supported release has."""
    since = KEYS.get(key, {}).get("since")
    return Release.parse(since) if since else None


def _changed_at(key: str, start: Release | None, to: Release) -> Release:
    """The first release after `start`, up to `to`, that changed the default of a key."""
    assert start is not None
    changes = (Release.parse(word) for word, _ in KEYS[key].get("defaults", ()) if word != "0")
    return min((release for release in changes if start < release <= to), default=to)
