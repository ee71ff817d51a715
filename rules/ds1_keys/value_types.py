"""DS1: values that are not what a key takes: their type, their range, their choices."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config, Violation
from dslint.config.coerce import is_kind
from dslint.config.validate import default_of
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.rule import Finding, FixPlan, bad, good, rule, safe, unsafe
from dslint.rules.helpers.fixes import closest, removed, write
from dslint.rules.helpers.json_syntax import intended_json
from dslint.rules.helpers.messages import expected, raises, shown_value
from dslint.rules.helpers.offload import to_nvme
from dslint.rules.helpers.parameters import RATES, lr_is_replaced
from dslint.source.change import Set
from dslint.source.tree import Node, Scalar, plain

MINIMAL = '"train_micro_batch_size_per_gpu": 4'


@rule("DS104", "wrong-type", effect=Effect.CRASH, phase=Phase.PARSE, watches=("violation:wrong-type",))
@bad('{"train_batch_size": "sixteen"}', at="train_batch_size")
@bad(f'{{{MINIMAL}, "zero_optimization": {{"stage": "three"}}}}', at="zero_optimization.stage")
@bad(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "reduce_bucket_size": "5e8"}}}}', at="zero_optimization.reduce_bucket_size")
@bad(f'{{{MINIMAL}, "zero_optimization": "stage2"}}', at="zero_optimization")
@bad(f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "betas": ["0.9", "0.999"]}}}}}}', at="optimizer.params.betas")
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "reduce_bucket_size": 5e8}}}}')
def wrong_type(config: Config) -> Iterator[Finding]:
    """A value of a type that DeepSpeed cannot use there.

    In sections with a pydantic model DeepSpeed raises a `ValidationError` while parsing. Keys that it reads by hand fail where the value is
    first used, with messages like `'>' not supported between instances of 'str' and 'int'` that name no key.

    Numbers want no quotes; `5e8` is fine for an integer.
    """
    for violation in config.violations_of("wrong-type"):
        if violation.key.startswith("aio.") and not any(to_nvme(config, block) for block in ("offload_optimizer", "offload_param")):
            continue  # nothing reads the section, which is a finding of its own
        if violation.key == "steps_per_print" and config.facts.integration in (Integration.TRANSFORMERS, Integration.ACCELERATE):
            continue  # Accelerate writes infinity over it
        if violation.raises and violation.key in RATES and lr_is_replaced(config):
            message = f"{violation.key} is {config.quote(violation.path)}, and is never used: {config.value('scheduler.type')} sets the rate before the first step."
            yield Finding(violation.path, message, help="Write a number, or leave it out.", on="value", effect=Effect.IGNORED)
        elif violation.raises:
            word = _unquoted(config, violation)
            yield _refused(
                config,
                violation,
                help=_without_quotes(config, violation),
                fix=safe(f"write {word}", Set(violation.path, word)) if word else None,
            )


def _refused(config: Config, violation: Violation, *, help: str | None, fix: FixPlan | None = None) -> Finding:  # noqa: A002 - the name that Finding has
    """The finding for a value that makes DeepSpeed raise: what is written, what the key takes, what is raised and when."""
    assert violation.consequence is not None
    _, phase, error = violation.consequence
    error = _as_raised(error, config.node(violation.path))
    return Finding(
        violation.path,
        f"{violation.key} is {config.quote(violation.path)}; it takes {expected(violation.spec)}. DeepSpeed {raises(error, phase)}.",
        help=help,
        on="value",
        fix=fix,
        phase=Phase(phase),
    )


def _as_raised(error: str, node: Node | None) -> str:
    """An error of the key table with the type and the length of what is written."""
    value = plain(node) if node is not None else None
    if "must be a mapping, not str" in error:
        return error.replace("not str", f"not {type(value).__name__}")
    if isinstance(value, list) and len(value) > 2:
        return error.replace("not enough values to unpack (expected 2, got 1)", "too many values to unpack (expected 2)")
    return error


def _without_quotes(config: Config, violation: Violation) -> str | None:
    """What to write for a number or a boolean that stands in quotes, or that took in what stands behind it."""
    node = config.node(violation.path)
    if isinstance(node, Scalar) and (meant := intended_json(node)) is not None:
        return f"Without quotes the value runs to the end of the line; write {meant}."
    word = _unquoted(config, violation)
    return f"Write {word} without quotes." if word else None


def _unquoted(config: Config, violation: Violation) -> str | None:
    """The number or boolean that stands in quotes."""
    node = config.node(violation.path)
    text = node.value if isinstance(node, Scalar) and intended_json(node) is None else None
    if not isinstance(text, str):
        return None
    word = text.strip()
    kinds = violation.spec["types"]
    if "bool" in kinds and word.lower() in ("true", "false"):
        return word.lower()
    try:
        number = float(word)
    except ValueError:
        return None
    return word if any(is_kind(number, kind) for kind in kinds if kind in ("int", "float")) and _is_json(word) else None


def _is_json(word: str) -> bool:
    return re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", word) is not None


@rule("DS105", "wrong-type-taken-otherwise", effect=Effect.SILENT, watches=("violation:wrong-type", "violation:null"))
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
        if isinstance(node, Scalar) and intended_json(node) is not None:
            continue  # swallowed-line says it
        if violation.consequence == ("truthy",):
            if violation.becomes is _meant(config, violation):
                continue
            outcome = f"DeepSpeed only asks whether it is empty, and takes it for {shown_value(violation.becomes)}"
        else:
            outcome = (violation.consequence[1] if violation.consequence else "") or "DeepSpeed does not check it"
        yield Finding(
            violation.path,
            f"{violation.key} is {config.quote(violation.path)}; it takes {expected(violation.spec)}. {outcome}.",
            help=_without_quotes(config, violation),
            on="value",
            fix=unsafe(f"write {word}", Set(violation.path, word)) if (word := _unquoted(config, violation)) else None,
        )


def _meant(config: Config, violation: Violation) -> bool | None:
    """What the writer of a value that is no boolean means by it, if it is plain: 1 and "true" mean true."""
    node = config.node(violation.path)
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, str):
        return True if value.lower() in ("true", "yes", "on", "1") else None
    return bool(value) if value in (0, 1) else None


@rule("DS106", "value-out-of-range", effect=Effect.CRASH, phase=Phase.PARSE, watches=("violation:out-of-range", "violation:forbidden"))
@bad(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "allgather_bucket_size": -1}}}}', at="zero_optimization.allgather_bucket_size")
@bad('{"train_micro_batch_size_per_gpu": 0}', at="train_micro_batch_size_per_gpu")
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 3}}}}')
def value_out_of_range(config: Config) -> Iterator[Finding]:
    """A number outside of what the key takes.

    DeepSpeed checks ranges while it parses the config and raises, or uses the number in a way that cannot work.
    """
    for violation in config.violations_of("out-of-range", "forbidden"):
        if violation.raises:
            default = default_of(violation.spec, config.release)
            known = is_kind(default, "int") or is_kind(default, "float")
            yield _refused(config, violation, help=None, fix=write(config, violation.path, shown_value(default)) if known else None)


@rule("DS107", "not-a-choice", effect=Effect.CRASH, phase=Phase.PARSE, watches=("violation:not-a-choice",))
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
    for violation in config.violations_of("not-a-choice"):
        if violation.raises:
            close = closest(config, violation)
            kind = unsafe if close == "none" else safe  # whoever writes "gpu" may mean something else
            fix = kind(f"write {shown_value(close)}", Set(violation.path, shown_value(close))) if close else None
            yield _refused(config, violation, help=f'Did you mean "{close}"?' if close else None, fix=fix)


@rule("DS108", "null-value", effect=Effect.CRASH, phase=Phase.PARSE, watches=("violation:null",))
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
            yield _refused(config, violation, help="Leave the key out to get its default.", fix=removed(violation.path))
