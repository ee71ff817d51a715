"""Arithmetic of the shell: `$((GPUS / 8))`. Integers only; what is not known gives None."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

from dslint.source.python import parse_python

_LARGEST = 2**63

_BINARY: dict[type[ast.AST], Callable[[int, int], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}

_COMPARE: dict[type[ast.AST], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def calculate(expression: str, lookup: Callable[[str], int | None]) -> int | None:
    """The value of an expression in which `lookup` gives the variables; None if it is unknown or not understood."""
    text = re.sub(r"\$\{?([A-Za-z_]\w*)\}?", r"\1", expression).replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    if len(text) > 500:
        return None
    try:
        tree = parse_python(text.strip(), "eval")
        value = _value(tree.body, lookup)
    except (SyntaxError, ValueError, RecursionError, ZeroDivisionError, MemoryError):
        return None
    return int(value) if value is not None and abs(value) < _LARGEST else None


def _value(node: ast.expr, lookup: Callable[[str], int | None]) -> int | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int) else None
    if isinstance(node, ast.Name):
        return lookup(node.id)
    if isinstance(node, ast.UnaryOp):
        value = _value(node.operand, lookup)
        if value is None:
            return None
        return -value if isinstance(node.op, ast.USub) else int(not value) if isinstance(node.op, ast.Not) else value
    if isinstance(node, ast.BoolOp):
        values = [_value(one, lookup) for one in node.values]
        if None in values:
            return None
        return int(all(values) if isinstance(node.op, ast.And) else any(values))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = _value(node.left, lookup), _value(node.comparators[0], lookup)
        compare = _COMPARE.get(type(node.ops[0]))
        return int(compare(left, right)) if compare and left is not None and right is not None else None
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, lookup), _value(node.right, lookup)
        return _binary(node.op, left, right) if left is not None and right is not None else None
    return None


def _binary(sign: ast.operator, left: int, right: int) -> int | None:
    if isinstance(sign, ast.Div | ast.Mod):  # the shell truncates towards zero
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if isinstance(sign, ast.Div) else left - right * quotient
    if isinstance(sign, ast.Pow | ast.LShift):
        if not 0 <= right <= 64 or abs(left) > 2**16:
            return None
        return int(left**right) if isinstance(sign, ast.Pow) else left << right
    apply = _BINARY.get(type(sign))
    return int(apply(left, right)) if apply else None
