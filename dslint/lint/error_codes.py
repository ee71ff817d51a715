"""Which rules find an error in a config, for commands that use the config for something else."""

from __future__ import annotations

from functools import cache

from dslint.config import Config
from dslint.diagnostics import Severity
from dslint.lint.run import by_needs, run_rules
from dslint.registry.rules import default_rules
from dslint.rule import RuleInfo
from dslint.source.store import a_run


def errors_of(config: Config) -> list[str]:
    """The rules that find an error in a config."""
    able, _ = by_needs(_rules(), config.context)
    with a_run():  # rules ask for the pins of libraries: each folder above is searched once
        found, _ = run_rules(able, config, "")
    return sorted({one.code for one in found if one.severity is Severity.ERROR})


@cache
def _rules() -> tuple[RuleInfo, ...]:
    """The rules that may find one, but for those about GPU memory: who calls this estimates it."""
    return tuple(rule for rule in default_rules() if rule.effect.severity is Severity.ERROR and "gpu_memory" not in rule.needs)
