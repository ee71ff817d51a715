"""Operators and comparisons of values, as far as their results are certain."""

from __future__ import annotations

import ast
import operator
import posixpath
from collections.abc import Callable
from typing import Any

from dslint.evaluate.values import (
    COMPUTED,
    Class,
    Constant,
    DictValue,
    Function,
    ListValue,
    Object,
    Unknown,
    Value,
    is_loaded,
    is_soft,
    same,
    tables_of,
)

LONGEST = 10_000
"""The longest string that is built."""


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.RShift: operator.rshift,
}
_OF_INTEGERS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.RShift)


def operated(op: ast.operator, left: object, right: object) -> str | int | float | None:
    """The result on plain values, None if it is not followed. The size of the result is bounded."""
    if isinstance(left, str) and isinstance(right, str):
        if isinstance(op, ast.Add) and len(left) + len(right) < LONGEST:
            return left + right
        return posixpath.join(left, right) if isinstance(op, ast.Div) else None
    if isinstance(op, ast.Mult) and isinstance(left, str) and isinstance(right, int):
        return left * right if len(left) * right < LONGEST else None
    if not isinstance(left, int | float) or not isinstance(right, int | float) or abs(left) > 1e15 or abs(right) > 1e15:
        return None
    if isinstance(op, ast.Pow):
        return left**right if 0 < abs(left) <= 10 and abs(right) <= 60 and isinstance(right, int) else None
    if isinstance(op, ast.LShift):
        return left << right if isinstance(left, int) and isinstance(right, int) and 0 <= right < 50 else None
    apply = _ARITHMETIC.get(type(op))
    if isinstance(op, _OF_INTEGERS) and not (isinstance(left, int) and isinstance(right, int) and right >= 0):
        return None
    if apply is None or (right == 0 and isinstance(op, ast.Div | ast.FloorDiv | ast.Mod)):
        return None
    result: int | float = apply(left, right)
    return result


_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def compared(op: ast.cmpop, left: Value, right: Value) -> Value:
    """The result of a comparison."""
    soft = is_soft(left) or is_soft(right)
    answer: bool | None = None
    if isinstance(op, ast.In | ast.NotIn):
        answer = _contains(right, left)
    elif isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
        answer = _equal(left, right)
    elif isinstance(left, Constant) and isinstance(right, Constant) and _ordered(left.value, right.value):
        answer = _ORDER[type(op)](left.value, right.value)
    if answer is None:
        return COMPUTED
    return Constant(answer is not isinstance(op, ast.NotEq | ast.IsNot | ast.NotIn), soft)


def _ordered(left: object, right: object) -> bool:
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    return numbers or (isinstance(left, str) and isinstance(right, str))


def _equal(left: Value, right: Value) -> bool | None:
    if isinstance(left, Constant) and isinstance(right, Constant):
        return bool(left.value == right.value)
    if same(left, right):
        return True
    none = [one for one in (left, right) if isinstance(one, Constant) and one.value is None]
    other = [one for one in (left, right) if isinstance(one, ListValue | Function | Class | Object) or _is_object(one)]
    return False if none and other else None


def _is_object(value: Value) -> bool:
    """Whether a value is certainly not None: a path, a dict, or what a library has loaded."""
    is_path = isinstance(value, Unknown) and value.path is not None
    return is_path or is_loaded(value) or (bool(tables_of(value)) and not (isinstance(value, Unknown) and value.or_none))


def _has(table: DictValue, item: Constant) -> bool | None:
    entry = table.cells.get(item.value) if isinstance(item.value, str) else None
    if entry is None and table.open:
        known = table.open.get(f"has {item.value}")
        return bool(known.value) if isinstance(known, Constant) else None
    return None if entry is not None and entry.perhaps else entry is not None


def _contains(owner: Value, item: Value) -> bool | None:
    if (tables := tables_of(owner)) and isinstance(item, Constant):
        answers = [_has(one, item) for one in tables]
        return answers[0] if len(set(answers)) == 1 else None
    if isinstance(owner, ListValue) and not owner.changed:
        answers = [None if one.perhaps else _equal(one.value, item) for one in owner.items]
        return True if True in answers else None if None in answers else False
    if isinstance(owner, Constant) and isinstance(item, Constant) and isinstance(owner.value, str) and isinstance(item.value, str):
        return item.value in owner.value
    return None
