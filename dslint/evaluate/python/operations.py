"""Expressions with operators: arithmetic, conditions, comparisons, and the texts that are put together."""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import pairwise

from dslint.evaluate.python.evaluate import DIVISION_ERROR, TYPE_ERROR, ProgramState, evaluate, expression, raise_certainly
from dslint.evaluate.python.expressions import tinted
from dslint.evaluate.python.functions import enter
from dslint.evaluate.python.operators import LONGEST, compared, operated
from dslint.evaluate.python.paths import extended, joined, over_options
from dslint.evaluate.python.strings import as_text
from dslint.evaluate.python.tables import SET, copied, merge, whole
from dslint.evaluate.reasons import IS_COMPUTED
from dslint.evaluate.values import (
    COMPUTED,
    HOLE,
    Constant,
    DictValue,
    Function,
    Library,
    ListValue,
    Object,
    Scope,
    Unknown,
    Value,
    is_soft,
    member,
    path_of,
    text_of,
    truth,
)


@expression(ast.UnaryOp)
def _unary(state: ProgramState, node: ast.UnaryOp, scope: Scope) -> Value:
    found = evaluate(state, node.operand, scope)
    if isinstance(node.op, ast.Not):
        holds = truth(found)
        return Unknown(found.reason if isinstance(found, Unknown) else None) if holds is None else Constant(not holds, is_soft(found))
    if isinstance(node.op, ast.USub) and isinstance(found, Constant) and isinstance(found.value, int | float):
        return Constant(-found.value, found.soft)
    if isinstance(node.op, ast.Invert) and isinstance(found, Constant) and isinstance(found.value, int):
        return Constant(~found.value, found.soft)
    return Unknown(found.reason) if isinstance(found, Unknown) else COMPUTED


@expression(ast.BinOp)
def _binary(state: ProgramState, node: ast.BinOp, scope: Scope) -> Value:
    return operate(state, node.op, evaluate(state, node.left, scope), evaluate(state, node.right, scope))


_SPECIAL: dict[type[ast.operator], str] = {
    ast.Add: "__add__",
    ast.Sub: "__sub__",
    ast.Mult: "__mul__",
    ast.Div: "__truediv__",
    ast.BitOr: "__or__",
}
"""The methods with which a class says what an operator does."""


def operate(state: ProgramState, op: ast.operator, left: Value, right: Value) -> Value:
    """The result of an operator: of arithmetic, of joined strings, paths and lists, and of `|` of dicts."""
    left = whole(state, left)
    if isinstance(op, ast.BitOr) and isinstance(left, DictValue):
        made = copied(state, left)
        merge(state, made, right)
        return made
    if isinstance(left, ListValue):
        return _joined_rows(op, left, right)
    kind = left.type if isinstance(left, Object) else None
    if isinstance(left, Object) and isinstance(method := member(kind, _SPECIAL.get(type(op), "")), Function):
        return enter(state, method.bound(left), [right], {})
    if isinstance(op, ast.Mod) and isinstance(left, Constant) and isinstance(left.value, str):
        return as_text(left, right)
    if not isinstance(left, Constant) or not isinstance(right, Constant):
        if isinstance(op, ast.Div) and _may_be_path(left) and _may_be_path(right):
            return joined([left, right])
        if isinstance(op, ast.Add) and (path := extended([left, right])) is not None:
            return path
        known = next((one for one in (left, right) if isinstance(one, Unknown) and one.reason), COMPUTED)
        if isinstance(op, ast.Add):
            return _text_of_parts([left, right])
        return Unknown(known.reason)
    if isinstance(op, ast.Div | ast.FloorDiv | ast.Mod) and right.value == 0 and isinstance(left.value, int | float):
        raise_certainly(state, DIVISION_ERROR)
    if isinstance(left.value, str) is not isinstance(right.value, str) and isinstance(op, ast.Add):
        raise_certainly(state, TYPE_ERROR)
    result = operated(op, left.value, right.value)
    return COMPUTED if result is None else Constant(result, left.soft or right.soft)


def _may_be_path(value: Value) -> bool:
    return path_of(value) is not None or (isinstance(value, Unknown) and bool(value.options))


