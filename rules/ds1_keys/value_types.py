"""DS1: values that a key does not accept: wrong types, numbers out of range, unknown words, null."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config, Violation, ViolationKind
from dslint.config.coerce import is_kind
from dslint.config.sections import default_of
from dslint.diagnostics import Effect, LoadStep, Phase, SharedCause
from dslint.facts import Integration, Release
from dslint.rule import Finding, FixPlan, bad, good, rule, safe, unsafe
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import closest, without, write
from dslint.rules.helpers.intended_section import intended_value
from dslint.rules.helpers.json_syntax import PYTHON_WORDS, intended_json
from dslint.rules.helpers.loaders import HUGGING_FACE, releases_belong_together
from dslint.rules.helpers.messages import expected, raises, shown_value
from dslint.rules.helpers.offload import OFFLOAD_SECTIONS, to_nvme
from dslint.rules.helpers.parameters import RATES, lr_is_replaced
from dslint.rules.helpers.precision import model_dtype, steps_in_initialize
from dslint.schemas.derive import ACCUMULATION, MICRO
from dslint.schemas.key_table import KEYS
from dslint.source.change import Replace, Set
from dslint.source.tree import Scalar, is_float_literal, plain

DOCS = "https://www.deepspeed.ai/docs/config-json/"
MODEL = "deepspeed/runtime/config_utils.py, DeepSpeedConfigModel"
NO_WORDS = ("false", "no", "off", "none", "null", "never", "disabled", "auto", "f", "n")
"""Words that say no, and "auto", which leaves the choice to a loader."""

LONGEST_INTEGER = 10**15
"""Larger numbers are written with an exponent."""

SAFE_MODULES = "torch_autocast.lower_precision_safe_modules"
CONFIG_CLASS = "deepspeed/runtime/config.py, DeepSpeedConfig._initialize_params"


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
@good(f'{{{MINIMAL}, "torch_autocast": {{"enabled": false, "lower_precision_safe_modules": "torch.nn.Linear"}}}}')
def wrong_type(config: Config) -> Iterator[Finding]:
    """A value has a type that DeepSpeed cannot use.

    In sections with a pydantic model, DeepSpeed raises a `ValidationError` while parsing. A key without a model fails where DeepSpeed
    first uses the value, with an error such as `'>' not supported between instances of 'str' and 'int'` that names no key.

    Write numbers without quotes. `5e8` is valid for an integer.
    """
    for violation in _violations(config, ViolationKind.WRONG_TYPE):
        if violation.key.startswith("aio.") and not any(to_nvme(config, section) for section in OFFLOAD_SECTIONS):
            continue  # nothing reads the section, which another rule reports
        if violation.key == "steps_per_print" and config.facts.passes_accelerate:
            continue  # Accelerate overwrites it with infinity
        if violation.raises and violation.key in RATES and lr_is_replaced(config):
            scheduler = config.value("scheduler.type")
            message = f"DeepSpeed never uses {config.name_of(violation.path)} {config.quote(violation.path)}: {scheduler} sets the rate before the first step."
            yield Finding(violation.path, message, help="Write a number, or remove the key.", on="value", effect=Effect.IGNORED)
        elif violation.raises:
            word = _unquoted(config, violation)
            meant = (
                None if word else _without_comma(config, violation) or intended_value(config, violation) or _rounded_up(config, violation)
            )
            yield _rejected(
                config,
                violation,
                help=_without_quotes(config, violation)
                or _whole_number(config, violation)
                or _in_digits(config, violation)
                or (f"{meant.title[:1].upper()}{meant.title[1:]}." if meant else None),
                fix=safe(f"write {word}", Set(violation.path, word)) if word else meant,
            )


def _violations(config: Config, *kinds: ViolationKind) -> Iterator[Violation]:
    """The violations of these kinds in values that DeepSpeed reads, and that the release does not suppress."""
    autocast_is_off = config.value("torch_autocast.enabled") is False
    unreadable = {problem.span.start for problem in config.document.problems}
    for violation in config.violations_of(*kinds):
        node = config.node(violation.path)
        if node is not None and node.span.start in unreadable:
            continue  # the syntax error says it
        if violation.key == "data_types.buffer_dtype" and model_dtype(config) == "fp32":
            continue  # DeepSpeed reads it only with fp16 or bf16
        if violation.key == SAFE_MODULES and isinstance(config.literal(violation.path), str) and autocast_is_off:
            continue  # DeepSpeed imports the modules only with autocast
        raises_at_most = violation.raises or (violation.consequence is not None and violation.consequence[0] == "depends")
        if violation.key == "sequence_parallel_size" and raises_at_most and config.release < Release(0, 19, 3):
            continue  # DeepSpeed suppresses the error, and goes on with a world size of 1
        yield violation


def _rejected(config: Config, violation: Violation, *, help: str | None, fix: FixPlan | None = None) -> Finding:  # noqa: A002 - the name that Finding has
    """The finding for a value that makes DeepSpeed raise: what is written, what the key expects, the error and when it comes."""
    assert violation.consequence is not None
    _, phase, error = violation.consequence
    if phase == "step" and steps_in_initialize(config) and violation.key.startswith("optimizer.params."):
        phase = "initialize"
    since = KEYS.get(violation.section, {}).get("forbids_since")
    certain = since is None or releases_belong_together(config)
    outcome = f"DeepSpeed {'' if certain else f'from {since} on '}{raises(error, phase)}"
    if before := _loader_raises(config, violation):
        phase, outcome = "load", before
    return Finding(
        violation.path,
        f"{config.name_of(violation.path)} is {config.quote(violation.path)}{_in_yaml(config, violation)}; it expects {expected(violation.spec)}. "
        f"{outcome}.",
        help=help,
        on="value",
        fix=fix,
        cause=COMMAS if _ends_with_comma(config, violation) else None,
        phase=Phase(phase),
        certain=certain,
    )


def _loader_raises(config: Config, violation: Violation) -> str | None:
    """What a loader raises for a batch size that is text, before DeepSpeed reads it. At stage 3 DeepSpeed reads it when the model is loaded.

    Source: accelerate/accelerator.py, Accelerator._prepare_deepspeed, which divides since its release 1.12; before, the Trainer compares.
    """
    integration, text = config.facts.integration, config.literal(violation.path)
    if violation.key not in _FACTORS or not isinstance(text, str) or not config.value("zero_optimization.stage") < 3:
        return None
    if integration not in HUGGING_FACE or all(
        isinstance(config.literal((key,)), str) and config.literal((key,)) != "auto" for key in _FACTORS
    ):
        return None
    pinned = config.context.pinned("accelerate")
    if config.facts.passes_accelerate and (pinned is None or pinned >= Release(1, 12, 0)):
        return "Accelerate raises TypeError \"unsupported operand type(s) for //: 'str' and 'int'\" when it prepares the data"
    if integration is not Integration.TRANSFORMERS or violation.key != MICRO:
        return None
    return (
        'The Trainer raises "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: '
        f'- ds {MICRO}={text} vs hf per_device_train_batch_size=..."'
    )


_FACTORS = (MICRO, ACCUMULATION)
"""The keys that Accelerate multiplies for the train batch size."""


def _without_quotes(config: Config, violation: Violation) -> str | None:
    """The help for a number or a boolean in quotes, or for a value that includes the comma or the comment after it."""
    node = config.node(violation.path)
    if isinstance(node, Scalar) and (meant := intended_json(node)) is not None:
        return f"Write {meant}: a value without quotes runs to the end of the line."
    word = _unquoted(config, violation)
    if word and _in_yaml(config, violation):
        return f"Write {word}: PyYAML reads a number with an exponent only with a decimal point and a sign of the exponent."
    return f"Write {word} without quotes." if word else None


COMMAS = SharedCause(
    "commas in YAML",
    "{count} values end with a comma, which YAML reads as a part of the text: {keys}. DeepSpeed raises an error for the first of them.",
    "Remove the commas: in YAML only the lists and mappings in brackets have them.",
)


def _ends_with_comma(config: Config, violation: Violation) -> bool:
    node = config.node(violation.path)
    return isinstance(node, Scalar) and node.style == "yaml" and node.raw == node.value and str(node.value).endswith(",")


def _in_yaml(config: Config, violation: Violation) -> str:
    """What a message says of a number that YAML 1.1 reads as a string, such as 1e9; empty for every other value."""
    node = config.node(violation.path)
    is_plain = isinstance(node, Scalar) and node.style == "yaml" and node.raw == node.value
    return ", a string for PyYAML" if is_plain and _unquoted(config, violation) else ""


def _number_in_yaml(word: str, number: float, kinds: tuple[str, ...]) -> str:
    """A number as YAML 1.1 reads one: 1000000000 for 1e9, 6.0e-05 for 6e-5."""
    if number.is_integer() and abs(number) < LONGEST_INTEGER and ("int" in kinds or "e-" not in word.lower()):
        return str(int(number))
    mantissa, _, exponent = word.lower().partition("e")
    sign = "" if exponent.startswith(("+", "-")) else "+"
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}e{sign}{exponent}"


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
        and all(_is_json_number(part.strip()) for part in parts)
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


def _unquoted(config: Config, violation: Violation) -> str | None:
    """The number or boolean that is written in quotes; None for every other value."""
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
    if not any(is_kind(number, kind) for kind in kinds if kind in ("int", "float")) or not _is_json_number(word):
        return None
    is_plain = isinstance(node, Scalar) and node.style == "yaml" and node.raw == node.value
    return _number_in_yaml(word, number, kinds) if is_plain else word


def _is_json_number(word: str) -> bool:
    return re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", word) is not None


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
    for violation in _violations(config, ViolationKind.WRONG_TYPE, ViolationKind.NULL):
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
            fix=unsafe(f"write {word}", Set(violation.path, word)) if (word := _unquoted(config, violation)) else None,
            effect=Effect.ADVICE if harmless else Effect.IGNORED if isinstance(config.literal(violation.path), bool) else None,
            pedantic=harmless and not depends,
        )


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


SHORTEST_WARMUP = 2
"""The steps that DeepSpeed's schedules warm up for at least (deepspeed/runtime/lr_schedules.py, WarmupLR)."""


