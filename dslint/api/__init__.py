"""The Python API: `dslint check`, `fix`, `estimate`, `tune` (as `fastest`) and `show` for programs, with the same settings and facts.

Reached as `dslint.check` and so on. `import dslint` does not import this package, and each function imports only what it needs.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dslint.api.checking import check, check_training_arguments, load
    from dslint.api.estimating import MemoryEstimate, estimate
    from dslint.api.fixing import fix
    from dslint.api.given import Given
    from dslint.api.guarding import ConfigWarning, guard
    from dslint.api.results import ConfigError, Findings, FixedConfig
    from dslint.api.tuning import TunedConfig, Tuning, fastest

__all__ = [
    "ConfigError",
    "ConfigWarning",
    "Findings",
    "FixedConfig",
    "Given",
    "MemoryEstimate",
    "TunedConfig",
    "Tuning",
    "check",
    "check_training_arguments",
    "estimate",
    "fastest",
    "fix",
    "guard",
    "load",
]

_MODULES = {
    "checking": ("check", "check_training_arguments", "load"),
    "estimating": ("MemoryEstimate", "estimate"),
    "fixing": ("fix",),
    "given": ("Given",),
    "guarding": ("ConfigWarning", "guard"),
    "results": ("ConfigError", "Findings", "FixedConfig"),
    "tuning": ("TunedConfig", "Tuning", "fastest"),
}


def __getattr__(name: str) -> object:
    """Import a part of the API on first use."""
    import importlib

    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"dslint.api.{module}"), name)
    raise AttributeError(f"module 'dslint.api' has no attribute {name!r}")
