"""Python source as a syntax tree. The warnings of the parser about odd but valid code are not printed."""

from __future__ import annotations

import ast
import warnings
from typing import Literal, overload


@overload
def parse_python(text: str) -> ast.Module: ...
@overload
def parse_python(text: str, mode: Literal["eval"]) -> ast.Expression: ...
def parse_python(text: str, mode: str = "exec") -> ast.AST:
    """The syntax tree of a program, or of an expression.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: the text is not Python, or nested too deeply.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, mode=mode)
