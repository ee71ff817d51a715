"""The loaders between a config and DeepSpeed: the Hugging Face Trainer, Accelerate and Lightning."""

from __future__ import annotations

from dslint.config import Config
from dslint.facts import Integration
from dslint.setup.arguments import Arguments

HUGGING_FACE = (Integration.TRANSFORMERS, Integration.ACCELERATE)
"""The integrations that replace "auto"."""

TRAINER_SOURCE = "transformers/integrations/deepspeed.py, HfTrainerDeepSpeedConfig"
ACCELERATE_SOURCE = "accelerate/utils/dataclasses.py, DeepSpeedPlugin"

RAISED_BY_LOADER = "raised by transformers or Accelerate, not by DeepSpeed; tests/setup runs them"
"""Why the tests of DeepSpeed cannot try a crash of a Hugging Face loader."""

ZERO_2 = '"zero_optimization": {"stage": 2}'
"""The section without which the Hugging Face loaders raise, for examples."""


def trainer_arguments(config: Config) -> Arguments | None:
    """The training arguments, if the Hugging Face Trainer loads the config."""
    return config.arguments if config.facts.integration is Integration.TRANSFORMERS else None
