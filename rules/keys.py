"""DS1: keys and values that are not what DeepSpeed reads there.

The judging is done by the key table (`dslint/judge.py`); the rules here put it into words, one rule for each thing that DeepSpeed does.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.coerce import is_kind
from dslint.config import UNKNOWN, Config, Violation
from dslint.diagnostics import Effect, Phase, Severity
from dslint.facts import NEWEST
from dslint.judge import children, dotted
from dslint.rule import Finding, bad, good, rule
from dslint.rules.files import swallowed
from dslint.rules.wording import expected, literal, raises
from dslint.schemas.derive import MICRO, TRAIN
from dslint.schemas.key_table import KEYS
from dslint.source.tree import Scalar

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
    if violation.kind == "misplaced-key":
        return (
            f"It belongs in `{dotted(violation.meant[:-1])}`."
            if len(violation.meant) > 1
            else f'"{violation.meant[0]}" is a key of the top level.'
        )
    return f'Did you mean "{violation.meant[-1]}"?'


@rule("DS101", "unknown-key-refused", effect=Effect.CRASH, phase=Phase.PARSE, references=(DOCS,))
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
                severity=_may_be_new(config),
            )


@rule("DS102", "misspelt-key-dropped", effect=Effect.SILENT, references=(DOCS,))
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
    return f", and uses {literal(default)}, the default of {violation.meant[-1]}"


LOST = {
    "zero_optimization": "trains without ZeRO",
    "zero_optimization.stage": "trains without ZeRO",
    "bf16": "trains in fp32",
    "fp16": "trains in fp32",
    "optimizer": "has no optimizer unless the program brings one",
    "scheduler": "keeps the learning rate constant unless the program brings a scheduler",
}


@rule("DS103", "unknown-key-ignored", effect=Effect.IGNORED, references=(DOCS,))
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
            )


@rule("DS104", "wrong-type", effect=Effect.CRASH, phase=Phase.PARSE)
@bad('{"train_batch_size": "sixteen"}', at="train_batch_size")
@bad(f'{{{MINIMAL}, "zero_optimization": {{"stage": "three"}}}}', at="zero_optimization.stage")
@bad(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "reduce_bucket_size": "5e8"}}}}', at="zero_optimization.reduce_bucket_size")
@bad(f'{{{MINIMAL}, "zero_optimization": "stage2"}}', at="zero_optimization")
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "reduce_bucket_size": 5e8}}}}')
def wrong_type(config: Config) -> Iterator[Finding]:
    """A value of a type that DeepSpeed cannot use there.

    In sections with a pydantic model DeepSpeed raises a `ValidationError` while parsing. Keys that it reads by hand fail where the value is
    first used, with messages like `'>' not supported between instances of 'str' and 'int'` that name no key.

    Numbers want no quotes; `5e8` is fine for an integer.
    """
    for violation in config.violations_of("wrong-type"):
        if violation.raises:
            yield _refused(config, violation, help=_unquoted(config, violation))


def _refused(config: Config, violation: Violation, *, help: str | None) -> Finding:  # noqa: A002 - the name that Finding has
    """The finding for a value that makes DeepSpeed raise: what is written, what the key takes, what is raised and when."""
    assert violation.consequence is not None
    _, phase, error = violation.consequence
    return Finding(
        violation.path,
        f"{violation.key} is {config.quote(violation.path)}; it takes {expected(violation.spec)}. DeepSpeed {raises(error, phase)}.",
        help=help,
        on="value",
        phase=Phase(phase),
    )


def _unquoted(config: Config, violation: Violation) -> str | None:
    """How to write a number or a boolean that stands in quotes."""
    node = config.node(violation.path)
    text = node.value if isinstance(node, Scalar) else None
    if not isinstance(node, Scalar) or not isinstance(text, str):
        return None
    if (meant := swallowed(node)) is not None:
        return f"Without quotes the value runs to the end of the line; write {meant}."
    word = text.strip()
    kinds = violation.spec["types"]
    if "bool" in kinds and word.lower() in ("true", "false"):
        return f"Write {word.lower()} without quotes."
    try:
        number = float(word)
    except ValueError:
        return None
    return f"Write {word} without quotes." if any(is_kind(number, kind) for kind in kinds if kind in ("int", "float")) else None


@rule("DS105", "wrong-type-taken-otherwise", effect=Effect.SILENT)
@bad(f'{{{MINIMAL}, "prescale_gradients": "false"}}', at="prescale_gradients")
@bad('{"train_micro_batch_size_per_gpu": 2.5}', at="train_micro_batch_size_per_gpu")
@good(f'{{{MINIMAL}, "prescale_gradients": false}}')
def wrong_type_taken_otherwise(config: Config) -> Iterator[Finding]:
    """A value of the wrong type that DeepSpeed takes for something else.

    Keys that DeepSpeed reads by hand are used as they stand. As a condition any non-empty string is true, "false" and "off" too; as a
    number `true` counts as 1, and 2.5 accumulation steps are computed with. No error, no warning.

    Write `true` and `false` without quotes, and whole numbers where things are counted.
    """
    for violation in config.violations_of("wrong-type", "null"):
        if violation.raises or (violation.kind == "null" and violation.consequence != ("truthy",)):
            continue
        node = config.node(violation.path)
        if isinstance(node, Scalar) and swallowed(node) is not None:
            continue  # swallowed-line says it
        if violation.consequence == ("truthy",):
            if violation.becomes is _meant(config, violation):
                continue
            outcome = f"DeepSpeed only asks whether it is empty, and takes it for {literal(violation.becomes)}"
        else:
            outcome = (violation.consequence[1] if violation.consequence else "") or "DeepSpeed does not check it"
        yield Finding(
            violation.path,
            f"{violation.key} is {config.quote(violation.path)}; it takes {expected(violation.spec)}. {outcome}.",
            help=_unquoted(config, violation),
            on="value",
        )


def _meant(config: Config, violation: Violation) -> bool | None:
    """What the writer of a value that is no boolean means by it, if it is plain: 1 and "true" mean true."""
    node = config.node(violation.path)
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, str):
        return True if value.lower() in ("true", "yes", "on", "1") else None
    return bool(value) if value in (0, 1) else None


@rule("DS106", "value-out-of-range", effect=Effect.CRASH, phase=Phase.PARSE)
@bad(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "allgather_bucket_size": -1}}}}', at="zero_optimization.allgather_bucket_size")
@bad('{"train_micro_batch_size_per_gpu": 0}', at="train_micro_batch_size_per_gpu")
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 3}}}}')
def value_out_of_range(config: Config) -> Iterator[Finding]:
    """A number outside of what the key takes.

    DeepSpeed checks ranges while it parses the config and raises, or uses the number in a way that cannot work.
    """
    for violation in config.violations_of("out-of-range", "forbidden"):
        if violation.raises:
            yield _refused(config, violation, help=None)


@rule("DS107", "not-a-choice", effect=Effect.CRASH, phase=Phase.PARSE)
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 3, "offload_param": {{"device": "gpu"}}}}}}', at="zero_optimization.offload_param.device"
)
@bad(f'{{{MINIMAL}, "communication_data_type": "float16"}}', at="communication_data_type")
@bad(f'{{{MINIMAL}, "zero_optimization": {{"stage": 4}}}}', at="zero_optimization.stage")
@good(f'{{{MINIMAL}, "communication_data_type": "fp16"}}')
def not_a_choice(config: Config) -> Iterator[Finding]:
    """A word that is not one of those the key takes.

    DeepSpeed compares the word with a fixed list, in most keys to the letter, and raises.
    """
    from difflib import get_close_matches

    for violation in config.violations_of("not-a-choice"):
        if violation.raises:
            node = config.node(violation.path)
            word = node.value if isinstance(node, Scalar) else None
            words = [choice for choice in (*violation.spec.get("choices", ()), *violation.spec.get("words", ())) if isinstance(choice, str)]
            close = get_close_matches(word.lower(), words, n=1) if isinstance(word, str) else []
            yield _refused(config, violation, help=f'Did you mean "{close[0]}"?' if close else None)


@rule("DS108", "null-value", effect=Effect.CRASH, phase=Phase.PARSE)
@bad(f'{{{MINIMAL}, "zero_optimization": null}}', at="zero_optimization")
@bad(f'{{{MINIMAL}, "gradient_clipping": null}}', at="gradient_clipping")
@good(f'{{{MINIMAL}, "communication_data_type": null}}')
def null_value(config: Config) -> Iterator[Finding]:
    """Null where DeepSpeed needs a value.

    null does not mean "use the default": DeepSpeed takes it as a value, and raises where it cannot use it.

    Leave the key out to get its default.
    """
    for violation in config.violations_of("null"):
        if violation.raises:
            yield _refused(config, violation, help="Leave the key out to get its default.")


@rule("DS109", "removed-key", effect=Effect.CRASH, phase=Phase.PARSE, references=("https://github.com/deepspeedai/DeepSpeed/issues/8489",))
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
        yield Finding(
            violation.path,
            f"DeepSpeed {config.release} refuses a config that has {violation.key}, whatever its value: the feature was removed after {until['release']}.",
            help=" ".join(
                filter(None, ("Remove it.", until.get("note"), f"`{until['use']}` does the job now." if until.get("use") else None))
            ),
            on="key",
        )


@rule("DS110", "dead-key", effect=Effect.IGNORED)
@bad(f'{{{MINIMAL}, "aio": {{"thread_count": 4}}}}', at="aio.thread_count")
@good(f'{{{MINIMAL}, "aio": {{"intra_op_parallelism": 4}}}}')
def dead_key(config: Config) -> Iterator[Finding]:
    """A key that older releases read and this one drops without a word.

    The feature it belonged to is gone, or found another name. Nothing is raised, and the setting does nothing.

    Use the key that replaces it, or remove it.
    """
    for violation in config.violations_of("dead"):
        until = violation.spec["until"]
        yield Finding(
            violation.path,
            f"{violation.key} was read up to DeepSpeed {until['release']}; {config.release} drops it without a word.",
            help=" ".join(filter(None, (f"Use `{until['use']}`." if until.get("use") else "Remove it.", until.get("note")))),
            on="key",
        )


@rule("DS111", "deprecated-key", effect=Effect.ADVICE)
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
            effect=None if mapped else Effect.IGNORED,
        )


@rule("DS112", "key-too-new", effect=Effect.IGNORED)
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
            on="key",
            effect=Effect.CRASH if violation.raises else None,
            phase=Phase.PARSE if violation.raises else None,
        )


@rule("DS113", "key-given-twice", effect=Effect.CRASH, phase=Phase.PARSE)
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
        )


@rule(
    "DS114",
    "replaced-beside-deprecated",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("deepspeed/runtime/config_utils.py, DeepSpeedConfigModel",),
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
            )


def _is_written(config: Config, key: str) -> bool:
    """Whether a key stands in the file, under any of its names, with a value that DeepSpeed does not drop."""
    parent, _, name = key.rpartition(".")
    paths = [f"{parent}.{other}".strip(".") for other in (name, *KEYS.get(key, {}).get("also", ()))]
    return any(config.has(path) and config.quote(path) != '"auto"' for path in paths)


@rule("DS115", "key-shadowed", effect=Effect.IGNORED)
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
        )
