"""The three batch keys: train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x data-parallel ranks.

DeepSpeed computes the keys that are not written (`schemas/derive.py` does the same) and then asserts the equation.
"""

from __future__ import annotations

from typing import Any

from dslint.config import Config
from dslint.diagnostics import Related
from dslint.facts import Release
from dslint.schemas.derive import ACCUMULATION, MICRO, TRAIN, are_countable
from dslint.schemas.key_table import KEYS

BATCH_KEYS = (TRAIN, MICRO, ACCUMULATION)
BATCH_DOCS = "https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters"


def wrong_batch(train: Any, micro: Any, steps: Any, ranks: Any) -> str:
    """What DeepSpeed's AssertionError says of a product that is another one. Without `ranks` the error is quoted up to its numbers.

    Source: deepspeed/runtime/config.py, DeepSpeedConfig._batch_assertion.
    """
    numbers = f" {train} != {micro} * {steps} * {ranks}" if ranks is not None else ""
    error = "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size"
    return f'"{error}{numbers}"'


def written_batch_keys(config: Config) -> dict[str, Any] | None:
    """The batch keys that are written with a value other than null.

    None where one is not a number, or elasticity computes them, or a product of fractions would leave the range of floats.
    """
    if elasticity_computes_batch(config):
        return None
    values = {key: config.value(key) for key in BATCH_KEYS if config.has(key) and not config.is_null(key)}
    values = {key: value for key, value in values.items() if value is not None}
    if not all(isinstance(value, int | float) for value in values.values()):
        return None
    return values if are_countable(values.values()) else None


def elasticity_computes_batch(config: Config) -> bool:
    """Whether `elasticity` is enabled, in a release that has it."""
    last = Release.parse(KEYS["elasticity"]["until"]["release"])
    return config.release <= last and bool(config.literal("elasticity.enabled"))


def place_of_ranks(config: Config) -> tuple[Related, ...]:
    """What says the number of ranks, as a related place: other launches of the config may have another number."""
    launch, count = config.setup.launch if config.setup is not None else None, config.facts.world_size
    if launch is None or launch.given is None or count is None or launch.world_size != count:
        return ()
    return (launch.given.related(f"starts {count:,} rank{'s' * (count != 1)}"),)
