"""functools and contextlib."""

from __future__ import annotations

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.functions import enter
from dslint.evaluate.python.libraries.table import follows, row_in, unknown_of
from dslint.evaluate.values import COMPUTED, Class, Function, Library, Object, Value


@follows("functools.partial")
def _partial(_: ProgramState, call: CallOf) -> Value:
    return Object("partial", call.scope.cells.__class__(0), about=call) if call.arguments else COMPUTED


@follows("functools.reduce")
def _reduce(state: ProgramState, call: CallOf) -> Value:
    """`functools.reduce(function, items)` with a function of the project."""
    function, items = call.get("function", 0), row_in(call.arguments[1].value) if len(call.arguments) > 1 else None
    values = [one.value for one in (*call.arguments[2:], *(items or ()))]
    if items is None or not isinstance(function, Function) or not values:
        return unknown_of(*(one.value for one in call.arguments[1:]))
    result: Value = values[0]
    for one in values[1:]:
        result = enter(state, function, [result, one], {})
    return result


@follows("contextlib.suppress")
def _suppress(state: ProgramState, call: CallOf) -> Value:
    """`contextlib.suppress(...)`."""
    names = frozenset(one.value.name for one in call.arguments if isinstance(one.value, Class | Library))
    return Object("suppress", state.journal.cells(), about=names)
