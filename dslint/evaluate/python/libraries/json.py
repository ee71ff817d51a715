"""json and hjson."""

from __future__ import annotations

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.files import json_file, json_text, write_file
from dslint.evaluate.python.libraries.files import path_of_file
from dslint.evaluate.python.libraries.table import first_argument, follows, unknown_of
from dslint.evaluate.python.tables import copied, whole
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import NONE, Constant, DictValue, Unknown, Value, path_of


@follows("json.load", "hjson.load")
def _json_load(state: ProgramState, call: CallOf) -> Value:
    file = call.get("fp", 0)
    path = path_of_file(file)
    if (name := path_of(path)) is not None:
        return json_file(state, name, as_json=not call.name.startswith("hjson"), has_hook=call.get("object_pairs_hook") is not None)
    return unknown_of(path, file, reason=Reason(Cause.FILE))


@follows("json.loads", "hjson.loads")
def _json_text(state: ProgramState, call: CallOf) -> Value:
    text = whole(state, call.get("s", 0) or Unknown())
    if isinstance(text, DictValue):
        return copied(state, text)
    if isinstance(text, Constant) and isinstance(text.value, str):
        return json_text(state, text.value, call.arguments[0].span if call.arguments else call.span)
    return unknown_of(text)


@follows("json.dump")
def _json_dump(state: ProgramState, call: CallOf) -> Value:
    write_file(state, path_of_file(call.get("fp", 1)) or Unknown(), call.get("obj", 0), call.span)
    return NONE


@follows("json.dumps")
def _json_of(state: ProgramState, call: CallOf) -> Value:
    """The text of a value stands for the value: what reads it gets the value back."""
    return first_argument(state, call)
