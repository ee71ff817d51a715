"""The effective config: what DeepSpeed will use, and where each value came from. Rules, `show` and the estimate read only this."""

from dslint.config.resolve import Config, resolve
from dslint.config.validate import Violation
from dslint.config.values import UNKNOWN, Origin, Value

__all__ = ["UNKNOWN", "Config", "Origin", "Value", "Violation", "resolve"]
