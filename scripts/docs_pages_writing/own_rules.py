"""Which rules the pages are about."""

from __future__ import annotations

from dslint.registry.rules import all_rules, plugged
from dslint.rule import Rule


def own_rules() -> tuple[Rule, ...]:
    """Dslint's own rules, by code: those of plug-ins have pages elsewhere."""
    others = {id(rule) for rule in plugged()}
    return tuple(rule for rule in all_rules() if id(rule) not in others)