def _joined_rows(op: ast.operator, left: ListValue, right: Value) -> Value:
    if left.changed or (isinstance(right, ListValue) and right.changed):
        return COMPUTED
    if isinstance(op, ast.Add) and isinstance(right, ListValue):
        length = len(left.items) + len(right.items)
        return ListValue([*left.items, *right.items], left.span, fixed=left.fixed) if length <= LONGEST else _only_length(left, length)
    times = right.value if isinstance(op, ast.Mult) and isinstance(right, Constant) else None
    if not isinstance(times, int):
        return COMPUTED
    length = max(0, times) * len(left.items)
    return ListValue(left.items * times, left.span) if length <= LONGEST else _only_length(left, length)


def _only_length(row: ListValue, length: int) -> Value:
    """A list that is too long to be built of the items of a row."""
    return Unknown(IS_COMPUTED, length=None if any(one.perhaps for one in row.items) else length)


@expression(ast.BoolOp)
def _boolean(state: ProgramState, node: ast.BoolOp, scope: Scope) -> Value:
    """`a and b`, `a or b`."""
    result: Value = Constant(isinstance(node.op, ast.And))
    soft = False
    candidates: list[Value] = []
    for part in node.values:
        state.undecided += len(candidates)
        try:
            result = evaluate(state, part, scope)
        finally:
            state.undecided -= len(candidates)
        holds = truth(result)
        soft = soft or is_soft(result)
        if holds is None:
            candidates.append(result)
        elif holds is isinstance(node.op, ast.Or):
            break
    for one in candidates:
        result = state.journal.joined(result, one)
    return tinted(result, soft=soft)


@expression(ast.Compare)
def _comparison(state: ProgramState, node: ast.Compare, scope: Scope) -> Value:
    values = [evaluate(state, one, scope) for one in (node.left, *node.comparators)]
    answers = [_compared(state, op, *pair) for op, pair in zip(node.ops, pairwise(values), strict=True)]
    holds = [truth(one) for one in answers]
    if False in holds:
        return answers[holds.index(False)]
    if None not in holds:
        return Constant(value=True, soft=any(map(is_soft, answers)))
    return Unknown(next((one.reason for one in values if isinstance(one, Unknown) and one.reason), IS_COMPUTED))


def _compared(state: ProgramState, op: ast.cmpop, left: Value, right: Value) -> Value:
    """The result of a comparison; a class of the project can say what `in` and `==` mean."""
    contains = member(right.type, "__contains__") if isinstance(right, Object) and isinstance(op, ast.In) else None
    if isinstance(right, Object) and isinstance(contains, Function):
        return enter(state, contains.bound(right), [left], {})
    if isinstance(op, ast.In | ast.NotIn) and isinstance(right, Library) and right.name == "os.environ":
        known = isinstance(left, Constant) and type(state.environment.get(str(left.value))) is Constant
        return Constant(isinstance(op, ast.In)) if known else COMPUTED
    right = right.about if isinstance(right, Object) and right.kind == SET else right
    return compared(op, left, right)


@expression(ast.JoinedStr)
def _f_string(state: ProgramState, node: ast.JoinedStr, scope: Scope) -> Value:
    parts: list[Value] = []
    for part in node.values:
        found = evaluate(state, part.value if isinstance(part, ast.FormattedValue) else part, scope)
        if isinstance(part, ast.FormattedValue) and (part.format_spec or part.conversion != -1):
            spec = evaluate(state, part.format_spec, scope)
            conversion = "" if part.conversion == -1 else f"!{chr(part.conversion)}"
            pattern = f"{{{conversion}:{spec.value or ''}}}" if isinstance(spec, Constant) else ""
            found = as_text(Constant(pattern), found, braces=True) if pattern else COMPUTED
        parts.append(found)
    return _text_of_parts(parts)


def _text_of_parts(parts: list[Value]) -> Value:
    """The text of a formatted string with these parts."""
    if (path := extended(parts)) is not None:
        return path
    text = "".join(map(text_of, parts))
    unknown = [part for part in parts if not isinstance(part, Constant)]
    if unknown or len(text) >= LONGEST:
        reason = next((part.reason for part in unknown if isinstance(part, Unknown) and part.reason), IS_COMPUTED)
        made = Unknown(reason, text=text[:LONGEST] if text.strip(HOLE) else "")
        several = over_options(parts, _text_of_parts)
        return replace(made, options=several.options, closed=several.closed) if several is not None else made
    return Constant(text, any(is_soft(part) for part in parts))
