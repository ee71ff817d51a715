"""copy."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import reduce

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.events import is_noted, made_by
from dslint.evaluate.python.functions import GENERATOR
from dslint.evaluate.python.libraries.table import follows
from dslint.evaluate.python.tables import copied, copied_flat, copied_row
from dslint.evaluate.values import DictValue, ListValue, Object, Unknown, Value, tables_of
from dslint.job.events import MODELS

_MODELS = re.compile(MODELS)


@follows("copy.deepcopy", "copy.copy")
def _copied(state: ProgramState, call: CallOf) -> Value:
    value = call.arguments[0].value if call.arguments else Unknown()
    made = made_by(value)
    if made and call.name == "copy.deepcopy" and is_noted(name := f"{made}.deepcopy"):
        state.note(replace(call, name=name), value)
    if isinstance(value, Unknown) and call.name == "copy.deepcopy" and _MODELS.fullmatch(made):
        return replace(value, span=call.span, turn=0)
    if isinstance(value, ListValue):
        return copied_row(state, value) if call.name == "copy.deepcopy" else ListValue(list(value.items), call.span, changed=value.changed)
    copy = copied_flat if call.name == "copy.copy" else copied
    copies: list[Value] = [copy(state, one) for one in tables_of(value)]
    return reduce(state.journal.joined, copies) if copies else _copied_object(state, value, deep=call.name == "copy.deepcopy")


_DEEPEST = 8
"""How many objects in each other are copied; one may hold itself."""


def _copied_object(state: ProgramState, value: Value, *, deep: bool, depth: int = 0) -> Value:
    """A copy of an object, which shares nothing that can change if it is `deep`."""
    if not isinstance(value, Object) or value.kind == GENERATOR or depth > _DEEPEST:
        return value
    made = Object(value.kind, state.journal.cells(), value.type, value.about, value.reason)
    for name, one in value.cells.items():
        made.cells[name] = _copied_part(state, one, depth + 1) if deep else one
    return made


def _copied_part(state: ProgramState, value: Value, depth: int) -> Value:
    if isinstance(value, DictValue):
        return copied(state, value)
    return _copied_object(state, value, deep=True, depth=depth) if isinstance(value, Object) else copied_row(state, value)
