"""Whether a config that `tune` considers passes `check`."""

from __future__ import annotations

from functools import cache

from dslint.config import Config
from dslint.diagnostics import Severity
from dslint.lint.run import by_needs, run_rules
from dslint.registry.rules import default_rules
from dslint.rule import RuleInfo
from dslint.tune.search import Checked


def no_new_errors(base: Config) -> Checked:
    """A test of configs: none has an error that the present one does not have."""
    present = set(errors_of(base))
    return lambda config: present.issuperset(errors_of(config))


def errors_of(config: Config) -> list[str]:
    """The rules that find an error in a config."""
    able, _ = by_needs(_rules(), config.context)
    return sorted({found.code for found in run_rules(able, config, "")[0] if found.severity is Severity.ERROR})


@cache
def _rules() -> tuple[RuleInfo, ...]:
    return tuple(rule for rule in default_rules() if rule.effect.severity is Severity.ERROR)  # the others find no errors
