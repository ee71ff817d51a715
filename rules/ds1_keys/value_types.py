"""DS1: values of a wrong type."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config, Violation, ViolationKind
from dslint.diagnostics import Effect, LoadStep, Phase
from dslint.rule import Finding, FixPlan, bad, good, rule, safe, unsafe
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.intended_section import intended_value
from dslint.rules.helpers.json_syntax import PYTHON_WORDS, intended_json
from dslint.rules.helpers.messages import expected, shown_value
from dslint.rules.helpers.offload import OFFLOAD_SECTIONS, to_nvme
from dslint.rules.helpers.parameters import RATES, lr_is_replaced
from dslint.rules.helpers.violations import (
    CONFIG_CLASS,
    DOCS,
    LONGEST_INTEGER,
    MODEL,
    in_yaml,
    is_json_number,
    read_violations,
    rejected,
    unquoted,
)
from dslint.source.change import Replace, Set
from dslint.source.tree import Scalar, is_float_literal, plain

NO_WORDS = ("false", "no", "off", "none", "null", "never", "disabled", "auto", "f", "n")
"""Words that say no, and "auto", which leaves the choice to a loader."""


@rule(
    "DS104",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    step=LoadStep.TRAINER,
    references=(DOCS, MODEL, CONFIG_CLASS),
    watches=("violation:wrong-type",),
)
@bad(
    '{"train_batch_size": "sixteen"}',
    at="train_batch_size",
    message="train_batch_size is \"sixteen\"; it expects an integer > 0, or null. DeepSpeed raises TypeError \"unsupported operand type(s) for //: 'str' and 'int'\" while parsing.",
)
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": "three"}}}}',
    at="zero_optimization.stage",
    message='zero_optimization.stage is "three"; it expects one of 0, 1, 2, 3. DeepSpeed raises ValidationError while parsing.',
)
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "reduce_bucket_size": "5e8"}}}}',
    at="zero_optimization.reduce_bucket_size",
    message='zero_optimization.reduce_bucket_size is "5e8"; it expects an integer > 0. DeepSpeed raises ValidationError while parsing.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}}',
)
@bad(
    f'{{{MINIMAL}, "zero_optimization": "stage2"}}',
    at="zero_optimization",
    message='zero_optimization is "stage2"; it expects an object. DeepSpeed raises TypeError "deepspeed.runtime.zero.config.DeepSpeedZeroConfig() argument after ** must be a mapping, not str" while parsing.',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "betas": ["0.9", "0.999"]}}}}}}',
    at="optimizer.params.betas",
    message='optimizer.params.betas is ["0.9", "0.999"]; it expects a list of 2 numbers. DeepSpeed raises TypeError at the first step.',
)
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "reduce_bucket_size": 5e8}}}}')
@good(
    '{"train_micro_batch_size_per_gpu": [1, 2], "autotuning": {"enabled": true, "fast": false}, "zero_optimization": {"stage": [0, 1]}}',
    launch="deepspeed --autotuning run train.py --deepspeed_config ds_config.json\n",
)
@good(f'{{{MINIMAL}, "torch_autocast": {{"enabled": false, "lower_precision_safe_modules": "torch.nn.Linear"}}}}')
def wrong_type(config: Config) -> Iterator[Finding]:
    """A value has a type that DeepSpeed cannot use.

    In sections with a pydantic model, DeepSpeed raises a `ValidationError` while parsing. A key without a model fails where DeepSpeed
    first uses the value, with an error such as `'>' not supported between instances of 'str' and 'int'` that names no key.

    Write numbers without quotes. `5e8` is valid for an integer.
    """
    for violation in read_violations(config, ViolationKind.WRONG_TYPE):
        if violation.key.startswith("aio.") and not any(to_nvme(config, section) for section in OFFLOAD_SECTIONS):
            continue  # nothing reads the section, which another rule reports
        if violation.key == "steps_per_print" and config.facts.passes_accelerate:
            continue  # Accelerate overwrites it with infinity
        if violation.raises and violation.key in RATES and lr_is_replaced(config):
            scheduler = config.value("scheduler.type")
            message = f"DeepSpeed never uses {config.name_of(violation.path)} {config.quote(violation.path)}: {scheduler} sets the rate before the first step."
            yield Finding(violation.path, message, help="Write a number, or remove the key.", on="value", effect=Effect.IGNORED)
        elif violation.raises:
            word = unquoted(config, violation)
            meant = (
                None if word else _without_comma(config, violation) or intended_value(config, violation) or _rounded_up(config, violation)
            )
            yield rejected(
                config,
                violation,
                help=_without_quotes(config, violation)
                or _whole_number(config, violation)
                or _in_digits(config, violation)
                or (f"{meant.title[:1].upper()}{meant.title[1:]}." if meant else None),
                fix=safe(f"write {word}", Set(violation.path, word)) if word else meant,
            )


def _without_quotes(config: Config, violation: Violation) -> str | None:
    """The help for a number or a boolean in quotes, or for a value that includes the comma or the comment after it."""
    node = config.node(violation.path)
    if isinstance(node, Scalar) and (meant := intended_json(node)) is not None:
        if meant.startswith('"') and "str" not in violation.spec["types"]:
            return f"Replace {meant[1:-1]} with {expected(violation.spec)}."  # a placeholder, which quotes do not make a number
        return f"Write {meant}: a value without quotes runs to the end of the line."
    word = unquoted(config, violation)
    if word and in_yaml(config, violation):
        return f"Write {word}: PyYAML reads a number with an exponent only with a decimal point and a sign of the exponent."
    return f"Write {word} without quotes." if word else None


def _whole_number(config: Config, violation: Violation) -> str | None:
    """The help for a fraction where an integer is expected."""
    default = violation.spec.get("default")
    fraction = isinstance(config.literal(violation.path), float) and "float" not in violation.spec["types"]
    return f"Write an integer; the default is {shown_value(default)}." if fraction and isinstance(default, int) else None


UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9}
"""What people mean by the letter after a count: the size of a bucket is a number of elements, not of bytes."""


def _in_digits(config: Config, violation: Violation) -> str | None:
    """The help for a text that says one number with a unit, as in "500M", or several, as in "0.9,0.999"."""
    text = config.literal(violation.path)
    if not isinstance(text, str):
        return None
    counted = re.fullmatch(r"\s*(\d+(?:[_,]\d{3})*(?:\.\d+)?)\s*([kmbg]?)\s*", text, re.IGNORECASE)
    if counted is not None and "int" in violation.spec["types"]:
        number = float(re.sub("[_,]", "", counted[1])) * UNITS[counted[2].lower()]
        return f"Write {int(number)}." if number.is_integer() and number < LONGEST_INTEGER else None
    parts = text.strip().strip("[]()").split(",")
    if (
        "list" in violation.spec["types"]
        and len(parts) == violation.spec.get("length")
        and all(is_json_number(part.strip()) for part in parts)
    ):
        return f"Write [{', '.join(part.strip() for part in parts)}]."
    return None


def _rounded_up(config: Config, violation: Violation) -> FixPlan | None:
    """Write the integer above a fraction below 1, where 1 is the default: 1 for a smallest loss scale of 0.5."""
    fraction = config.literal(violation.path)
    if not isinstance(fraction, float) or not 0 < fraction < 1 or violation.spec.get("default") != 1 or violation.spec["types"] != ("int",):
        return None
    return write(config, violation.path, "1")


def _without_comma(config: Config, violation: Violation) -> FixPlan | None:
    """Write the JSON of a Python word that is read together with the comma after it, and keep the comma."""
    node = config.node(violation.path)
    word = intended_json(node) if isinstance(node, Scalar) else None
    if not isinstance(node, Scalar) or word not in PYTHON_WORDS.values() or not str(node.value).endswith(","):
        return None
    return safe(f"write {word}", Replace(node.span, f"{word},"))


@rule(
    "DS105",
    effect=Effect.SILENT,
    references=(DOCS, CONFIG_CLASS),
    watches=("violation:wrong-type", "violation:null"),
)
@bad(
    f'{{{MINIMAL}, "prescale_gradients": "false"}}',
    at="prescale_gradients",
    message='prescale_gradients is "false"; it expects true or false. DeepSpeed only tests whether it is empty, and reads it as true.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "prescale_gradients": false}',
)
@bad(
    f'{{{MINIMAL}, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-4, "torch_adam": "torch_impl"}}}}}}',
    at="optimizer.params.torch_adam",
    message='optimizer.params.torch_adam is "torch_impl"; it expects true or false. DeepSpeed only tests whether it is empty, and reads it as true.',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 2.5}',
    at="train_micro_batch_size_per_gpu",
    message="train_micro_batch_size_per_gpu is 2.5; it expects an integer > 0, or null. DeepSpeed does not check it and uses it as written.",
)
@good(f'{{{MINIMAL}, "prescale_gradients": false}}')
def wrong_type_misread(config: Config) -> Iterator[Finding]:
    """A value of the wrong type that DeepSpeed accepts and reads as another value.

    DeepSpeed does not check the types of keys without a pydantic model. As a condition, every non-empty string is true, "false" and "off"
    included. As a number, `true` counts as 1, and DeepSpeed computes with 2.5 accumulation steps. There is no error and no warning.

    A word that DeepSpeed reads as the true that it plainly stands for is reported only with `--pedantic`, and so is a boolean that counts as the default
    of a number, such as `"gradient_clipping": true`; for other numbers a boolean is a warning. A value that DeepSpeed rejects only in a dict is an info
    while it is unknown whether the program passes a dict or the path of the file.

    Write `true` and `false` without quotes, and whole numbers for counts.
    """
    for violation in read_violations(config, ViolationKind.WRONG_TYPE, ViolationKind.NULL):
        if violation.raises or (violation.kind is ViolationKind.NULL and violation.consequence != ("truthy",)):
            continue
        node = config.node(violation.path)
        if isinstance(node, Scalar) and intended_json(node) is not None:
            continue  # DS005 reports it
        if violation.key == "checkpoint.writer.io_buffer_size":
            continue  # DS864 reports it
        depends = violation.consequence is not None and violation.consequence[0] == "depends"
        if violation.consequence == ("truthy",):
            if violation.becomes is _meant_boolean(config, violation):
                continue
            outcome = f"DeepSpeed only tests whether it is empty, and reads it as {shown_value(violation.becomes)}"
            harmless = violation.becomes is True and _is_plain_word(config, violation)
        else:
            harmless = depends or _is_default_as_number(config, violation)
            outcome = (violation.consequence[1] if violation.consequence else "") or "DeepSpeed does not check it"
        yield Finding(
            violation.path,
            f"{config.name_of(violation.path)} is {config.quote(violation.path)}; it expects {expected(violation.spec)}. {outcome[:1].upper()}{outcome[1:]}.",
            help=_without_quotes(config, violation) or (_as_integer(config, violation) if depends else None) or _plainly(config, violation),
            on="value",
            fix=unsafe(f"write {word}", Set(violation.path, word)) if (word := unquoted(config, violation)) else None,
            effect=Effect.ADVICE if harmless else Effect.IGNORED if _is_used_as_number(config, violation) else None,
            pedantic=harmless and not depends,
        )


def _is_used_as_number(config: Config, violation: Violation) -> bool:
    """Whether a boolean counts as a number, or an older release computes with a fraction where later ones insist on an integer."""
    written = config.literal(violation.path)
    return isinstance(written, bool) or (isinstance(written, float) and "exact_int" in violation.spec)


def _is_default_as_number(config: Config, violation: Violation) -> bool:
    """Whether a boolean counts as a number that is the default of the key, in this release or in another one."""
    defaults = (violation.spec.get("default"), *(value for _, value in violation.spec.get("defaults", ())))
    return isinstance(config.literal(violation.path), bool) and config.literal(violation.path) in defaults


def _plainly(config: Config, violation: Violation) -> str:
    """The help for a value that DeepSpeed reads as another one."""
    if violation.becomes is True and _is_plain_word(config, violation):
        return "Write true."
    if _is_default_as_number(config, violation):
        return f"Write {int(config.literal(violation.path))}."
    return f"Write {expected(violation.spec)}."


def _as_integer(config: Config, violation: Violation) -> str | None:
    """The help for a number like `1e3` that has to be an integer."""
    node = config.node(violation.path)
    return f"Write {plain(node)}." if node is not None and is_float_literal(node) else None


def _is_plain_word(config: Config, violation: Violation) -> bool:
    """Whether the value is a word that names something to use, such as "torch_impl", and does not say no."""
    node = config.node(violation.path)
    value = node.value if isinstance(node, Scalar) else None
    return isinstance(value, str) and value.isidentifier() and value.lower() not in NO_WORDS


def _meant_boolean(config: Config, violation: Violation) -> bool | None:
    """The boolean that the writer of another value plainly meant: 1 and "true" mean true. None where that is not plain."""
    node = config.node(violation.path)
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, str):
        return True if value.lower() in ("true", "yes", "on", "1") else None
    return bool(value) if value in (0, 1) else None
