"""Which rules the pages are about."""

from __future__ import annotations

from dslint.registry import rules
from dslint.rule import Rule


def own_rules() -> tuple[Rule, ...]:
    """Dslint's own rules, whole, by code: those of plug-ins have pages elsewhere."""
    return tuple(rule.load() for rule in rules.own_rules())
