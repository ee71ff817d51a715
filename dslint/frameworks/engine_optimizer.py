"""Whether DeepSpeed gets an optimizer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dslint.facts import Integration

if TYPE_CHECKING:
    from dslint.config import Config


def runs_without_optimizer(config: Config) -> bool:
    """Whether the engine is made without an optimizer, or may be: by the program, as for a reference or a reward model, by Accelerate, or
    by a Trainer that only evaluates.

    DeepSpeed then scales no loss and offloads no states. At stage 3 it only divides the parameters, and builds nothing of what the
    optimizer of stage 3 refuses or allocates.
    """
    program = config.setup.program if config.setup is not None else None
    if config.facts.integration is Integration.DEEPSPEED:
        passed = program.passed if program is not None else None
        return passed is not None and "optimizer" not in passed and config.lacks("optimizer")
    if config.facts.integration is Integration.ACCELERATE:
        return config.lacks("optimizer") and _prepares_only_a_model(config)
    if config.facts.integration is not Integration.TRANSFORMERS or config.setup is None:
        return False
    from dslint.frameworks.evaluation import only_evaluates  # loads the frameworks, which a check of one config does not need

    return only_evaluates(config)


def _prepares_only_a_model(config: Config) -> bool:
    """Whether a program gives models to Accelerate, and no file of the setup speaks of an optimizer or of a backward pass."""
    program = config.setup.program if config.setup is not None else None
    if program is None or not any(program.events.of(r"accelerate\.(\w+\.)*Accelerator\.prepare(_model)?")):
        return False
    texts = [one.text for one in config.setup.documents.values() if one.language == "python"] if config.setup is not None else []
    return not any(map(_OF_TRAINING.search, texts))


_OF_TRAINING = re.compile(r"optim|\.backward\(", re.IGNORECASE)
"""What a program writes that trains with Accelerate."""
