"""Whether a config that `tune` considers passes `check`."""

from __future__ import annotations

from dslint.config import Config
from dslint.lint.error_codes import errors_of
from dslint.tune.search import Checked


def no_new_errors(base: Config) -> Checked:
    """A test of configs: none has an error that the present one does not have."""
    present = set(errors_of(base))
    return lambda config: present.issuperset(errors_of(config))
