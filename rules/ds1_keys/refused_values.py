"""DS1: values of a right type that a key does not accept: numbers out of range, unknown words, null."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config, Violation, ViolationKind
from dslint.config.coerce import is_kind
from dslint.config.sections import default_of
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule, safe, unsafe
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import closest, without, write
from dslint.rules.helpers.messages import shown_value
from dslint.rules.helpers.violations import CONFIG_CLASS, DOCS, MODEL, read_violations, rejected
from dslint.source.change import Set

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
    for violation in read_violations(config, ViolationKind.OUT_OF_RANGE, ViolationKind.FORBIDDEN):
        if violation.raises:
            accepted, why = _closest_accepted(config, violation)
            yield rejected(
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
    f'{{{MINIMAL}, "communication_data_type": "bf16"}}',
    at="communication_data_type",
    deepspeed="0.14.0",
    message='communication_data_type is "bf16"; it expects one of "fp16", "bfp16", "fp32" or null. DeepSpeed raises ValueError "Invalid communication_data_type. Supported data types: [\'fp16\', \'bfp16\', \'fp32\']" while parsing.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "communication_data_type": "bfp16"}',
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
    for violation in read_violations(config, ViolationKind.NOT_A_CHOICE):
        if violation.raises:
            close = closest(config, violation)
            make_fix = unsafe if close == "none" else safe  # the writer of "gpu" may want another device than "none"
            fix = make_fix(f"write {shown_value(close)}", Set(violation.path, shown_value(close))) if close else None
            yield rejected(config, violation, help=f'Did you mean "{close}"?' if close else None, fix=fix)


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
    for violation in read_violations(config, ViolationKind.NULL):
        if violation.raises:
            yield rejected(config, violation, help="Remove the key to use its default.", fix=without(config, violation.path))
