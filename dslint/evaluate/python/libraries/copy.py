"""copy."""

from __future__ import annotations

from functools import reduce

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.libraries.table import follows
from dslint.evaluate.python.tables import copied, copied_flat, copied_row
from dslint.evaluate.values import DictValue, ListValue, Object, Unknown, Value, tables_of


@follows("copy.deepcopy", "copy.copy")
def _copied(state: ProgramState, call: CallOf) -> Value:
    value = call.arguments[0].value if call.arguments else Unknown()
    if isinstance(value, ListValue):
        return copied_row(state, value) if call.name == "copy.deepcopy" else ListValue(list(value.items), call.span, changed=value.changed)
    copy = copied_flat if call.name == "copy.copy" else copied
    copies: list[Value] = [copy(state, one) for one in tables_of(value)]
    return reduce(state.journal.joined, copies) if copies else _copied_object(state, value, deep=call.name == "copy.deepcopy")


def _copied_object(state: ProgramState, value: Value, *, deep: bool) -> Value:
    """A copy of an object of a class of the project, which shares nothing that can change."""
    if not isinstance(value, Object) or value.type is None:
        return value
    made = Object(value.kind, state.journal.cells(), value.type, value.about, value.reason)
    for name, one in value.cells.items():
        made.cells[name] = copied(state, one) if deep and isinstance(one, DictValue) else copied_row(state, one) if deep else one
    return made