@rule(
    "DS106",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=(DOCS, MODEL),
    watches=("violation:out-of-range", "violation:forbidden"),
)
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "allgather_bucket_size": -1}}}}',
    at="zero_optimization.allgather_bucket_size",
    message="zero_optimization.allgather_bucket_size is -1; it expects an integer >= 0. DeepSpeed raises ValidationError while parsing.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "allgather_bucket_size": 5e8}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 0}',
    at="train_micro_batch_size_per_gpu",
    message='train_micro_batch_size_per_gpu is 0; it expects an integer > 0, or null. DeepSpeed raises AssertionError "Train batch size: 0 has to be greater than 0" while parsing.',
)
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 3}}}}')
def value_out_of_range(config: Config) -> Iterator[Finding]:
    """A number is outside the range that the key accepts.

    DeepSpeed checks most ranges while it parses the config and raises an error. Without a check, it fails where it first uses the number.

    Write a number in the range that the message gives, or remove the key to use its default.
    """
    for violation in _violations(config, ViolationKind.OUT_OF_RANGE, ViolationKind.FORBIDDEN):
        if violation.raises:
            accepted, why = _closest_accepted(config, violation)
            yield _rejected(
                config,
                violation,
                help=f"Write {shown_value(accepted)}{why}." if accepted is not None else _smallest(violation),
                fix=write(config, violation.path, shown_value(accepted)) if accepted is not None else None,
            )


