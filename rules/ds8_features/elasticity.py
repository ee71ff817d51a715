"""DS8: elasticity, which DeepSpeed 0.19.8 removed."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.source.tree import Mapping

REMOVED_IN = Release(0, 19, 8)
DOCS = "https://www.deepspeed.ai/docs/config-json/#elastic-training-config-v01-and-v02"
UNTRIED = "elasticity was removed in 0.19.8, and the suite runs 0.19.8"
BATCH_SIZES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
REQUIRED = ("max_train_batch_size", "micro_batch_sizes")


def _is_enabled(config: Config) -> bool:
    """Whether the release reads the section, and the section enables elasticity."""
    return config.release < REMOVED_IN and config.literal("elasticity.enabled") is True


@rule(
    "DS852",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    watches=("elasticity",),
    references=(DOCS,),
    untried=UNTRIED,
)
@bad(
    f'{{{MINIMAL}, "elasticity": {{"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4]}}}}',
    at="elasticity.enabled",
    deepspeed="0.18.9",
    message="elasticity computes the batch sizes, but the config also has train_micro_batch_size_per_gpu: DeepSpeed 0.18.9 raises ElasticityConfigError while parsing.",
)
@good(
    f'{{{MINIMAL}, "elasticity": {{"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4], "ignore_non_elastic_batch_info": true}}}}',
    deepspeed="0.18.9",
)
@good(f'{{{MINIMAL}, "elasticity": {{"enabled": false}}}}', deepspeed="0.18.9")
def elasticity_with_batch_sizes(config: Config) -> Iterator[Finding]:
    """Elasticity computes the batch sizes, so DeepSpeed rejects a config that also writes one.

    DeepSpeed up to 0.19.7 raises `ElasticityConfigError`. With `"ignore_non_elastic_batch_info": true` it overwrites the written sizes
    instead. Later releases have no elasticity.

    Remove the batch sizes, or remove elasticity.
    """
    written = [key for key in BATCH_SIZES if config.has(key)]
    if _is_enabled(config) and written and not config.literal("elasticity.ignore_non_elastic_batch_info"):
        yield Finding(
            "elasticity.enabled",
            f"elasticity computes the batch sizes, but the config also has {written[0]}: DeepSpeed {config.release} raises ElasticityConfigError while parsing.",
            help="Remove the batch sizes, or remove elasticity, which DeepSpeed 0.19.8 and later do not have.",
            related=tuple((key, "not allowed with elasticity") for key in written),
        )


@rule(
    "DS853",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    watches=("elasticity",),
    references=(DOCS,),
    untried=UNTRIED,
)
@bad(
    '{"elasticity": {"enabled": true, "micro_batch_sizes": [2, 4]}}',
    at="elasticity",
    deepspeed="0.18.9",
    message="elasticity is enabled without max_train_batch_size: DeepSpeed 0.18.9 raises ElasticityConfigError while parsing.",
)
@good(
    f'{{{MINIMAL}, "elasticity": {{"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4], "ignore_non_elastic_batch_info": true}}}}',
    deepspeed="0.18.9",
)
def elasticity_incomplete(config: Config) -> Iterator[Finding]:
    """Elasticity requires a maximum batch size and a list of micro batch sizes.

    Without `max_train_batch_size` or `micro_batch_sizes`, DeepSpeed up to 0.19.7 raises `ElasticityConfigError`.

    Add both.
    """
    if not isinstance(config.node("elasticity"), Mapping):
        return
    missing = [name for name in REQUIRED if not config.has(f"elasticity.{name}")]
    if _is_enabled(config) and missing:
        yield Finding(
            "elasticity",
            f"elasticity is enabled without {' and '.join(missing)}: DeepSpeed {config.release} raises ElasticityConfigError while parsing.",
            help=f"Add {' and '.join(missing)}.",
            on="key",
        )
