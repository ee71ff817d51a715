"""Plug-ins: packages with rules, named in the entry point group `dslint.rules`.

    [project.entry-points."dslint.rules"]
    acme = "acme_rules"          # a module (all its rules), or "acme_rules:RULES", a list of rules or one rule

The settings name the plug-ins to load: `plugins = ["acme"]`. A plug-in that fails to load becomes a rule that fails, and so a diagnostic.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from dslint.diagnostics import Effect
from dslint.rule import Finding, Rule

GROUP = "dslint.rules"


def load(name: str) -> tuple[Rule, ...]:
    """The rules of a plug-in. If loading fails, a single rule that raises the error."""
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    try:
        found = [point for point in entry_points(group=GROUP) if point.name == name]
        if not found:
            raise LookupError(f"no installed package has an entry point {name!r} in the group {GROUP!r}")
        return _rules(found[0].load(), name)
    except Exception as error:  # noqa: BLE001 - a plug-in may fail in any way
        return (_broken(name, error),)


def _rules(loaded: object, name: str) -> tuple[Rule, ...]:
    if isinstance(loaded, ModuleType):
        loaded = vars(loaded).values()
    values = loaded if isinstance(loaded, Iterable) else [loaded]
    rules = tuple(value for value in values if isinstance(value, Rule))
    if not rules:
        raise LookupError(f"the entry point {name!r} contains no rule")
    for rule in rules:
        if rule.code.upper().startswith("DS"):
            raise ValueError(f"the code {rule.code} begins with DS, which is reserved for built-in rules")
    return rules


def _broken(name: str, error: Exception) -> Rule:
    def check(_: object) -> list[Finding]:
        raise error

    return Rule("plug-in", name, Effect.ADVICE, None, check, "A plug-in that cannot be loaded.", module=f"plug-in {name}")
