"""DS8: checkpoints, parallelism, monitors, other sections."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config, Origin
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.fixes import write
from dslint.source.tree import Scalar

SOURCE = "deepspeed/runtime/data_pipeline/config.py"
NEEDS = (
    (
        "data_efficiency.data_sampling.curriculum_learning",
        "curriculum_metrics",
        "Curriculum learning is enabled, curriculum_metrics must be specified",
    ),
    ("data_efficiency.data_sampling.dynamic_batching", "max_tokens", "Dynamic batching is enabled, so max_tokens must be specified"),
)


@rule("DS801", "enabled-without-its-settings", effect=Effect.CRASH, phase=Phase.PARSE, references=(SOURCE,))
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "data_efficiency": {"data_sampling": {"dynamic_batching": {"enabled": true}}}}',
    at="data_efficiency.data_sampling.dynamic_batching.enabled",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "data_efficiency": {"data_sampling": {"dynamic_batching": {"enabled": true, "max_tokens": 4096}}}}'
)
def enabled_without_its_settings(config: Config) -> Iterator[Finding]:
    """A feature is switched on without the setting it cannot work without.

    Curriculum learning needs `curriculum_metrics`, dynamic batching needs `max_tokens`. DeepSpeed asserts it while it parses the config, whether or
    not `data_efficiency` itself is enabled.

    Add the setting, or switch the feature off.
    """
    for section, key, error in NEEDS:
        if config.origin(section) is Origin.DROPPED:
            continue  # this release does not read it
        on = config.value(f"{section}.enabled")
        if (on is True or (on is UNKNOWN and _is_truthy(config, f"{section}.enabled"))) and not config.has(f"{section}.{key}"):
            yield Finding(
                f"{section}.enabled",
                f'{section.rpartition(".")[2]} is enabled without "{key}": DeepSpeed raises AssertionError "{error}".',
                help=f'Add "{key}", or write "enabled": false.',
                fix=write(config, f"{section}.enabled", "false"),
            )


def _is_truthy(config: Config, key: str) -> bool:
    node = config.node(key)
    return isinstance(node, Scalar) and bool(node.value)
