"""Python programs and notebooks: followed as far as they are static, never executed."""

from dslint.setup.programs.notes import Call, Unread
from dslint.setup.programs.read import PythonFile, read_python

__all__ = ["Call", "PythonFile", "Unread", "read_python"]
