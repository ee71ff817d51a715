"""Every rule: dslint's own, and those of the plug-ins that were loaded."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import walk_packages

import dslint.rules
from dslint.rule import Rule

_plugged: dict[str, tuple[Rule, ...]] = {}
"""The rules of plug-ins, by the plug-in's name."""


def plug_in(name: str) -> tuple[Rule, ...]:
    """Load a plug-in's rules, once; from then on they are among all rules."""
    if name not in _plugged:
        from dslint.registry.plugins import load  # most have none

        _plugged[name] = load(name)
        all_rules.cache_clear()
    return _plugged[name]


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by code, those of plug-ins last."""
    names = [module.name for module in walk_packages(dslint.rules.__path__, "dslint.rules.") if not module.ispkg]
    rules = (value for name in names for value in vars(import_module(name)).values() if isinstance(value, Rule))
    return (*sorted(rules, key=lambda rule: rule.code), *plugged())


def plugged() -> tuple[Rule, ...]:
    """The rules of the plug-ins that were loaded."""
    return tuple(rule for of_plug_in in _plugged.values() for rule in of_plug_in)


@cache
def default_rules() -> tuple[Rule, ...]:
    """Dslint's own rules, but for those that experts disagree about: what runs unless something else is wanted."""
    own = {rule.code for rule in plugged()}
    return tuple(rule for rule in all_rules() if not rule.pedantic and rule.code not in own)
