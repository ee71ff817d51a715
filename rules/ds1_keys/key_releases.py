"""DS1: keys that a release removed, deprecated or has not added yet, and settings that are written under two names."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config, Violation, ViolationKind
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Release
from dslint.rule import Finding, FixPlan, bad, good, rule, safe, unsafe
from dslint.rules.helpers.examples import ADAMW, MINIMAL
from dslint.rules.helpers.fixes import as_successor, replacement, without
from dslint.rules.helpers.keys import says_the_same
from dslint.rules.helpers.loaders import releases_belong_together
from dslint.rules.helpers.offload import OFFLOAD_SECTIONS, to_nvme
from dslint.rules.helpers.unknown import refusal
from dslint.rules.helpers.zero import ACCUMULATION, requires_managed_accumulation
from dslint.schemas.key_table import KEYS
from dslint.source.change import Insert, Remove
from dslint.source.tree import Mapping, Path, dotted

NEVER = "0.0.0"
"""The last release that read a key, for a key that no release has read."""

REPLACED = ("amp", "curriculum_learning", "elasticity")
"""Removed features that other settings replace: a precision, data efficiency, the batch sizes."""

CONFIG_CLASS = "deepspeed/runtime/config.py, DeepSpeedConfig._initialize_params"
DEPRECATION = "deepspeed/runtime/config_utils.py, DeepSpeedConfigModel._process_deprecated_field"


@rule(
    "DS109",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("https://github.com/deepspeedai/DeepSpeed/issues/8489",),
    watches=("violation:removed",),
)
@bad(
    f'{{{MINIMAL}, "elasticity": {{"enabled": false}}}}',
    at="elasticity",
    message="DeepSpeed 0.19.8 rejects a config that has elasticity, whatever its value: the feature was removed after 0.19.7.",
    fixed='{"train_micro_batch_size_per_gpu": 4}',
)
@bad(
    f'{{{MINIMAL}, "amp": null}}',
    at="amp",
    message="DeepSpeed 0.19.8 rejects a config that has amp, whatever its value: the feature was removed after 0.19.7.",
    fixed='{"train_micro_batch_size_per_gpu": 4}',
)
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 3, "cpu_offload_params": true}}}}',
    at="zero_optimization.cpu_offload_params",
    message="DeepSpeed 0.19.8 rejects a config that has zero_optimization.cpu_offload_params, whatever its value: the feature was removed after 0.6.7.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}',
)
@good(f'{{{MINIMAL}, "elasticity": {{"enabled": false}}}}', deepspeed="0.19.7")
def removed_key(config: Config) -> Iterator[Finding]:
    """A key of a removed feature, which DeepSpeed rejects whatever its value.

    DeepSpeed raises `DeepSpeedConfigError` before it reads anything else, even where the feature is disabled or the value is null.

    Remove the key. An older release may still read it: if it says more than "off", dslint removes it with `--unsafe-fixes` only, and leaves
    it to you where another setting takes its place.
    """
    for violation in config.violations_of(ViolationKind.REMOVED):
        until = violation.spec["until"]
        reason = "its feature was removed" if until["release"] == NEVER else f"the feature was removed after {until['release']}"
        use = f"Use `{until['use']}` instead." if until.get("use") else None
        section = _offload_section(config, violation)
        yield Finding(
            violation.path,
            f"DeepSpeed {config.release} rejects a config that has {violation.key}, whatever its value: {reason}.",
            help=f"{section.title[:1].upper()}{section.title[1:]} instead."
            if section
            else " ".join(filter(None, ("Remove it.", until.get("note"), use))),
            on="key",
            fix=section or _without_feature(config, violation),
            certain=releases_belong_together(config),
        )


@rule("DS110", effect=Effect.IGNORED, references=(CONFIG_CLASS,), watches=("violation:dead",))
@bad(
    f'{{{MINIMAL}, "aio": {{"thread_count": 4}}}}',
    at="aio.thread_count",
    message="aio.thread_count was read up to DeepSpeed 0.16.3; 0.19.8 silently ignores it.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "aio": {"intra_op_parallelism": 4}}',
)
@bad(
    f'{{{MINIMAL}, "eigenvalue": {{"enabled": true}}}}',
    at="eigenvalue",
    deepspeed="0.18.9",
    message="No DeepSpeed release reads eigenvalue; 0.18.9 silently ignores it.",
    fixed='{"train_micro_batch_size_per_gpu": 4}',
)
@good(f'{{{MINIMAL}, "aio": {{"intra_op_parallelism": 4}}}}')
def dead_key(config: Config) -> Iterator[Finding]:
    """A key that older releases read and this release silently ignores.

    The feature was removed, or the key has another name now. DeepSpeed raises no error, and the setting does nothing. What loses nothing is
    reported only with `--pedantic`: what is switched off anyway (false, null, `"enabled": false`), a setting of NVMe in a config that does
    not offload to it, and a value that is the default of the new key.

    Use the key that replaces it, or remove it.
    """
    for violation in config.violations_of(ViolationKind.DEAD):
        until = violation.spec["until"]
        lost = not (_is_off(config, violation.path) or _changes_nothing(config, violation))
        never = until["release"] == NEVER
        history = f"No DeepSpeed release reads {violation.key}" if never else f"{violation.key} was read up to DeepSpeed {until['release']}"
        yield Finding(
            violation.path,
            f"{history}; {config.release} silently ignores it.",
            help=" ".join(filter(None, (_instead(config, until.get("use", "")), until.get("note")))),
            on="key",
            fix=_use_instead(config, violation),
            effect=None if lost else Effect.ADVICE,
            pedantic=not lost,
        )


def _instead(config: Config, use: str) -> str:
    """What to write for a key that is not read any more, with the release that it requires where an older one may run the config."""
    since, oldest = KEYS.get(use, {}).get("since"), config.context.oldest
    if since and oldest is not None and oldest < Release.parse(since):
        return f"Require DeepSpeed {since} or later, and use `{use}`: older releases do not read it."
    return f"Use `{use}`." if use else "Remove it."


def _changes_nothing(config: Config, violation: Violation) -> bool:
    """Whether DeepSpeed would do the same if it read the key: the value is the default of the key that replaces it, or nothing reads both."""
    default = KEYS.get(violation.spec["until"].get("use", ""), {}).get("default", UNKNOWN)
    unread = violation.path[0] == "aio" and not any(to_nvme(config, section) for section in OFFLOAD_SECTIONS)
    return unread or bool(default is not UNKNOWN and config.literal(violation.path) == default)


def _offload_section(config: Config, violation: Violation) -> FixPlan | None:
    """Write the offload section for a removed switch that is on, such as `cpu_offload_params`; None for every other key."""
    use = violation.spec["until"].get("use", "")
    if f"{use}.device" not in KEYS or config.literal(violation.path) is not True or config.has(use):
        return None
    to = tuple(use.split("."))
    return safe(f'write "{to[-1]}": {{"device": "cpu"}}', Remove(violation.path), Insert(to[:-1], to[-1], '{"device": "cpu"}'))


def _without_feature(config: Config, violation: Violation) -> FixPlan | None:
    """Remove the key of a feature that is gone. None where the feature is on, and another setting has to take its place."""
    if _is_off(config, violation.path):
        return _removed(config, violation)
    return None if violation.path[0] in REPLACED else without(config, violation.path, Applicability.UNSAFE)


def _removed(config: Config, violation: Violation) -> FixPlan | None:
    """Remove a key that the target release does not read.

    It is unsafe if another release uses what is written: the file may be meant for that one, too. A key that says no more than "off" does
    the same there as no key.
    """
    never = violation.spec.get("until", {}).get("release") == NEVER
    says_off = _is_off(config, violation.path) and len(getattr(config.node(violation.path), "members", ())) <= 1
    return without(config, violation.path, Applicability.SAFE if never or says_off else Applicability.UNSAFE)


def _is_off(config: Config, path: Path) -> bool:
    """Whether the value switches off what the key is for.

    That is false, null, an empty section, a section with `enabled` false, or one without `enabled` that has to be enabled.
    """
    node = config.node(path)
    if isinstance(node, Mapping):
        enabled = (*path, "enabled")
        has_switch = path[0] in REPLACED or f"{dotted(path)}.enabled" in KEYS
        return not node.members or config.literal(enabled) is False or (has_switch and not config.has(enabled))
    return config.is_null(path) or config.literal(path) is False or _is_default(config, path)


def _is_default(config: Config, path: Path) -> bool:
    """Whether the value is the one that the key has if it is not written."""
    default = KEYS.get(dotted(path), {}).get("default", UNKNOWN)
    return default is not UNKNOWN and bool(config.literal(path) == default)


def _use_instead(config: Config, violation: Violation) -> FixPlan | None:
    """Write the key that replaces a dead one, or remove it where there is none.

    This is safe in an upgrade: the older release reads the key.
    """
    until, old = violation.spec["until"], config.literal(violation.path)
    if not until.get("use") or config.has(until["use"]):
        return _removed(config, violation)
    kind = Applicability.SAFE if config.facts.upgrade_from else Applicability.UNSAFE
    return None if old is UNKNOWN else as_successor(config, violation.path, until, old, kind)


@rule("DS111", effect=Effect.ADVICE, references=(DEPRECATION,), watches=("violation:deprecated",))
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "cpu_offload": true}}}}',
    at="zero_optimization.cpu_offload",
    message="zero_optimization.cpu_offload is deprecated since DeepSpeed 0.7.0: DeepSpeed still reads it as `zero_optimization.offload_optimizer`.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
)
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "offload_optimizer": {{"device": "cpu"}}}}}}')
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "cpu_offload": false}}}}')
def deprecated_key(config: Config) -> Iterator[Finding]:
    """A deprecated key.

    DeepSpeed logs a warning and uses the value for the key that replaces it. A later release can reject or ignore the key. A key that
    DeepSpeed still reads is reported only with `--pedantic`, or in an upgrade (`--deepspeed OLD..NEW`).

    Write the key that replaces it.
    """
    for violation in config.violations_of(ViolationKind.DEPRECATED):
        if _has_replacement_too(config, violation):
            continue  # DS114 reports it
        deprecated = violation.spec["deprecated"]
        if config.literal(violation.path) is False and not violation.spec.get("default"):
            continue  # it is off, and stays so without the key
        use, mapped = deprecated.get("use"), deprecated.get("mapped", True)
        if not mapped:
            outcome = "DeepSpeed logs a warning and ignores it"
        else:
            outcome = f"DeepSpeed still reads it as `{use}`" if use else "DeepSpeed still reads it"
        yield Finding(
            violation.path,
            f"{violation.key} is deprecated since DeepSpeed {deprecated['release']}: {outcome}.",
            help=" ".join(filter(None, (f"Use `{use}`." if use else "Remove it.", deprecated.get("note")))),
            fix=replacement(config, violation),
            effect=None if mapped else Effect.IGNORED,
            pedantic=mapped and config.facts.upgrade_from is None,
        )


@rule("DS112", effect=Effect.IGNORED, references=(CONFIG_CLASS,), watches=("violation:too-new",))
@bad(
    f'{{{MINIMAL}, "log_level": "info"}}',
    at="log_level",
    deepspeed="0.18.9",
    message="log_level was added in DeepSpeed 0.19.3; 0.18.9 silently ignores it.",
    fixed='{"train_micro_batch_size_per_gpu": 4}',
)
@bad(
    f'{{{MINIMAL}, "compile": {{"enabled": true}}}}',
    at="compile",
    deepspeed="0.15.4",
    message="compile was removed in DeepSpeed 0.14.4 and came back after 0.16.5; 0.15.4 silently ignores it.",
    fixed='{"train_micro_batch_size_per_gpu": 4}',
)
@bad(
    f'{{{MINIMAL}, "managed_gradient_accumulation": false, "compile": {{"deepcompile": true}}}}',
    at="managed_gradient_accumulation",
    deepspeed="0.18.9",
    message="managed_gradient_accumulation was added in DeepSpeed 0.19.4; 0.18.9 silently ignores it.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "compile": {"deepcompile": true}}',
)
@good(f'{{{MINIMAL}, "log_level": "info"}}', deepspeed="0.19.8")
def key_too_new(config: Config) -> Iterator[Finding]:
    """A key that a later release added, or that the releases in between do not have.

    The target release does not know the key: it ignores it, or rejects the config if the section admits no unknown keys. An ignored key
    that switches a feature off loses nothing and is reported only with `--pedantic`.

    Run a release that has the key, or remove it. A key that was removed and came back can have another meaning since then.
    """
    for violation in config.violations_of(ViolationKind.TOO_NEW):
        since = violation.spec["since"]
        gap = next((gap for gap in violation.spec.get("absent", ()) if Release.parse(since) <= config.release), None)
        outcome = "rejects the config because of it" if violation.raises else "silently ignores it"
        if gap is None:
            history, advice = f"was added in DeepSpeed {since}", f"Remove it, or run DeepSpeed {since} or newer."
            if violation.path == (ACCUMULATION,) and config.literal(ACCUMULATION) is False and requires_managed_accumulation(config):
                advice = "Remove it."  # a newer release raises: DS418
        else:  # what came back can have other keys: no release is advised
            history, advice = f"was removed in DeepSpeed {gap[0]} and came back after {gap[1]}", "Remove it."
        off = not violation.raises and _is_off(config, violation.path)
        yield Finding(
            violation.path,
            f"{violation.key} {history}; {config.release} {outcome}.",
            help=advice,
            fix=_removed(config, violation),
            on="key",
            effect=Effect.CRASH if violation.raises else Effect.ADVICE if off else None,
            phase=Phase.PARSE if violation.raises else None,
            pedantic=off,
        )


@rule(
    "DS113",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("deepspeed/runtime/zero/config.py, DeepSpeedZeroConfig",),
    watches=("violation:given-twice",),
)
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 3, "stage3_prefetch_bucket_size": 5e7, "prefetch_bucket_size": 5e7}}}}',
    at="zero_optimization.prefetch_bucket_size",
    message='"prefetch_bucket_size" and "stage3_prefetch_bucket_size" are two names of one setting; with both, DeepSpeed raises "Extra inputs are not permitted".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e7}}',
)
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 3, "prefetch_bucket_size": 5e7}}}}')
def key_given_twice(config: Config) -> Iterator[Finding]:
    """One setting is written under both of its names.

    Some keys of `zero_optimization` have two names: `stage3_prefetch_bucket_size` is also `prefetch_bucket_size`. DeepSpeed accepts either
    one. With both, it treats one of them as an unknown key and raises a `ValidationError`.

    Keep one. The Hugging Face integrations know only the name that begins with `stage3_`.
    """
    for violation in config.violations_of(ViolationKind.GIVEN_TWICE):
        assert violation.meant is not None
        name, other = violation.path[-1], violation.meant[-1]
        same = config.quote(violation.path) == config.quote(violation.meant)
        yield Finding(
            violation.path,
            f'"{name}" and "{other}" are two names of one setting; with both, DeepSpeed raises "{refusal(config)}".',
            help=f'Keep "{other}".',
            related=((violation.meant, "the other name"),),
            on="key",
            fix=without(config, violation.path) if same else unsafe(f'remove "{name}"', Remove(violation.path)),
        )


@rule(
    "DS114",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=(DEPRECATION,),
    watches=("violation:deprecated",),
)
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "cpu_offload": true, "offload_optimizer": {{"device": "cpu"}}}}}}',
    at="zero_optimization.cpu_offload",
    message="zero_optimization.cpu_offload is deprecated, and its replacement `zero_optimization.offload_optimizer` is written too: DeepSpeed raises AssertionError.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
)
@good(f'{{{ADAMW}, "zero_optimization": {{"stage": 2, "offload_optimizer": {{"device": "cpu"}}}}}}')
def deprecated_and_replacement(config: Config) -> Iterator[Finding]:
    """A deprecated key and the key that replaces it are both written.

    DeepSpeed copies the value of the deprecated key to the new key, and raises an `AssertionError` if the new key is written as well:
    "Cannot provide deprecated parameter and replacing parameter together".

    Remove the deprecated key.
    """
    for violation in config.violations_of(ViolationKind.DEPRECATED):
        if _has_replacement_too(config, violation):
            use = violation.spec["deprecated"]["use"]
            yield Finding(
                violation.path,
                f"{violation.key} is deprecated, and its replacement `{use}` is written too: DeepSpeed raises AssertionError.",
                help=f'Remove "{violation.path[-1]}".',
                related=((use, "the key that replaces it"),),
                fix=without(config, violation.path),
            )


def _has_replacement_too(config: Config, violation: Violation) -> bool:
    """Whether the key to which DeepSpeed copies a deprecated key is written, under any of its names, with a value that it does not drop."""
    use = violation.spec["deprecated"].get("use")
    if not use or not violation.spec["deprecated"].get("mapped", True):
        return False
    parent, _, name = use.rpartition(".")
    paths = [f"{parent}.{other}".strip(".") for other in (name, *KEYS.get(use, {}).get("also", ()))]
    return any(config.has(path) and not config.is_auto(path) for path in paths)


@rule(
    "DS115",
    effect=Effect.IGNORED,
    references=("deepspeed/runtime/precision_config.py, get_bfloat16_config",),
    watches=("violation:shadowed",),
)
@bad(
    f'{{{MINIMAL}, "bf16": {{"enabled": false}}, "bfloat16": {{"enabled": true}}}}',
    at="bfloat16",
    message='DeepSpeed ignores "bfloat16" because the config also has "bf16", whatever its value.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": false}}',
)
@good(f'{{{MINIMAL}, "bfloat16": {{"enabled": true}}}}')
def key_shadowed(config: Config) -> Iterator[Finding]:
    """A key that DeepSpeed ignores because another key is written too.

    `bfloat16` is the old name of `bf16`. DeepSpeed reads it only if the config has no `bf16`, whatever the value of that is. If both say
    the same, nothing is lost, and the finding is reported only with `--pedantic`.

    Keep one of the two.
    """
    for violation in config.violations_of(ViolationKind.SHADOWED):
        assert violation.meant is not None
        name, other = violation.path[-1], violation.meant[-1]
        same = says_the_same(config, violation.path, violation.meant)
        yield Finding(
            violation.path,
            f'DeepSpeed ignores "{name}" because the config also has "{other}", whatever its value.',
            help=f'Keep "{other}" and remove "{name}".',
            related=((violation.meant, "DeepSpeed reads this one"),),
            on="key",
            fix=without(config, violation.path),
            effect=Effect.ADVICE if same else None,
            pedantic=same,
        )
