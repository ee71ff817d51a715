"""DS8: data efficiency. Its features are in curriculum_learning.py and random_ltd.py."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config, Origin
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.data_efficiency import CURRICULUM, DATA_EFFICIENCY_DOCS, DYNAMIC_BATCHING, RANDOM_LTD, SCHEDULE, with_schedule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.project import is_taken_by_program

SOURCE = "deepspeed/runtime/data_pipeline/config.py"
ENABLED = "data_efficiency.enabled"
OUTER_SECTIONS = ("data_efficiency", "data_efficiency.data_sampling", "data_efficiency.data_routing")
REQUIRED = (
    (CURRICULUM, "curriculum_metrics", "Curriculum learning is enabled, curriculum_metrics must be specified"),
    (DYNAMIC_BATCHING, "max_tokens", "Dynamic batching is enabled, so max_tokens must be specified"),
)
"""Features with the setting that each requires, and DeepSpeed's error without it."""


@rule(
    "DS801",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    watches=tuple(f"{section}.enabled" for section, _, _ in REQUIRED),
    references=(SOURCE,),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "data_efficiency": {"data_sampling": {"dynamic_batching": {"enabled": true}}}}',
    at="data_efficiency.data_sampling.dynamic_batching.enabled",
    message='dynamic_batching is enabled without "max_tokens": DeepSpeed raises AssertionError "Dynamic batching is enabled, so max_tokens must be specified".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "data_efficiency": {"data_sampling": {"dynamic_batching": {"enabled": false}}}}',
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "data_efficiency": {"data_sampling": {"dynamic_batching": {"enabled": true, "max_tokens": 4096}}}}'
)
def enabled_without_its_settings(config: Config) -> Iterator[Finding]:
    """A feature is enabled without a setting that it requires.

    Curriculum learning requires `curriculum_metrics`, and dynamic batching requires `max_tokens`. DeepSpeed asserts this while it parses
    the config, whether or not `data_efficiency` itself is enabled.

    Add the setting, or disable the feature.
    """
    for section, key, error in REQUIRED:
        if config.origin(section) is Origin.DROPPED:
            continue  # this release does not read it
        enabled = config.value(f"{section}.enabled")
        if enabled is UNKNOWN:
            enabled = bool(config.literal(f"{section}.enabled"))  # DeepSpeed accepts every truthy value
        if enabled is True and config.lacks(f"{section}.{key}"):
            yield Finding(
                f"{section}.enabled",
                f'{section.rpartition(".")[2]} is enabled without "{key}": DeepSpeed raises AssertionError "{error}".',
                help=f'Add "{key}", or write "enabled": false.',
                fix=write(config, f"{section}.enabled", "false"),
            )


@rule(
    "DS810",
    effect=Effect.SILENT,
    watches=(f"{CURRICULUM}.enabled", f"{RANDOM_LTD}.enabled"),
    references=(SOURCE, DATA_EFFICIENCY_DOCS),
)
@bad(
    f'{{{MINIMAL}, "data_efficiency": {{"enabled": false, "data_routing": {{"random_ltd": {{"enabled": true, "total_layer_num": 24, "random_ltd_layer_num": 2, "random_ltd_layer_id": [1, 2], "random_ltd_schedule": {{{SCHEDULE}}}}}}}}}}}',
    at=ENABLED,
    message="data_efficiency.enabled false does not disable random_ltd: DeepSpeed uses only the enabled key in random_ltd itself, which is true.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "data_efficiency": {"enabled": false, "data_routing": {"random_ltd": {"enabled": false, "total_layer_num": 24, "random_ltd_layer_num": 2, "random_ltd_layer_id": [1, 2], "random_ltd_schedule": {"min_value": 128, "max_value": 2048, "schedule_type": "fixed_linear", "schedule_config": {"require_steps": 20000, "seq_per_step": 16}}}}}}',
)
@good(with_schedule(SCHEDULE))
@good(f'{{{MINIMAL}, "data_efficiency": {{"enabled": false, "data_routing": {{"random_ltd": {{"enabled": false}}}}}}}}')
def data_efficiency_switch_not_read(config: Config) -> Iterator[Finding]:
    """The outer `enabled` keys of `data_efficiency` disable nothing: a feature that is enabled inside stays on.

    DeepSpeed reads `enabled` in `data_efficiency`, `data_sampling` and `data_routing`, but uses none of them. Curriculum learning and
    random layer token drop depend only on their own `enabled`.

    Write `"enabled": false` in the section of the feature.
    """
    for outer in OUTER_SECTIONS:
        key = f"{outer}.enabled"
        if not config.has(key) or config.value(key) is not False:
            continue
        for feature in (CURRICULUM, RANDOM_LTD):
            if feature.startswith(f"{outer}.") and config.value(f"{feature}.enabled") is True:
                name = feature.rpartition(".")[2]
                yield Finding(
                    key,
                    f"{key} {config.quote(key)} does not disable {name}: DeepSpeed uses only the enabled key in {name} itself, which is true.",
                    help=f'Write "enabled": false in {name}.',
                    related=((f"{feature}.enabled", "enabled here"),),
                    fix=write(config, f"{feature}.enabled", "false"),
                )
                return


FEATURES = (CURRICULUM, DYNAMIC_BATCHING, RANDOM_LTD)
"""The sections of `data_efficiency` that have their own `enabled`."""


@rule(
    "DS811",
    effect=Effect.IGNORED,
    watches=(ENABLED,),
    references=(SOURCE, DATA_EFFICIENCY_DOCS),
)
@bad(
    f'{{{MINIMAL}, "data_efficiency": {{"enabled": true, "seed": 7}}}}',
    at=ENABLED,
    message="data_efficiency is enabled but does nothing: curriculum_learning, dynamic_batching and random_ltd are all disabled.",
)
@good(with_schedule(SCHEDULE))
@good(f'{{{MINIMAL}, "data_efficiency": {{"enabled": false}}}}')
@good(
    f'{{{MINIMAL}, "data_efficiency": {{"enabled": true, "seed": 7}}}}',
    program="def train(config):\n    config['data_efficiency']['data_routing'] = routing()\n    deepspeed.initialize(model=model, config=config)\n",
)
def data_efficiency_without_a_feature(config: Config) -> Iterator[Finding]:
    """`data_efficiency` is enabled, but none of its features is.

    Curriculum learning, dynamic batching and random layer token drop each have their own `enabled`, and DeepSpeed uses only those. If one of
    them is written as false, that is a choice, and the finding is an info.

    Enable a feature, or remove the section.
    """
    features = [config.value(f"{feature}.enabled") for feature in FEATURES]
    if is_taken_by_program(config, "data_efficiency"):
        return  # it may enable a feature itself
    if config.has(ENABLED) and config.value(ENABLED) is True and all(enabled is False for enabled in features):
        yield Finding(
            ENABLED,
            "data_efficiency is enabled but does nothing: curriculum_learning, dynamic_batching and random_ltd are all disabled.",
            help='Write "enabled": true in the section of a feature, or remove data_efficiency.',
            effect=Effect.ADVICE if any(config.has(f"{feature}.enabled") for feature in FEATURES) else None,
        )
