"""Import paths and names of earlier versions. Each leads to its new place, with a DeprecationWarning, until the next minor release."""

from __future__ import annotations

from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from warnings import warn

MODULES: dict[str, tuple[str, ...]] = {
    "dslint.checkpoint": ("dslint.facts.checkpoint",),
    "dslint.coerce": ("dslint.config.coerce",),
    "dslint.discover": ("dslint.lint.discovery",),
    "dslint.effective": ("dslint.config.effective",),
    "dslint.error_text": ("dslint.diagnose.parse_log",),
    "dslint.fingerprints": ("dslint.suppress.fingerprints",),
    "dslint.guess": ("dslint.config.suggest", "dslint.schemas.nicknames"),
    "dslint.hardware": ("dslint.facts.gpus",),
    "dslint.infer": ("dslint.config.infer",),
    "dslint.judge": ("dslint.config.sections", "dslint.config.violations", "dslint.config.validate", "dslint.source.tree"),
    "dslint.known_errors": ("dslint.diagnose.search",),
    "dslint.linter": ("dslint.lint.document", "dslint.lint.place", "dslint.lint.guard", "dslint.lint.run"),
    "dslint.model_config": ("dslint.facts.model_config",),
    "dslint.patterns": ("dslint.lint.patterns",),
    "dslint.plugins": ("dslint.registry.plugins",),
    "dslint.policy": ("dslint.config.policy",),
    "dslint.reading": ("dslint.config.read_value", "dslint.config.violations"),
    "dslint.recognise": ("dslint.config.detect",),
    "dslint.releases": ("dslint.facts.find_release",),
    "dslint.results": ("dslint.lint.results",),
    "dslint.run": ("dslint.lint.files", "dslint.evaluate.files"),
    "dslint.selection": ("dslint.registry.selection",),
    "dslint.setup.fill": ("dslint.config.fill",),
    "dslint.setup.lint": ("dslint.lint.setups", "dslint.setups.read"),
    "dslint.source.mender": ("dslint.source.recover",),
    "dslint.values": ("dslint.config.values",),
    "dslint.writing": ("dslint.fixes.atomic_write",),
    "dslint.rules.repairs": ("dslint.rules.helpers.fixes",),
    "dslint.rules.wording": ("dslint.rules.helpers.messages",),
}
"""Modules, with the modules that have their names now."""

NAMES = {
    "dslint.rule.Repair": "dslint.rule.FixPlan",
    "dslint.fixes.fix": "dslint.fixes.apply.fix",
    "dslint.fixes.Fixed": "dslint.fixes.apply.Fixed",
    "dslint.guess.guess": "dslint.config.suggest.suggest",
    "dslint.judge.Judge": "dslint.config.validate.Validator",
    "dslint.linter.diagnostic": "dslint.lint.place.place",
    "dslint.reading.read": "dslint.config.read_value.read_value",
    "dslint.recognise.Kind": "dslint.config.detect.FileKind",
    "dslint.recognise.recognise": "dslint.config.detect.detect_kind",
    "dslint.releases.Found": "dslint.facts.find_release.FoundRelease",
    "dslint.results.By": "dslint.lint.results.SuppressedBy",
    "dslint.source.mender.mend": "dslint.source.recover.recover",
}
"""Names that are others now."""


def spec_of(name: str) -> ModuleSpec | None:
    """How to import a module of an earlier version; None for other names."""
    return ModuleSpec(name, _Loader()) if name in MODULES else None  # type: ignore[arg-type] # it has the two methods that count


class _Loader:
    """Makes a module that has the names of others."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:  # noqa: ARG002 - importlib's signature
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        warn(f"{name} moved: import {' or '.join(MODULES[name])}", DeprecationWarning, stacklevel=2)
        module.__getattr__ = lambda wanted: moved_name(name, wanted)  # type: ignore[method-assign]


def moved_name(module: str, name: str) -> Any:
    """What a name of a module of an earlier version leads to.

    Raises:
        AttributeError: the module never had it, or it is gone.
    """
    new = NAMES.get(f"{module}.{name}")
    if new is not None:
        warn(f"{module}.{name} is {new} now", DeprecationWarning, stacklevel=3)
        home, _, attribute = new.rpartition(".")
        return getattr(import_module(home), attribute)
    for home in MODULES.get(module, ()):
        if hasattr(found := import_module(home), name) and not name.startswith("__"):
            return getattr(found, name)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")
