"""Conditions that hold on some ranks only: `rank == 0`, `accelerator.is_main_process`, `not is_main()`."""

from __future__ import annotations

import ast
import re

from dslint.evaluate.values import Scope
from dslint.job.events import Condition

_NUMBER = re.compile(
    r"_*(global_|local_|node_|world_|dist_|process_|dp_)?rank(_id)?|get_(global_|local_)?rank|(local_)?process_index", re.IGNORECASE
)
"""Names of the number of a rank: variables, attributes, functions and environment variables."""

_FLAG = re.compile(
    r"_*(is_)?(local_|world_|global_)?(main|master|chief)_(process|rank|proc|node)|is_(local_|world_|global_)?(main|master|chief)"
    r"|is_(local|world)_process_zero|is_global_zero|(is_)?rank_?(zero|0)|is_first_rank|is_rank_?(zero|0)",
    re.IGNORECASE,
)
"""Names of what is true on one rank."""


def condition_of(node: ast.If | ast.IfExp, scope: Scope, function: ast.AST | None, *, holds: bool) -> Condition:
    """The condition of a statement or an expression in a function that is followed, None outside of functions."""
    known = scope.source.parsed.conditions.get((node, function))
    if known is None:
        text = scope.source.written(scope.source.span(node.test))
        known = text, scope.source.span(node).start - scope.source.base, selects_ranks(node.test), asks_for_missing(node.test, function)
        scope.source.parsed.conditions[node, function] = known
    text, start, ranks, missing = known
    return Condition(text, start + scope.source.base, holds, ranks, missing=missing)


def selects_ranks(test: ast.expr) -> bool:
    """Whether a condition holds on some of the ranks, and not on the others."""
    if isinstance(test, ast.BoolOp):
        select = all if isinstance(test.op, ast.Or) else any
        return select(selects_ranks(one) for one in test.values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return selects_ranks(test.operand)
    if isinstance(test, ast.Compare):
        return len(test.ops) == 1 and _is_number(test.left) and _selects(test.ops[0], test.comparators[0])
    return _FLAG.fullmatch(_name_of(test)) is not None or _is_number(test)


def _selects(op: ast.cmpop, other: ast.expr) -> bool:
    """Whether a comparison of a rank with a number tells ranks apart: that with -1 asks whether there are several."""
    value = other.operand.value if isinstance(other, ast.UnaryOp) and isinstance(other.operand, ast.Constant) else None
    negative = isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.USub) and value is not None
    if isinstance(op, ast.In | ast.NotIn):
        return isinstance(other, ast.List | ast.Tuple | ast.Set)
    if isinstance(op, ast.GtE | ast.Lt) and isinstance(other, ast.Constant) and other.value == 0:
        return False
    return not negative and (isinstance(other, ast.Constant) or _name_of(other) != "")


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int" and node.args:
        return _is_number(node.args[0])
    return _NUMBER.fullmatch(_name_of(node)) is not None


def _name_of(node: ast.expr) -> str:
    """The last name of an expression: of `self.rank`, `dist.get_rank()`, `os.environ["RANK"]`, `os.getenv("RANK", 0)`."""
    if isinstance(node, ast.Call):
        name = _name_of(node.func)
        return _name_of(node.args[0]) if name in ("get", "getenv") and node.args else name
    if isinstance(node, ast.Subscript):
        return _name_of(node.slice)
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return node.id if isinstance(node, ast.Name) else ""


def asks_for_missing(test: ast.expr, function: ast.AST | None) -> bool | None:
    """What a condition is where a parameter is missing: `x is None` and `not x` are true then; None for any other condition."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = asks_for_missing(test.operand, function)
        return None if inner is None else not inner
    is_missing = False
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Is | ast.IsNot):
        other = test.comparators[0]
        if not isinstance(other, ast.Constant) or other.value is not None:
            return None
        is_missing, test = isinstance(test.ops[0], ast.Is), test.left
    arguments = getattr(function, "args", None)
    if not isinstance(test, ast.Name) or not isinstance(arguments, ast.arguments):
        return None
    names = {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    return is_missing if test.id in names else None
