"""What the framework of a training refuses, which DS975 reports."""

from __future__ import annotations

from dslint.config import Config
from dslint.frameworks.refusals import refused
from dslint.frameworks.registry import of_arguments
from dslint.job.arguments import SourcedValue
from dslint.rules.helpers.zero import STAGE


def is_refused_by_framework(config: Config, given: SourcedValue) -> bool:
    """Whether the framework raises for an argument of the training."""
    arguments, framework = config.arguments, of_arguments(config.arguments)
    if arguments is None or framework is None or not arguments.sure:
        return False
    release = config.context.pinned(framework.packages[0]) if framework.packages else None
    return any(given in found for _, found in refused(framework.refusals, arguments, config.value(STAGE), release))
