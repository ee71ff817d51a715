"""Python source as a syntax tree. The warnings of the parser about odd but valid code are not printed."""

from __future__ import annotations

import ast
import warnings
from typing import Literal, overload

from dslint.source.store import store


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


def tree_of_text(text: str) -> ast.Module | None:
    """The syntax tree of a program, made once a run; nobody may change it. None if it is not Python, as in the cell of a notebook."""
    return store().parsed(("tree", text), lambda: _tree(text))


def _tree(text: str) -> ast.Module | None:
    try:
        return parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
