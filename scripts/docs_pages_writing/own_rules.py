"""The rules that have pages."""

from __future__ import annotations

from functools import cache

from dslint.registry import rules
from dslint.rule import Rule


@cache
def own_rules() -> tuple[Rule, ...]:
    """The built-in rules, loaded and sorted by code, without those of plug-ins."""
    return tuple(rule.load() for rule in rules.own_rules())
