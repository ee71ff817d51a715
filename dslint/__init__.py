"""dslint: a linter for DeepSpeed configs.

`dslint.check(config)` gives the diagnostics of a dict or a file, `dslint.check_training_arguments(args)` those of a config together with
the arguments that it is used with, `dslint.load(config)` the typed model of what DeepSpeed will use.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dslint.api import ConfigError, check, check_training_arguments, load

__all__ = ["ConfigError", "__version__", "check", "check_training_arguments", "load"]


def __getattr__(name: str) -> object:
    """Import the API when it is first asked for: the command line does without it."""
    if name in ("check", "check_training_arguments", "load", "ConfigError"):
        from dslint import api

        return getattr(api, name)
    raise AttributeError(f"module 'dslint' has no attribute {name!r}")
