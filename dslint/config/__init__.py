"""The effective config: the values that DeepSpeed will use, and their origins. Rules, `show` and the estimate read only this."""

from dslint.config.resolve import Config, resolve
from dslint.config.values import UNKNOWN, Origin, Value
from dslint.config.violations import Violation, ViolationKind

__all__ = ["UNKNOWN", "Config", "Origin", "Value", "Violation", "ViolationKind", "resolve"]
