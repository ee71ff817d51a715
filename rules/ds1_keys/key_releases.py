"""DS1: keys that are gone, on their way out, not there yet, or written twice."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config, Violation
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, FixPlan, bad, good, rule, unsafe
from dslint.rules.helpers.fixes import removed, replacement, without
from dslint.schemas.key_table import KEYS
from dslint.source.change import Remove, Rename

MINIMAL = '"train_micro_batch_size_per_gpu": 4'
NEVER = "0.0.0"
"""The release up to which a key was read that none has read."""


@rule(
    "DS109",
    "removed-key",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("https://github.com/deepspeedai/DeepSpeed/issues/8489",),
    watches=("violation:removed",),
)
@bad(f'{{{MINIMAL}, "elasticity": {{"enabled": false}}}}', at="elasticity")
@bad(f'{{{MINIMAL}, "amp": null}}', at="amp")
@good(f'{{{MINIMAL}, "elasticity": {{"enabled": false}}}}', deepspeed="0.19.7")
def removed_key(config: Config) -> Iterator[Finding]:
    """A key of a feature that DeepSpeed has removed, and whose presence alone makes it raise.

    `DeepSpeedConfigError` comes before anything else is looked at, also where the feature is disabled or the value is null.

    Remove the key.
    """
    for violation in config.violations_of("removed"):
        until = violation.spec["until"]
        gone = "what it belonged to is gone" if until["release"] == NEVER else f"the feature was removed after {until['release']}"
        yield Finding(
            violation.path,
            f"DeepSpeed {config.release} refuses a config that has {violation.key}, whatever its value: {gone}.",
            help=" ".join(
                filter(None, ("Remove it.", until.get("note"), f"`{until['use']}` does the job now." if until.get("use") else None))
            ),
            on="key",
            fix=removed(violation.path),
        )


@rule("DS110", "dead-key", effect=Effect.IGNORED, watches=("violation:dead",))
@bad(f'{{{MINIMAL}, "aio": {{"thread_count": 4}}}}', at="aio.thread_count")
@bad(f'{{{MINIMAL}, "eigenvalue": {{"enabled": true}}}}', at="eigenvalue", deepspeed="0.18.9")
@good(f'{{{MINIMAL}, "aio": {{"intra_op_parallelism": 4}}}}')
def dead_key(config: Config) -> Iterator[Finding]:
    """A key that older releases read and this one drops without a word.

    The feature it belonged to is gone, or found another name. Nothing is raised, and the setting does nothing.

    Use the key that replaces it, or remove it.
    """
    for violation in config.violations_of("dead"):
        until = violation.spec["until"]
        read = (
            "was not read here by any release of DeepSpeed" if until["release"] == NEVER else f"was read up to DeepSpeed {until['release']}"
        )
        yield Finding(
            violation.path,
            f"{violation.key} {read}; {config.release} drops it without a word.",
            help=" ".join(filter(None, (f"Use `{until['use']}`." if until.get("use") else "Remove it.", until.get("note")))),
            on="key",
            fix=_successor(config, violation),
        )


def _successor(config: Config, violation: Violation) -> FixPlan | None:
    """The key that does the job now; where there is none, the dead one goes."""
    use = violation.spec["until"].get("use")
    if not use:
        return removed(violation.path)
    to = tuple(use.split("."))
    if config.has(use) or to[:-1] != violation.path[:-1]:
        return removed(violation.path) if config.has(use) else None
    return unsafe(f'rename to "{to[-1]}"', Rename(violation.path, to[-1]))


@rule("DS111", "deprecated-key", effect=Effect.ADVICE, watches=("violation:deprecated",))
@bad(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "cpu_offload": true}}}}', at="zero_optimization.cpu_offload")
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "offload_optimizer": {{"device": "cpu"}}}}}}')
def deprecated_key(config: Config) -> Iterator[Finding]:
    """A key that still works and is on its way out.

    DeepSpeed logs a warning and reads the value as that of the key that replaces it; a later release will refuse or drop it.

    Write the key that replaces it.
    """
    for violation in config.violations_of("deprecated"):
        deprecated = violation.spec["deprecated"]
        use = deprecated.get("use")
        if use and deprecated.get("mapped", True) and _is_written(config, use):
            continue  # replaced-beside-deprecated says more
        mapped = deprecated.get("mapped", True)
        outcome = (
            f"DeepSpeed still takes it for `{use}`"
            if use and mapped
            else "DeepSpeed warns and ignores it"
            if not mapped
            else "DeepSpeed still reads it"
        )
        yield Finding(
            violation.path,
            f"{violation.key} has been deprecated since DeepSpeed {deprecated['release']}: {outcome}.",
            help=" ".join(filter(None, (f"Use `{use}`." if use else "Remove it.", deprecated.get("note")))),
            fix=replacement(config, violation),
            effect=None if mapped else Effect.IGNORED,
        )


@rule("DS112", "key-too-new", effect=Effect.IGNORED, watches=("violation:too-new",))
@bad(f'{{{MINIMAL}, "log_level": "info"}}', at="log_level", deepspeed="0.18.9")
@good(f'{{{MINIMAL}, "log_level": "info"}}', deepspeed="0.19.8")
def key_too_new(config: Config) -> Iterator[Finding]:
    """A key that a later release brought.

    The release that will run the config does not know it: it drops the key, or, in a section that admits no unknown keys, refuses the config.

    Run a release that has it, or remove it.
    """
    for violation in config.violations_of("too-new"):
        outcome = "refuses the config because of it" if violation.raises else "drops it without a word"
        yield Finding(
            violation.path,
            f"{violation.key} came with DeepSpeed {violation.spec['since']}; {config.release} {outcome}.",
            help=f"Remove it, or run DeepSpeed {violation.spec['since']} or newer.",
            fix=without(config, violation.path),
            on="key",
            effect=Effect.CRASH if violation.raises else None,
            phase=Phase.PARSE if violation.raises else None,
        )


@rule("DS113", "key-given-twice", effect=Effect.CRASH, phase=Phase.PARSE, watches=("violation:given-twice",))
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 3, "stage3_prefetch_bucket_size": 5e7, "prefetch_bucket_size": 5e7}}}}',
    at="zero_optimization.prefetch_bucket_size",
)
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 3, "prefetch_bucket_size": 5e7}}}}')
def key_given_twice(config: Config) -> Iterator[Finding]:
    """One setting under both of its names.

    Some keys of `zero_optimization` have two: `stage3_prefetch_bucket_size` is also `prefetch_bucket_size`. DeepSpeed takes either; given both, it
    finds one of them to be unknown and raises a `ValidationError`.

    Keep one. The one that begins with `stage3_` is the one that the Hugging Face integrations know.
    """
    for violation in config.violations_of("given-twice"):
        assert violation.meant is not None
        yield Finding(
            violation.path,
            f'"{violation.path[-1]}" and "{violation.meant[-1]}" are two names of one setting; DeepSpeed takes either and raises "Extra inputs are not permitted" for both.',
            help=f'Keep "{violation.meant[-1]}".',
            related=((violation.meant, "the other name"),),
            on="key",
            fix=removed(violation.path)
            if config.quote(violation.path) == config.quote(violation.meant)
            else unsafe(f'remove "{violation.path[-1]}"', Remove(violation.path)),
        )


@rule(
    "DS114",
    "replaced-beside-deprecated",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("deepspeed/runtime/config_utils.py, DeepSpeedConfigModel",),
    watches=("violation:deprecated",),
)
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "cpu_offload": true, "offload_optimizer": {{"device": "cpu"}}}}}}',
    at="zero_optimization.cpu_offload",
)
@good(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "zero_optimization": {{"stage": 2, "offload_optimizer": {{"device": "cpu"}}}}}}'
)
def replaced_beside_deprecated(config: Config) -> Iterator[Finding]:
    """A deprecated key beside the one that replaces it.

    DeepSpeed copies the value of the deprecated key to the new one, and raises an `AssertionError` if that is written too: "Cannot provide
    deprecated parameter and replacing parameter together".

    Remove the deprecated key.
    """
    for violation in config.violations_of("deprecated"):
        use = violation.spec["deprecated"].get("use")
        if use and violation.spec["deprecated"].get("mapped", True) and _is_written(config, use):
            yield Finding(
                violation.path,
                f"{violation.key} stands beside `{use}`, which replaces it; DeepSpeed raises AssertionError for the two together.",
                help=f'Remove "{violation.path[-1]}".',
                related=((use, "the key that replaces it"),),
                fix=removed(violation.path),
            )


def _is_written(config: Config, key: str) -> bool:
    """Whether a key stands in the file, under any of its names, with a value that DeepSpeed does not drop."""
    parent, _, name = key.rpartition(".")
    paths = [f"{parent}.{other}".strip(".") for other in (name, *KEYS.get(key, {}).get("also", ()))]
    return any(config.has(path) and config.quote(path) != '"auto"' for path in paths)


@rule("DS115", "key-shadowed", effect=Effect.IGNORED, watches=("violation:shadowed",))
@bad(f'{{{MINIMAL}, "bf16": {{"enabled": false}}, "bfloat16": {{"enabled": true}}}}', at="bfloat16")
@good(f'{{{MINIMAL}, "bfloat16": {{"enabled": true}}}}')
def key_shadowed(config: Config) -> Iterator[Finding]:
    """A key that is not read because another one stands beside it.

    `bfloat16` is the old name of `bf16`. DeepSpeed reads it only where there is no `bf16`, whatever that says.

    Keep one of the two.
    """
    for violation in config.violations_of("shadowed"):
        assert violation.meant is not None
        other = violation.meant[-1]
        yield Finding(
            violation.path,
            f'DeepSpeed does not read "{violation.path[-1]}" where "{other}" stands beside it, whatever that says.',
            help=f'Keep "{other}" and remove "{violation.path[-1]}".',
            related=((violation.meant, "the one that is read"),),
            on="key",
            fix=removed(violation.path),
        )
