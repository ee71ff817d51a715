"""copy."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from functools import reduce

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import ProgramState, evaluate
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
    source = _taken_from(state, call) if call.name == "copy.deepcopy" else None
    maker = made_by(source) or made
    if maker and call.name == "copy.deepcopy" and is_noted(name := f"{maker}.deepcopy"):
        state.note(replace(call, name=name), source or value)
    if isinstance(value, Unknown) and call.name == "copy.deepcopy" and _MODELS.fullmatch(made):
        return replace(value, span=call.span, turn=0)
    if isinstance(value, ListValue):
        return copied_row(state, value) if call.name == "copy.deepcopy" else ListValue(list(value.items), call.span, changed=value.changed)
    copy = copied_flat if call.name == "copy.copy" else copied
    copies: list[Value] = [copy(state, one) for one in tables_of(value)]
    return reduce(state.journal.joined, copies) if copies else _copied_object(state, value, deep=call.name == "copy.deepcopy")


_HOLDERS = frozenset({"list", "tuple", "ModuleList", "nn.ModuleList", "torch.nn.ModuleList"})


def _taken_from(state: ProgramState, call: CallOf) -> Value | None:
    """The model that the copied layers are taken out of: `model.layers[-2:]`, `nn.ModuleList(list(model.layers)[-2:])`."""
    written = node = call.arguments[0].node if call.arguments else None
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Call) and ast.unparse(node.func) in _HOLDERS and len(node.args) == 1):
        node = node.value if isinstance(node, ast.Subscript) else node.args[0]
    if node is None or node is written or not isinstance(node, ast.Attribute):
        return None
    found = evaluate(state, node, call.scope)
    return found if _MODELS.fullmatch(made_by(found)) else None


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
