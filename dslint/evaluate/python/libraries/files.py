"""Files that a program opens, makes or writes."""

from __future__ import annotations

from dataclasses import replace

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.files import TEMPORARY, write_file
from dslint.evaluate.python.libraries.table import follows
from dslint.evaluate.python.strings import opened_file
from dslint.evaluate.python.words import LOCAL_RANK, WORDS_PARSED
from dslint.evaluate.values import NONE, Constant, Object, Unknown, Value, path_of


@follows("open", "io.open")
def _open(state: ProgramState, call: CallOf) -> Value:
    path = call.get("file", 0) or Unknown()
    note_rank_as_path(state, call, path)
    return opened_file(path, call.plain("mode", 1))


def note_rank_as_path(state: ProgramState, call: CallOf, path: Value | None) -> None:
    """Note that a program reads the first word of its launch as a file, where that is the rank which DeepSpeed's launcher passes."""
    name = path_of(path)
    if name is not None and name.rpartition("/")[2] == LOCAL_RANK:
        state.note(replace(call, name=WORDS_PARSED, arguments=[], keywords={"path": Argument(Constant(name), call.span, call.span)}), None)


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
