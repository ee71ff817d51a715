"""DS1: keys that DeepSpeed does not know: in a section that rejects them, misspelt or in the wrong section, or simply ignored.

`dslint/config/validate.py` finds the violations by the key table; the rules here report them, one rule for each outcome.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config, Violation, ViolationKind
from dslint.config.sections import default_of, forbids_unknown
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import OLDEST
from dslint.rule import Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL, trained
from dslint.rules.helpers.fixes import corrected_key, without
from dslint.rules.helpers.keys import says_the_same
from dslint.rules.helpers.loaders import is_loader_certain, releases_belong_together
from dslint.rules.helpers.messages import shown_value
from dslint.rules.helpers.precision import model_dtype
from dslint.rules.helpers.project import is_taken_by_program
from dslint.rules.helpers.unknown import (
    REFUSED_HABITS,
    allowed_keys,
    is_loss_scaling_of_bf16,
    is_newer_release,
    refusal,
    shared_cause,
    subject_of,
    unfilled,
)
from dslint.rules.helpers.zero import STAGE, ZERO, ZEROPP_FEATURES, is_read
from dslint.schemas.derive import MICRO, TRAIN
from dslint.schemas.key_table import KEYS
from dslint.source.change import Remove
from dslint.source.tree import Scalar, dotted

DOCS = "https://www.deepspeed.ai/docs/config-json/"
TO_THE_TOP = "Move it to the top level."


def _suggestion(violation: Violation) -> str | None:
    if violation.meant is None:
        is_section = "section" in KEYS.get(str(violation.path[-1]), {}).get("types", ())
        return REFUSED_HABITS.get(dotted(violation.path), (TO_THE_TOP if is_section else None,))[0]
    if is_loss_scaling_of_bf16(violation):
        return "Remove it: only `fp16` has it."
    *section, name = violation.meant
    if violation.kind is not ViolationKind.MISPLACED_KEY:
        return f'Did you mean "{name}"?'
    if name != violation.path[-1]:
        return f'Write it as "{name}" in `{dotted(tuple(section))}`.'
    return f"Move it into `{dotted(tuple(section))}`." if section else TO_THE_TOP


@rule(
    "DS101",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=(DOCS, "deepspeed/runtime/config_utils.py, DeepSpeedConfigModel"),
    watches=("violation:unknown-key", "violation:misplaced-key"),
)
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "reduce_bucket_sise": 5e8}}}}',
    at="zero_optimization.reduce_bucket_sise",
    message='Unknown key "reduce_bucket_sise" in `zero_optimization`: DeepSpeed rejects unknown keys there and raises "Extra inputs are not permitted".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}}',
)
@bad(
    f'{{{MINIMAL}, "bf16": {{"enabled": true, "loss_scale": 0}}}}',
    at="bf16.loss_scale",
    message='Unknown key "loss_scale" in `bf16`: DeepSpeed rejects unknown keys there and raises "Extra inputs are not permitted".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}',
)
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "reduce_bucket_size": 5e8}}}}')
def unknown_key_refused(config: Config) -> Iterator[Finding]:
    """An unknown key in a section that rejects unknown keys.

    DeepSpeed parses `zero_optimization`, `fp16`, `bf16`, the monitors and some other sections with pydantic models that forbid unknown
    keys: it raises `ValidationError: Extra inputs are not permitted` while it parses the config. Notes such as `_comment` are rejected
    there too.

    Some sections do so only in later releases. If the release of DeepSpeed is only assumed, and the project pins an integration that may be
    older, a finding there is not certain.

    In a project with a copy of DeepSpeed's own sources a key that dslint does not know is reported only with `--pedantic`, unless it is a
    misspelling: the copy may have been changed for it.

    Correct the spelling, move the key to its section, or remove it.
    """
    for violation in config.violations_of(ViolationKind.UNKNOWN_KEY, ViolationKind.MISPLACED_KEY):
        if violation.raises:
            before = config.facts.upgrade_from
            certain = releases_belong_together(config) or forbids_unknown(violation.section, OLDEST)
            raising = "DeepSpeed rejects" if certain else f"DeepSpeed from {KEYS[violation.section]['forbids_since']} on rejects"
            yield Finding(
                violation.path,
                f'{subject_of(config, violation)}{raising} unknown keys there and raises "{refusal(config)}".',
                help=_suggestion(violation)
                or (f"Remove it: DeepSpeed {before} ignores it." if before else allowed_keys(violation) or "Remove it."),
                on="key",
                fix=_accepted(config, violation) if before is None else _as_before(config, violation),
                cause=shared_cause(config, violation, f'rejects them and raises "{refusal(config)}"'),
                certain=certain,
                pedantic=config.context.own_copy and violation.meant is None,
            )


def _accepted(config: Config, violation: Violation) -> FixPlan | None:
    """The fix for a key that DeepSpeed refuses: to correct it, or to remove a habit that changes nothing."""
    if violation.meant is None and dotted(violation.path) in REFUSED_HABITS:
        _, telling = REFUSED_HABITS[dotted(violation.path)]
        return None if config.literal(violation.path) in telling else without(config, violation.path)
    return corrected_key(config, violation)


def _as_before(config: Config, violation: Violation) -> FixPlan | None:
    """The fix in an upgrade from a release that ignores the key: to remove it changes nothing, and to correct it changes the training."""
    corrected = corrected_key(config, violation)
    if corrected is None:
        return without(config, violation.path)
    removes = all(isinstance(change, Remove) for change in corrected.changes)
    return corrected if removes else corrected._replace(applicability=Applicability.UNSAFE)


@rule(
    "DS102",
    effect=Effect.SILENT,
    references=(DOCS, "deepspeed/runtime/config.py, DeepSpeedConfig._initialize_params"),
    watches=("violation:unknown-key", "violation:misplaced-key"),
)
@bad(
    f'{{{MINIMAL}, "zero_optimisation": {{"stage": 3}}}}',
    at="zero_optimisation",
    message='Unknown top-level key "zero_optimisation": DeepSpeed silently ignores it and trains without ZeRO.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}',
)
@bad(
    '{"train_micro_bach_size_per_gpu": 4}',
    at="train_micro_bach_size_per_gpu",
    message='Unknown top-level key "train_micro_bach_size_per_gpu": DeepSpeed silently ignores it, and raises "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided".',
    fixed='{"train_micro_batch_size_per_gpu": 4}',
)
@bad(
    f'{{{MINIMAL}, "lr_scheduler": {{"type": "WarmupLR"}}}}',
    at="lr_scheduler",
    message='Unknown top-level key "lr_scheduler": DeepSpeed silently ignores it and keeps the learning rate constant unless the program passes a scheduler.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "scheduler": {"type": "WarmupLR"}}',
)
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 3}}, "stage3_max_live_parameters": 1e8}}',
    at="stage3_max_live_parameters",
    message='Unknown top-level key "stage3_max_live_parameters": DeepSpeed silently ignores it and uses 1e9, the default of stage3_max_live_parameters.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e8}}',
)
@bad(
    trained('"scheduler": {"type": "WarmupLR", "prams": {"warmup_num_steps": 10}}'),
    at="scheduler.prams",
    message='Unknown key "prams" in `scheduler`: DeepSpeed ignores it. WarmupLR has no "params": DeepSpeed raises TypeError "argument after ** must be a mapping, not NoneType" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}}',
)
@bad(
    trained(
        '"bf16": {"enabled": true}, "zero_optimizations": {"stage": 2}, "fp16": {"enabled": false, "fp16_master_weights_and_grads": true}'
    ),
    at="zero_optimizations",
    message='Unknown top-level key "zero_optimizations": DeepSpeed ignores it. The stage is 0, but only ZeRO stages 1 to 3 support fp16_master_weights_and_grads: DeepSpeed raises an AssertionError while parsing.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}, "fp16": {"enabled": false, "fp16_master_weights_and_grads": true}}',
)
@bad(
    f'{{{MINIMAL}, "fp16": {{"enabled": false}}, "loss_scale_window": 400}}',
    at="loss_scale_window",
    message='Unknown top-level key "loss_scale_window": DeepSpeed silently ignores it, and fp16 is off.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false, "loss_scale_window": 400}}',
)
@bad(
    trained('"bf16": {"enabled": true, "min_loss_scale": 1e-10}'),
    at="bf16.min_loss_scale",
    deepspeed="0.14.2",
    message='Unknown key "min_loss_scale" in `bf16`: DeepSpeed silently ignores it, and bf16 has no loss scale.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}}',
)
@bad(
    f'{{{MINIMAL}, "memory_efficient_linear": false, "zero_optimization": {{"stage": 2}}}}',
    at="memory_efficient_linear",
    message='Unknown top-level key "memory_efficient_linear": DeepSpeed silently ignores it. ZeRO stage 2 does not read memory_efficient_linear in zero_optimization, either.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}, "gradient_cliping": "auto"}',
    at="gradient_cliping",
    integration="transformers",
    message='Unknown top-level key "gradient_cliping": the Hugging Face Trainer has no value for its "auto", and raises "`gradient_cliping` not found in kwargs".',
    fixed='{"train_batch_size": "auto", "zero_optimization": {"stage": 2}, "gradient_clipping": "auto"}',
)
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 3, "stage3_max_live_parameters": 1e8}}}}')
@good(f'{{{MINIMAL}, "$schema": "ds_config.schema.json", "_comment": "zero_optimisation is off on purpose"}}')
def misspelt_key_dropped(config: Config) -> Iterator[Finding]:
    """A key is misspelt or in the wrong section, where DeepSpeed silently ignores unknown keys.

    At the top level, and in the sections that it reads without a model, DeepSpeed looks up only the keys that it knows. With a misspelt
    `zero_optimization` it trains without ZeRO, with a misspelt `bf16` without mixed precision. There is no error and no warning.

    Where nothing is lost, the finding is an info: a misspelt key has the value that DeepSpeed uses without it, or a program of the project
    takes it out of a config. With `--pedantic` it is
    reported, too, if the key is right and only its place is not, its section is not enabled, DeepSpeed does not read it at the ZeRO stage
    of the config, it sets the loss scale in `bf16`, which has none, or the key is also written correctly, with the same value.

    Correct the spelling or move the key. dslint takes keys that begin with `_`, `$`, `//` or `comment` for notes and does not report them.
    """
    for violation in config.violations_of(ViolationKind.UNKNOWN_KEY, ViolationKind.MISPLACED_KEY):
        if violation.raises or violation.meant is None:
            continue
        if not is_read(config, dotted(violation.meant)):
            yield _unread_anywhere(config, violation)
            continue
        fatal = _leaves_no_batch_size(config, violation)
        is_off = _is_section_off(config, violation)
        same = says_the_same(config, violation.path, violation.meant)
        needless = is_loss_scaling_of_bf16(violation) and config.value("fp16.enabled") is not True
        harmless = is_off or same or needless or (not is_newer_release(config) and _is_default(config, violation))
        harmless = harmless or dotted(violation.meant) == model_dtype(config)  # the loader enables it
        harmless = harmless or (len(violation.path) == 1 and is_taken_by_program(config, str(violation.path[0])))
        message, phase = _crash(config, violation, fatal=fatal)
        if phase is not None:
            yield Finding(
                violation.path,
                f"{subject_of(config, violation)}{message}",
                help=_suggestion(violation),
                on="key",
                fix=corrected_key(config, violation),
                effect=Effect.CRASH,
                phase=phase,
            )
            continue
        yield Finding(
            violation.path,
            f"{subject_of(config, violation)}DeepSpeed silently ignores it"
            + (NO_BATCH_SIZE if fatal else _consequence(config, violation, is_off=is_off, needless=needless))
            + ".",
            help=_keep_one(config, violation) or _suggestion(violation),
            on="key",
            fix=corrected_key(config, violation),
            effect=Effect.CRASH if fatal else Effect.ADVICE if harmless else None,
            phase=Phase.PARSE if fatal else None,
            pedantic=not fatal and (is_off or same or needless or (harmless and violation.kind is ViolationKind.MISPLACED_KEY)),
            cause=None if harmless or config.has(violation.meant) else shared_cause(config, violation, "silently ignores them"),
        )


def _crash(config: Config, violation: Violation, *, fatal: bool) -> tuple[str, Phase | None]:
    """What raises because DeepSpeed ignores a key, and when: the loader, or else DeepSpeed. With `fatal`, no batch size is left for that."""
    if _leaves_no_zero_section(config, violation):
        assert config.facts.integration is not None
        message = f"{config.facts.integration.label} finds no section zero_optimization and raises "
        return message + '"Please specify the ZeRO optimization config in the DeepSpeed config".', Phase.LOAD
    if (raising := unfilled(config, violation)) is not None:
        return f"{raising}.", Phase.LOAD
    crash = config.crashes.get(violation.path) if not fatal else None
    return ("", None) if crash is None else (f"DeepSpeed ignores it. {crash.message}", crash.phase)


def _keep_one(config: Config, violation: Violation) -> str | None:
    """The help for a key that is also written correctly; None for any other."""
    assert violation.meant is not None
    return "Remove it, or write its value there." if config.has(violation.meant) else None


def _unread_anywhere(config: Config, violation: Violation) -> Finding:
    """The finding for a key that DeepSpeed would not read in the right place, either. Only a feature of ZeRO++ is lost, not a size."""
    assert violation.meant is not None
    off = ZEROPP_FEATURES.get(dotted(violation.meant), UNKNOWN)
    is_feature = off is not UNKNOWN and config.literal(violation.path) != off
    return Finding(
        violation.path,
        f"{subject_of(config, violation)}DeepSpeed silently ignores it. ZeRO stage {config.value(STAGE)} does not read "
        f"{violation.meant[-1]} in {dotted(violation.meant[:-1])}, either.",
        help=f'Move it to "{ZERO}", and set the stage to 3.' if is_feature else "Remove it.",
        on="key",
        fix=None if is_feature else without(config, violation.path),
        effect=Effect.IGNORED if is_feature else Effect.ADVICE,
        pedantic=not is_feature,
    )


def _is_default(config: Config, violation: Violation) -> bool:
    """Whether an ignored key has the value that DeepSpeed uses without it."""
    assert violation.meant is not None
    value, default = config.literal(violation.path), default_of(KEYS.get(dotted(violation.meant), {}), config.release)
    return (
        default is not None
        and default is not UNKNOWN
        and value == default
        and (value is False or isinstance(value, bool) is isinstance(default, bool))
    )


def _is_section_off(config: Config, violation: Violation) -> bool:
    """Whether the section of the key that was meant is written and not enabled: right or wrong, the key changes nothing."""
    assert violation.meant is not None
    section = dotted(violation.meant[:-1])
    enabled = f"{section}.enabled"
    return violation.meant[-1] != "enabled" and enabled in KEYS and config.has(section) and config.value(enabled) is False


def _leaves_no_batch_size(config: Config, violation: Violation) -> bool:
    """Whether the ignored key is the only batch size, without which DeepSpeed does not start."""
    return violation.meant in ((TRAIN,), (MICRO,)) and config.lacks(TRAIN) and config.lacks(MICRO)


def _leaves_no_zero_section(config: Config, violation: Violation) -> bool:
    """Whether the ignored key was to be the section for ZeRO, which the Hugging Face loaders require."""
    return violation.meant == (ZERO,) and is_loader_certain(config) and config.facts.passes_accelerate and config.lacks(ZERO)


NO_BATCH_SIZE = ', and raises "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"'


def _consequence(config: Config, violation: Violation, *, is_off: bool, needless: bool) -> str:
    """What DeepSpeed does instead, as the end of a sentence; empty where that is not known."""
    assert violation.meant is not None
    if is_off:
        return f", and {dotted(violation.meant[:-1])} is off"
    if needless:
        return ", and bf16 has no loss scale"
    key = dotted(violation.meant)
    if config.has(violation.meant):
        section = f"`{dotted(violation.meant[:-1])}`" if len(violation.meant) > 1 else "the top level"
        node = config.node(violation.meant)
        value = f" {config.quote(key)}" if isinstance(node, Scalar) else f' "{violation.meant[-1]}"'
        return f" and uses{value} in {section}"
    if key in ("bf16", "fp16"):
        dtype = model_dtype(config)
        return (
            f" and trains in {dtype}" if dtype in ("fp16", "bf16") else f" and does not enable {key}"
        )  # the program may load the model in it
    if key in CONSEQUENCES:
        return f" and {CONSEQUENCES[key]}"
    default = default_of(KEYS.get(key, {}), config.release)
    if default is UNKNOWN or isinstance(default, dict | list) or default is None:
        return ""
    return f" and uses {shown_value(default)}, the default of {violation.meant[-1]}"


CONSEQUENCES = {
    "zero_optimization": "trains without ZeRO",
    "zero_optimization.stage": "trains without ZeRO",
    "optimizer": "has no optimizer unless the program passes one",
    "scheduler": "keeps the learning rate constant unless the program passes a scheduler",
}
"""By ignored key: what DeepSpeed does without it."""
