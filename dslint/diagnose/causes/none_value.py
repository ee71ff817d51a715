"""Which value of a line of code is None, as an error of Python and the line that raised it tell together."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterator

_OPERATORS: dict[str, tuple[type[ast.operator], ...]] = {
    "+": (ast.Add,),
    "-": (ast.Sub,),
    "*": (ast.Mult,),
    "/": (ast.Div,),
    "//": (ast.FloorDiv,),
    "%": (ast.Mod,),
}
_COMPARISONS: dict[str, type[ast.cmpop]] = {"<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE}

_BINARY = re.compile(r"unsupported operand type\(s\) for (?P<of>\S+?)=?: '(?P<left>\w+)' and '(?P<right>\w+)'$")
_COMPARED = re.compile(r"'(?P<of><=?|>=?)' not supported between instances of '(?P<left>\w+)' and '(?P<right>\w+)'$")
_ATTRIBUTE = re.compile(r"'NoneType' object has no attribute '(?P<name>\w+)'")

NONE = "NoneType"
LONGEST = 80
"""The most characters of an expression that is named."""


def none_in(message: str, code: str) -> str:
    """The only expression of a line of code that can be the None of an error; "" if the line does not tell it."""
    search = _search_of(message)
    tree = _parsed(code) if search is not None else None
    if search is None or tree is None or _may_raise_itself(tree):
        return ""
    found = {ast.unparse(node) for node in search(tree) if _can_be_none(node)}
    only = found.pop() if len(found) == 1 else ""
    return only if len(only) <= LONGEST else ""


def _search_of(message: str) -> Callable[[ast.AST], Iterator[ast.expr]] | None:
    """How the expressions are found that an error may be about."""
    if binary := _BINARY.match(message):
        operators = _OPERATORS.get(binary["of"], ())
        if operators and (binary["left"] == NONE) != (binary["right"] == NONE):
            return lambda tree: _operands(tree, operators, left=binary["left"] == NONE)
    if compared := _COMPARED.match(message):
        comparison = _COMPARISONS[compared["of"]]
        if (compared["left"] == NONE) != (compared["right"] == NONE):
            return lambda tree: _compared(tree, comparison, left=compared["left"] == NONE)
    if attribute := _ATTRIBUTE.match(message):
        return lambda tree: (node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == attribute["name"])
    return next((search for said, search in _SAID.items() if message.startswith(said)), None)


def _operands(tree: ast.AST, operators: tuple[type[ast.operator], ...], *, left: bool) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, operators):
            yield node.left if left else node.right
        if isinstance(node, ast.AugAssign) and isinstance(node.op, operators):
            yield node.target if left else node.value


def _compared(tree: ast.AST, comparison: type[ast.cmpop], *, left: bool) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            yield from (sides[at if left else at + 1] for at, op in enumerate(node.ops) if isinstance(op, comparison))


def _contained(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            yield from (side for side, op in zip(node.comparators, node.ops, strict=True) if isinstance(op, ast.In | ast.NotIn))


def _unpacked(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Tuple | ast.List) for target in node.targets):
            yield node.value


_SAID: dict[str, Callable[[ast.AST], Iterator[ast.expr]]] = {
    "'NoneType' object is not subscriptable": lambda tree: (node.value for node in ast.walk(tree) if isinstance(node, ast.Subscript)),
    "'NoneType' object is not callable": lambda tree: (node.func for node in ast.walk(tree) if isinstance(node, ast.Call)),
    "cannot unpack non-iterable NoneType object": _unpacked,
    "argument of type 'NoneType' is not": _contained,
    "object of type 'NoneType' has no len()": lambda tree: (
        node.args[0] for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "len" and node.args
    ),
}


def _can_be_none(node: ast.expr) -> bool:
    """Whether an expression may have the value None: arithmetic, a comparison, a literal or a collection has another one."""
    return isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call)


def _may_raise_itself(tree: ast.AST) -> bool:
    """Whether a line calls a builtin such as sum(), which raises the same errors for what it is given, and has no frame."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(func, ast.Name) and hasattr(builtins, func.id) and func.id not in _HARMLESS for func in calls)


_HARMLESS = frozenset({"len", "int", "float", "str", "print", "isinstance", "range", "getattr", "hasattr"})
"""Builtins that say in other words what they cannot take."""


def _parsed(code: str) -> ast.AST | None:
    """A line of code as a tree; None if it is a part of a statement."""
    line = code.strip()
    line = re.sub(r"^el(?=if\b)", "", line)
    try:
        return ast.parse(f"{line} pass" if line.endswith(":") else line)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
