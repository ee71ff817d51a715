"""Rules of a team's own: functions made with the same decorators, in a package that names them in the entry point group `dslint.rules`.

    [project.entry-points."dslint.rules"]
    acme = "acme_rules"          # a module: every rule in it, "acme_rules:RULES", a list of them; or one rule

The settings name what is to be loaded: `plugins = ["acme"]`. What cannot be loaded becomes a rule that fails, and so a diagnostic.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from dslint.diagnostics import Effect
from dslint.rule import Finding, Rule

GROUP = "dslint.rules"


def load(name: str) -> tuple[Rule, ...]:
    """The rules of a plug-in. Whatever is wrong with it is what the one rule that comes back raises."""
    from importlib.metadata import entry_points  # slow, and most have no plug-ins

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
        raise LookupError(f"the entry point {name!r} leads to no rule")
    for rule in rules:
        if rule.code.upper().startswith("DS"):
            raise ValueError(f"the rule {rule.code} has a code of dslint's own; begin it with other letters")
    return rules


def _broken(name: str, error: Exception) -> Rule:
    def check(_: object) -> list[Finding]:
        raise error

    return Rule("plug-in", name, Effect.ADVICE, None, check, "A plug-in that cannot be loaded.", module=f"plug-in {name}")