def _smallest(violation: Violation) -> str | None:
    """What to write for a count without a default, such as a batch size; None for other keys."""
    return "Write 1 or more." if violation.spec.get("gt") == 0 and "int" in violation.spec["types"] else None


def _closest_accepted(config: Config, violation: Violation) -> tuple[int | float | None, str]:
    """A number that DeepSpeed accepts, and why that one; None if no number is known."""
    if str(violation.path[-1]).endswith("_num_steps") and config.literal(violation.path) == 0 and violation.spec.get("gt") == 0:
        return SHORTEST_WARMUP, ", the shortest warm-up"
    default = default_of(violation.spec, config.release)
    return (default, ", the default") if is_kind(default, "int") or is_kind(default, "float") else (None, "")


@rule(
    "DS107",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=(DOCS, MODEL),
    watches=("violation:not-a-choice",),
)
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 3, "offload_param": {{"device": "gpu"}}}}}}',
    at="zero_optimization.offload_param.device",
    message='zero_optimization.offload_param.device is "gpu"; it expects one of "none", "cpu", "nvme". DeepSpeed raises ValidationError while parsing.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "offload_param": {"device": "none"}}}',
)
@bad(
    f'{{{MINIMAL}, "communication_data_type": "float16"}}',
    at="communication_data_type",
    message='communication_data_type is "float16"; it expects one of "fp16", "bf16", "fp32" or null. DeepSpeed raises ValueError "Invalid communication_data_type. Supported data types: [\'fp16\', \'bf16\', \'fp32\']" while parsing.',
)
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 4}}}}',
    at="zero_optimization.stage",
    message="zero_optimization.stage is 4; it expects one of 0, 1, 2, 3. DeepSpeed raises ValidationError while parsing.",
)
@good(f'{{{MINIMAL}, "communication_data_type": "fp16"}}')
def not_a_choice(config: Config) -> Iterator[Finding]:
    """A value is not one of those that the key accepts.

    DeepSpeed compares the value with a fixed list and raises an error. For most keys the comparison is case-sensitive.

    Write one of the values that the message lists.
    """
    for violation in _violations(config, ViolationKind.NOT_A_CHOICE):
        if violation.raises:
            close = closest(config, violation)
            make_fix = unsafe if close == "none" else safe  # the writer of "gpu" may want another device than "none"
            fix = make_fix(f"write {shown_value(close)}", Set(violation.path, shown_value(close))) if close else None
            yield _rejected(config, violation, help=f'Did you mean "{close}"?' if close else None, fix=fix)


