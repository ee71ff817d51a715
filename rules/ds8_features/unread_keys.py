"""DS8: keys that DeepSpeed parses and never uses in training."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.config.sections import default_of
from dslint.diagnostics import Effect
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import without
from dslint.rules.helpers.messages import PIPELINE
from dslint.rules.helpers.project import is_taken_by_program, programs_of
from dslint.schemas.key_table import KEYS
from dslint.source.tree import Mapping

UNREAD = {
    "pipeline.stages": "PipelineModule takes the number of stages as its argument num_stages",
    "pipeline.partition": "PipelineModule divides the layers by its argument partition_method",
    "pipeline.seed_layers": "PipelineModule takes seed_layers as an argument",
    "vocabulary_size": "DeepSpeed only warns if it is not a multiple of 8",
    "disable_allgather": "no release since 0.2.0 reads it",
}
"""Keys that DeepSpeed parses and does not use, with what decides instead."""

ALLGATHER_SIZE = "allgather_size"
"""Read only where `zero_optimization` is a bare true, the oldest form."""

_NO_BARE_TRUE = "DeepSpeed reads it only if zero_optimization is true, without braces"

ADVICE = {
    ALLGATHER_SIZE: 'Write "allgather_bucket_size" in zero_optimization.',
    "pipeline.stages": "Pass num_stages={value} to PipelineModule, and remove it.",
    "pipeline.partition": "Pass partition_method={value} to PipelineModule, and remove it.",
}
"""What to write instead of one of the keys; the others are only removed."""

HARMLESS = ("pipeline.seed_layers", "vocabulary_size", "disable_allgather")
"""Those of the keys that, ignored, do not change what is trained, or on which ranks."""


@rule(
    "DS855",
    effect=Effect.IGNORED,
    watches=(*UNREAD, ALLGATHER_SIZE),
    references=(
        "deepspeed/runtime/config.py",
        "deepspeed/runtime/zero/config.py, read_zero_config_deprecated",
        "deepspeed/runtime/pipe/module.py, PipelineModule",
    ),
)
@bad(
    f'{{{MINIMAL}, "pipeline": {{"stages": 4}}}}',
    at="pipeline.stages",
    message="pipeline.stages 4 has no effect: PipelineModule takes the number of stages as its argument num_stages.",
)
@bad(
    f'{{{MINIMAL}, "vocabulary_size": 50257}}',
    at="vocabulary_size",
    message="vocabulary_size 50257 has no effect: DeepSpeed only warns if it is not a multiple of 8.",
    fixed='{"train_micro_batch_size_per_gpu": 4}',
)
@bad(
    f'{{{MINIMAL}, "disable_allgather": true}}',
    at="disable_allgather",
    message="disable_allgather true has no effect: no release since 0.2.0 reads it.",
    fixed='{"train_micro_batch_size_per_gpu": 4}',
)
@bad(
    f'{{{MINIMAL}, "allgather_size": 200000000, "zero_optimization": {{"stage": 2}}}}',
    at="allgather_size",
    message="allgather_size 200000000 has no effect: DeepSpeed reads it only if zero_optimization is true, without braces.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
)
@good(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "allgather_bucket_size": 200000000}}}}')
@good(f'{{{MINIMAL}, "pipeline": {{"activation_checkpoint_interval": 1}}, "disable_allgather": false}}')
@good(
    f'{{{MINIMAL}, "pipeline": {{"stages": 4}}}}',
    program='def build(config, layers):\n    return PipelineModule(layers, num_stages=config["pipeline"]["stages"])\n',
)
def key_without_a_reader(config: Config) -> Iterator[Finding]:
    """DeepSpeed accepts this key but never uses its value.

    Keys such as `pipeline.stages` look as if they configured a pipeline. The program does that, with `PipelineModule` and its arguments. The
    keys that change nothing important when DeepSpeed ignores them, such as `vocabulary_size`, are reported only with `--pedantic`.

    Remove the key, and set the value where it is read. dslint reports nothing where a program of the project reads the key itself.
    """
    unread = {**UNREAD, **({ALLGATHER_SIZE: _NO_BARE_TRUE} if config.literal("zero_optimization") is not True else {})}
    for key, reason in unread.items():
        if not config.has(key) or config.is_null(key) or config.is_auto(key) or config.literal(key) is False:
            continue
        if any(violation.path == tuple(key.split(".")) for violation in config.violations):
            continue
        if is_taken_by_program(config, key.partition(".")[0]):
            continue  # its value may reach PipelineModule, or a model
        harmless = key in HARMLESS or config.value(key) == default_of(KEYS[key], config.release)
        advice = ADVICE.get(key, "Remove it.").format(value=config.quote(key))
        yield Finding(
            key,
            f"{key} {config.quote(key)} has no effect: {reason}.",
            help=advice,
            fix=None if key in ADVICE and key != ALLGATHER_SIZE else without(config, key),
            effect=Effect.ADVICE if harmless else None,
            pedantic=harmless,
            cause=PIPELINE if key.startswith("pipeline.") else None,
        )


@rule(
    "DS856",
    effect=Effect.IGNORED,
    watches=("weight_quantization",),
    references=("deepspeed/runtime/zero/partition_parameters.py, Init",),
)
@bad(
    f'{{{MINIMAL}, "weight_quantization": {{"enabled": true, "num_bits": 8}}}}',
    at="weight_quantization",
    message="Training ignores enabled, num_bits in weight_quantization and reads only quantized_initialization: no weight is quantized.",
)
@good(f'{{{MINIMAL}, "weight_quantization": {{"quantized_initialization": {{"num_bits": 8}}}}}}')
@good(
    f'{{{MINIMAL}, "weight_quantization": {{"post_init_quant": {{"mlp": {{"num_bits": 4}}}}}}}}',
    program="model = _init_group_wise_weight_quantization(model, ds_config)\nengine, *_ = deepspeed.initialize(model=model, config=ds_config)\n",
)
def weight_quantization_not_read(config: Config) -> Iterator[Finding]:
    """Training reads only `quantized_initialization` from `weight_quantization`.

    `zero.Init` uses it to build a quantized model. `enabled`, `num_bits`, `q_type`, `q_groups` and `post_init_quant` are for inference: in
    training they quantize nothing.

    Move the settings to `quantized_initialization`, or remove the section.
    """
    node = config.node("weight_quantization")
    if not isinstance(node, Mapping) or config.release < Release(0, 19, 0) or config.has("weight_quantization.quantized_initialization"):
        return
    names = [member.key.value for member in node.members]
    if names and not any(violation.path[:1] == ("weight_quantization",) for violation in config.violations):
        if any("_init_group_wise_weight_quantization(" in text for text in programs_of(config)):
            return
        yield Finding(
            "weight_quantization",
            f"Training ignores {', '.join(names)} in weight_quantization and reads only quantized_initialization: no weight is quantized.",
            help='Write "quantized_initialization": {...}, or remove the section.',
            on="key",
        )
