"""Whether a config that `tune` considers passes `check`."""

from __future__ import annotations

from dslint.config import Config
from dslint.diagnostics import Severity
from dslint.lint.run import by_needs, run_rules
from dslint.registry.rules import default_rules
from dslint.tune.search import Checked


def no_new_errors(base: Config) -> Checked:
    """A test of configs: none has an error that the present one does not have."""
    rules = [rule for rule in default_rules() if rule.effect.severity is Severity.ERROR]  # the others find no errors

    def errors(config: Config) -> set[str]:
        able, _ = by_needs(rules, config.context)
        return {found.code for found in run_rules(able, config, "")[0] if found.severity is Severity.ERROR}

    present = errors(base)
    return lambda config: errors(config) <= present
