"""Python programs and notebooks: followed as far as they are static, never executed."""

from dslint.setup.programs.read import PythonFile, read_python
from dslint.setup.programs.record import Call, Unread

__all__ = ["Call", "PythonFile", "Unread", "read_python"]
