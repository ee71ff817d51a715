"""Python programs and notebooks: followed as far as they are static, never executed."""

from dslint.evaluate.python.notes import Call, Unread
from dslint.evaluate.python.read import PythonFile, read_python

__all__ = ["Call", "PythonFile", "Unread", "read_python"]
