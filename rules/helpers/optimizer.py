"""What rules about optimizers share."""

from __future__ import annotations

from dslint.config import Config
from dslint.schemas.typed import find_type

OPTIMIZERS_DOCS = "https://www.deepspeed.ai/docs/config-json/#optimizer-parameters"
BUILT = "deepspeed/runtime/engine.py, DeepSpeedEngine._configure_basic_optimizer"
STAGE = "zero_optimization.stage"


def lower_type(config: Config) -> str:
    """The optimizer's type in lower case; empty if the type is absent or unknown."""
    name = config.value("optimizer.type")
    return name.lower() if find_type("optimizer", name) is not None else ""
