"""dslint: a linter for DeepSpeed configs.

`dslint.check(config)` returns the diagnostics of a dict or a file, `dslint.fix(config)` the config with its mistakes fixed,
`dslint.check_training_arguments(args)` the diagnostics of a config together with its training arguments, `dslint.load(config)` the typed
model of the effective config. `dslint.guard(config, model=model)` checks a config in the program that is about to use it, and
`dslint.estimate(config, model=model)` estimates its memory, and `dslint.fastest(config, model=model)` names faster ones.
"""

from __future__ import annotations

__version__ = "0.1.0"
__distribution__ = "deepspeed-lint"  # by which its launcher knows the package

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dslint.api import (
        ConfigError,
        ConfigWarning,
        Findings,
        FixedConfig,
        MemoryEstimate,
        TunedConfig,
        Tuning,
        check,
        check_training_arguments,
        estimate,
        fastest,
        fix,
        guard,
        load,
    )

__all__ = [
    "ConfigError",
    "ConfigWarning",
    "Findings",
    "FixedConfig",
    "MemoryEstimate",
    "TunedConfig",
    "Tuning",
    "__version__",
    "check",
    "check_training_arguments",
    "estimate",
    "fastest",
    "fix",
    "guard",
    "load",
]


def __getattr__(name: str) -> object:
    """Import the API on first use: the command line does not need it."""
    if name in __all__:
        from dslint import api

        return getattr(api, name)
    if name == "callbacks":
        import importlib

        return importlib.import_module("dslint.callbacks")
    raise AttributeError(f"module 'dslint' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names of the API, which are imported on first use."""
    return sorted(__all__)
