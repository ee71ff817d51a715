"""dslint: a linter for DeepSpeed configs.

`dslint.check(config)` returns the diagnostics of a dict or a file, `dslint.fix(config)` the config with its mistakes fixed,
`dslint.check_training_arguments(args)` the diagnostics of a config together with its training arguments, `dslint.load(config)` the typed
model of the effective config.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dslint.api import ConfigError, FixedConfig, check, check_training_arguments, fix, load

__all__ = ["ConfigError", "FixedConfig", "__version__", "check", "check_training_arguments", "fix", "load"]


def __getattr__(name: str) -> object:
    """Import the API on first use: the command line does not need it."""
    if name in __all__:
        from dslint import api

        return getattr(api, name)
    raise AttributeError(f"module 'dslint' has no attribute {name!r}")
