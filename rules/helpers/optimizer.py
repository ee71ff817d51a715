"""What rules about optimizers share: references, types, groups of types."""

from __future__ import annotations

from dslint.config import Config
from dslint.schemas.typed import find_type

OPTIMIZERS_DOCS = "https://www.deepspeed.ai/docs/config-json/#optimizer-parameters"
OPTIMIZER_SOURCE = "deepspeed/runtime/engine.py, DeepSpeedEngine._configure_basic_optimizer"
ADAM_SOURCE = "deepspeed/runtime/engine.py, DeepSpeedEngine.get_optimizer_configuration"

ONE_BIT = ("onebitadam", "zerooneadam", "onebitlamb")
"""Types of the 1-bit optimizers, in lower case."""


def lower_type(config: Config) -> str:
    """The optimizer's type in lower case; empty if the type is absent or unknown."""
    name = config.value("optimizer.type")
    return name.lower() if find_type("optimizer", name) is not None else ""