@rule(
    "DS108",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=(DOCS, MODEL, CONFIG_CLASS),
    watches=("violation:null",),
)
@bad(
    f'{{{MINIMAL}, "zero_optimization": null}}',
    at="zero_optimization",
    message='zero_optimization is null; it expects an object. DeepSpeed raises TypeError "deepspeed.runtime.zero.config.DeepSpeedZeroConfig() argument after ** must be a mapping, not NoneType" while parsing.',
    fixed='{"train_micro_batch_size_per_gpu": 4}',
)
@bad(
    f'{{{MINIMAL}, "gradient_clipping": null}}',
    at="gradient_clipping",
    message="gradient_clipping is null; it expects a number. DeepSpeed raises TypeError \"'>' not supported between instances of 'NoneType' and 'float'\" at the first step.",
    fixed='{"train_micro_batch_size_per_gpu": 4}',
)
@good(f'{{{MINIMAL}, "communication_data_type": null}}')
def null_value(config: Config) -> Iterator[Finding]:
    """A key is null where DeepSpeed requires a value.

    null does not mean "use the default": DeepSpeed takes it as the value, and raises an error where it cannot use it.

    Remove the key to use its default.
    """
    for violation in _violations(config, ViolationKind.NULL):
        if violation.raises:
            yield _rejected(config, violation, help="Remove the key to use its default.", fix=without(config, violation.path))
