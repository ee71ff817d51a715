"""DS8: elasticity, which DeepSpeed 0.19.8 removed."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.source.tree import Mapping, plain

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
    missing = [name for name in REQUIRED if config.lacks(f"elasticity.{name}")]
    if _is_enabled(config) and missing:
        yield Finding(
            "elasticity",
            f"elasticity is enabled without {' and '.join(missing)}: DeepSpeed {config.release} raises ElasticityConfigError while parsing.",
            help=f"Add {' and '.join(missing)}.",
            on="key",
        )


VERSIONED_SINCE = Release(0, 8, 0)
"""The first release that was compared with what this module says of versions and model parallelism."""

VERSIONS = (0.1, 0.2)
MOST_GPUS = 10_000
"""The default of `max_gpus`."""

AT_LEAST = {"min_gpus": 1, "max_gpus": 1, "model_parallel_size": 1, "num_gpus_per_node": 1, "min_time": 0}


@rule(
    "DS866",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    watches=("elasticity",),
    references=("deepspeed/elasticity/config.py, ElasticityConfig", "deepspeed/elasticity/elasticity.py, compute_elastic_config"),
    untried=UNTRIED,
)
@bad(
    '{"elasticity": {"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": 4}}',
    at="elasticity.micro_batch_sizes",
    deepspeed="0.18.3",
    message="elasticity.micro_batch_sizes is 4, but it must be a list: DeepSpeed 0.18.3 raises ElasticityConfigError while parsing.",
)
@bad(
    '{"elasticity": {"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": ["2"]}}',
    at="elasticity.micro_batch_sizes",
    deepspeed="0.18.3",
    message='elasticity.micro_batch_sizes is ["2"], but each entry must be an integer above 0: DeepSpeed 0.18.3 raises ElasticityConfigError while parsing.',
)
@bad(
    '{"elasticity": {"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [0]}}',
    at="elasticity.micro_batch_sizes",
    deepspeed="0.18.3",
    message="elasticity.micro_batch_sizes is [0], but each entry must be an integer above 0: DeepSpeed 0.18.3 raises ElasticityConfigError while parsing.",
)
@bad(
    '{"elasticity": {"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4], "min_time": -1}}',
    at="elasticity.min_time",
    deepspeed="0.18.3",
    message="elasticity.min_time is -1, but it must be 0 or more: DeepSpeed 0.18.3 raises ElasticityConfigError while parsing.",
)
@bad(
    '{"elasticity": {"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4], "max_gpus": -1}}',
    at="elasticity.max_gpus",
    deepspeed="0.18.3",
    message="elasticity.max_gpus is -1, but it must be 1 or more: DeepSpeed 0.18.3 raises ElasticityConfigError while parsing.",
)
@bad(
    '{"elasticity": {"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4], "version": 1}}',
    at="elasticity.version",
    deepspeed="0.18.3",
    message="elasticity.version is 1, but the versions are 0.1 and 0.2: DeepSpeed 0.18.3 raises ElasticityConfigError while parsing.",
)
@bad(
    '{"elasticity": {"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4], "version": 0.2, "model_parallel_size": 3, "num_gpus_per_node": 8}}',
    at="elasticity.model_parallel_size",
    deepspeed="0.18.3",
    message="elasticity.model_parallel_size is 3, but it must divide num_gpus_per_node (8): DeepSpeed 0.18.3 raises ElasticityError while parsing.",
)
@good(
    '{"elasticity": {"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4], "version": 0.2, "model_parallel_size": 4, "num_gpus_per_node": 8}}',
    deepspeed="0.18.3",
)
@good(f'{{{MINIMAL}, "elasticity": {{"enabled": false, "micro_batch_sizes": [2, 4], "max_gpus": -1}}}}', deepspeed="0.18.3")
def elasticity_value_refused(config: Config) -> Iterator[Finding]:
    """DeepSpeed does not accept this value in `elasticity`.

    `micro_batch_sizes` is a list of integers above 0; numbers of GPUs and `model_parallel_size` are 1 or more, `min_time` is 0 or more,
    and `min_gpus` is not above `max_gpus`. The versions are 0.1 and 0.2; only 0.2 knows model parallelism, whose size must divide
    `num_gpus_per_node`. DeepSpeed up to 0.19.7 checks this while it parses the config. Later releases have no elasticity.

    Correct the value, or remove elasticity.
    """
    if not isinstance(config.node("elasticity"), Mapping) or not _is_enabled(config):
        return
    if not all(config.has(f"elasticity.{name}") for name in REQUIRED):
        return  # what is missing is said
    for name, wrong, error, to_write in _refused(config):
        yield Finding(
            f"elasticity.{name}",
            f"elasticity.{name} is {config.quote(f'elasticity.{name}')}, but {wrong}: DeepSpeed {config.release} raises {error} while parsing.",
            help=to_write,
            on="value",
        )
        return


def _refused(config: Config) -> Iterator[tuple[str, str, str, str]]:
    """The values that DeepSpeed refuses, in its order: the key, what is wrong, the error, and what to write."""
    sizes = plain(node) if (node := config.node("elasticity.micro_batch_sizes")) is not None else None
    if not isinstance(sizes, list):
        yield "micro_batch_sizes", "it must be a list", CONFIG_ERROR, "Write a list of integers, such as [2, 4]."
    elif not all(isinstance(size, int) and size > 0 for size in sizes):
        yield "micro_batch_sizes", "each entry must be an integer above 0", CONFIG_ERROR, "Write integers above 0, such as [2, 4]."
    given = {name: _number(config, name) for name in (*AT_LEAST, "version")}
    for name, least in AT_LEAST.items():
        value = given[name]
        if value is not None and value < least:
            yield name, f"it must be {least} or more", CONFIG_ERROR, f"Write {least} or more, or remove the key."
    if (given["max_gpus"] or MOST_GPUS) < (given["min_gpus"] or 1):
        yield "min_gpus" if config.has("elasticity.min_gpus") else "max_gpus", "min_gpus is above max_gpus", CONFIG_ERROR, "Exchange them."
    if config.release < VERSIONED_SINCE or (config.has("elasticity.version") and given["version"] is None):
        return
    version = VERSIONS[-1] if given["version"] is None else given["version"]
    parallel, on_node = given["model_parallel_size"] or 1, given["num_gpus_per_node"] or 1
    if parallel > 1 and version != VERSIONS[-1]:
        yield "model_parallel_size", f"version {version:g} knows no model parallelism", CONFIG_ERROR, 'Write "version": 0.2.'
    elif version not in VERSIONS:
        error = CONFIG_ERROR if version > VERSIONS[-1] else "NotImplementedError"
        yield "version", "the versions are 0.1 and 0.2", error, 'Write "version": 0.2.'
    elif version == VERSIONS[-1] and on_node % parallel:
        wrong = f"it must divide num_gpus_per_node ({on_node:g})"
        yield "model_parallel_size", wrong, "ElasticityError", "Write a size that divides num_gpus_per_node."


CONFIG_ERROR = "ElasticityConfigError"


def _number(config: Config, name: str) -> int | float | None:
    """A number as written; None for what is missing or no number."""
    value = config.literal(f"elasticity.{name}")
    return value if isinstance(value, int | float) else None
