"""Files that a program opens, makes or writes."""

from __future__ import annotations

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.files import TEMPORARY, write_file
from dslint.evaluate.python.libraries.table import follows
from dslint.evaluate.python.strings import opened_file
from dslint.evaluate.values import NONE, Constant, Object, Unknown, Value


@follows("open", "io.open")
def _open(_: ProgramState, call: CallOf) -> Value:
    return opened_file(call.get("file", 0) or Unknown(), call.plain("mode", 1))


@follows("tempfile.NamedTemporaryFile")
def _temporary(_: ProgramState, call: CallOf) -> Value:
    return opened_file(Constant(f"{TEMPORARY} {call.span.start}>"), "w")


@follows("write_text")
def _write_text(state: ProgramState, call: CallOf) -> Value:
    write_file(state, call.arguments[0].value, call.arguments[1].value if len(call.arguments) > 1 else call.get("data"), call.span)
    return NONE


def path_of_file(file: Value | None) -> Value | None:
    """The path of an open file."""
    return file.cells.get("path") if isinstance(file, Object) else None
