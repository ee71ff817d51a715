"""math, and Python's own functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import VALUE_ERROR, ProgramState, raise_certainly
from dslint.evaluate.python.libraries.table import entry_of, follows, items_in, unknown_of
from dslint.evaluate.values import COMPUTED, Constant, ListValue, Object, Unknown, Value, converted, is_soft, truth

_LONGEST = 40
"""The most characters of a text that is read as a number, and the largest exponent: no setting of a training is longer."""


@follows("int", "float", "str", "bool")
def _number(state: ProgramState, call: CallOf) -> Value:
    value = call.get("x", 0)
    if call.name == "str" and isinstance(value, Object):
        return COMPUTED
    if call.name == "str" and isinstance(value, Unknown) and value.path is not None:
        return value
    if call.name == "int" and len(call.arguments) == 2:
        base = call.plain("base", 1)
        text = call.plain("x", 0)
        try:
            return Constant(int(text, base)) if isinstance(text, str) and isinstance(base, int) and len(text) < _LONGEST else COMPUTED
        except ValueError:
            return COMPUTED
    if call.name == "bool" and value is not None and not isinstance(value, Constant) and len(call.arguments) == 1:
        holds = truth(value)
        return unknown_of(value) if holds is None else Constant(holds)
    if not isinstance(value, Constant) or len(call.arguments) != 1:
        return unknown_of(value)
    found = converted(value, call.name)
    if isinstance(found, Unknown) and isinstance(value.value, str):
        raise_certainly(state, VALUE_ERROR)
    return found


_NUMERIC: dict[str, Callable[..., Any]] = {"max": max, "min": min, "abs": abs, "round": round, "sum": lambda *given: sum(given)}


@follows("max", "min", "abs", "round", "sum")
def _numeric(_: ProgramState, call: CallOf) -> Value:
    """`max`, `min`, `abs`, `round`, of numbers that are all known."""
    values = [one.value for one in call.arguments]
    if len(values) == 1 and (items := items_in(values[0])) is not None:
        values = [one.value for one in items]
    plain = [one for one in values if isinstance(one, Constant) and isinstance(one.value, int | float)]
    if len(plain) < len(values) or not plain or not call.complete or call.keywords:
        return unknown_of(*values)
    function = _NUMERIC[call.name]
    try:
        found = function(*(one.value for one in plain))
    except (TypeError, ValueError, OverflowError):
        return COMPUTED
    return Constant(found, any(one.soft for one in plain)) if isinstance(found, int | float) else COMPUTED


_LARGEST = 1e15
"""Larger numbers are not calculated with: floats hold whole numbers exactly up to 9e15, and sizes in bytes end below 1e15."""


_MATH: dict[str, Callable[..., Any]] = {
    **{f"math.{name}": getattr(math, name) for name in ("ceil", "floor", "sqrt", "log2", "log10", "log", "prod", "pow", "trunc", "gcd")},
    "divmod": divmod,
    "pow": pow,
    "hex": hex,
    "bin": bin,
    "oct": oct,
}


@follows(*_MATH)
def _math(_: ProgramState, call: CallOf) -> Value:
    """A function of `math`, and `divmod` and `pow`, of numbers that are known and not large."""
    values = [one.value for one in call.arguments]
    plain = [one.value for one in values if isinstance(one, Constant) and isinstance(one.value, int | float) and abs(one.value) < _LARGEST]
    if len(plain) < len(values) or call.keywords or not call.complete or (call.name == "pow" and abs(plain[-1]) > _LONGEST):
        return unknown_of(*values)
    try:
        found = _MATH[call.name](*plain)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        return COMPUTED
    soft = any(map(is_soft, values))
    if isinstance(found, tuple):
        return ListValue([entry_of(Constant(one, soft), call) for one in found], call.span)
    return Constant(found, soft) if isinstance(found, int | float | str) else COMPUTED
