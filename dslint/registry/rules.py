"""Every rule: built-in rules from the compiled index, and those of loaded plug-ins."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from dslint.diagnostics import Effect, Phase
from dslint.rule import Rule, RuleInfo
from dslint.rules.index import RULES

_plugged: dict[str, tuple[Rule, ...]] = {}
"""The rules of plug-ins, by the plug-in's name."""


class IndexedRule(RuleInfo):
    """A built-in rule, as described in the index."""

    __slots__ = ("_loaded", "function")

    def __init__(self, row: tuple[str, str, str, str | None, tuple[str, ...], tuple[str, ...], tuple[str, ...], str, str]) -> None:
        code, name, effect, phase, needs, flags, watches, module, function = row
        super().__init__(
            code,
            name,
            Effect(effect),
            Phase(phase) if phase else None,
            needs=needs,
            watches=watches,
            pedantic="pedantic" in flags,
            setup="setup" in flags,
            module=f"dslint.rules.{module}",
        )
        self.function = function
        self._loaded: Rule | None = None

    def load(self) -> Rule:
        if self._loaded is None:
            found = getattr(import_module(self.module), self.function)
            assert isinstance(found, Rule), self
            self._loaded = found
        return self._loaded


def plug_in(name: str) -> tuple[Rule, ...]:
    """Load a plug-in's rules once, and add them to all rules."""
    if name not in _plugged:
        from dslint.registry.plugins import load  # rarely needed

        _plugged[name] = load(name)
        all_rules.cache_clear()
        _by_word.cache_clear()
    return _plugged[name]


@cache
def own_rules() -> tuple[IndexedRule, ...]:
    """The built-in rules, sorted by code. Their modules are not imported."""
    return tuple(map(IndexedRule, RULES))


@cache
def all_rules() -> tuple[RuleInfo, ...]:
    """Every rule, sorted by code, those of plug-ins last."""
    return (*own_rules(), *plugged())


def rule_named(word: str) -> RuleInfo | None:
    """The rule with this code or name; None if there is none."""
    return _by_word().get(word.lower())


@cache
def _by_word() -> dict[str, RuleInfo]:
    return {word.lower(): rule for rule in reversed(all_rules()) for word in (rule.code, rule.name)}


def loaded_rules() -> tuple[Rule, ...]:
    """Every rule with its function, documentation and examples: for tests and documents."""
    return tuple(rule.load() for rule in all_rules())


def plugged() -> tuple[Rule, ...]:
    """The rules of loaded plug-ins."""
    return tuple(rule for of_plug_in in _plugged.values() for rule in of_plug_in)


@cache
def default_rules() -> tuple[RuleInfo, ...]:
    """The rules that run by default: built-in ones that are not pedantic."""
    return tuple(rule for rule in own_rules() if not rule.pedantic)
