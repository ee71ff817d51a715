"""JSON and YAML files that a program reads and writes."""

from __future__ import annotations

import os
import posixpath

from dslint.evaluate.files import find, find_checkout, is_outside
from dslint.evaluate.interpolation import interpolated, with_floats
from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.sources import tree_of
from dslint.evaluate.python.tables import copied, of_tree, whole
from dslint.evaluate.python.words import rewritten
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import COMPUTED, Constant, DictValue, ListValue, Object, Unknown, Value, path_of
from dslint.source.parse import parse
from dslint.source.read import ReadError, read
from dslint.source.store import store
from dslint.source.tree import Mapping, Sequence, Span, moved
from dslint.source.yaml_tree import parse_yaml

TEMPORARY = "<temporary file"
"""How the path of a temporary file begins: the system chooses its name."""


def json_file(state: ProgramState, path: str, *, as_json: bool = True, has_hook: bool = False) -> Value:
    """The dict in a JSON file of the project, or one that the program writes; without `as_json` the program reads it with hjson.

    With `has_hook` a function of the program makes the dicts, such as the one of DeepSpeed that raises for a duplicate key.
    """
    made = written_at(state, path)
    if made is not None:
        return copied(state, made)
    beside = state.sources.all[0].path
    if posixpath.normpath(path) in rewritten(state.flags):
        return Unknown(Reason(Cause.NO_FILE, (path,)))
    linked = find(path, beside) or (find_checkout(path, beside) if path.startswith("/") else None)
    text = text_of(linked.path) if linked else None
    if linked is None or text is None:
        return Unknown(_no_file(path, beside))
    source = state.sources.known(linked.shown) or state.sources.add(text, linked.path, linked.shown)
    is_template = linked.path.endswith((".jinja", ".jinja2", ".j2"))  # as of a chat: none is JSON, and recovering from that takes long
    root = None if is_template else tree_of(source, store().parsed(("json", source.text), lambda: parse(source.text)))
    if not isinstance(root, Mapping):
        length = len(root.items) if isinstance(root, Sequence) else None
        return Unknown(Reason(Cause.BROKEN_FILE, (linked.shown,)), length=length)
    file = state.journal.cells()
    file["path"] = path
    if not as_json:
        file["hjson"] = True
        if not has_hook:
            file["keeps_last"] = True
    return of_tree(state, root, file, as_json=as_json)


def yaml_file(
    state: ProgramState, path: str, *, beside: str | None = None, of_omegaconf: bool = False, interpolates: bool = False
) -> Value:
    """The value in a YAML file of the project, as OmegaConf reads numbers if it does. With `interpolates` `${a.b}` is the value there."""
    linked = find(path, beside or state.sources.all[0].path)
    text = text_of(linked.path) if linked else None
    if linked is None or text is None:
        return Unknown(_no_file(path, beside or state.sources.all[0].path))
    document = parse_yaml(text)
    if document.problems or document.root is None:
        return Unknown(Reason(Cause.BROKEN_FILE, (linked.shown,)))
    source = state.sources.known(linked.shown) or state.sources.add(text, linked.path, linked.shown)
    root = (interpolated(document, {}).root if interpolates else None) or document.root
    root = with_floats(root) if of_omegaconf else root
    return of_tree(state, moved(root, source.base))


def _no_file(path: str, beside: str) -> Reason:
    """Why the file that a program beside another file names is not read."""
    if not path:
        return Reason(Cause.NO_PATH)
    return Reason(Cause.OUTSIDE if is_outside(path, beside) else Cause.NO_FILE, (path,))


def written_at(state: ProgramState, path: str) -> DictValue | None:
    """The dict that the program writes to a file."""
    return state.written.get(posixpath.normpath(path))


def json_text(state: ProgramState, text: str, written: Span) -> Value:
    """The dict in a JSON text: every value is placed at the text."""
    document = parse(text)
    if document.problems or not isinstance(document.root, Mapping):
        return COMPUTED
    table = of_tree(state, document.root)
    if isinstance(table, DictValue):
        _place(table, written)
    return table


def _place(table: DictValue, span: Span) -> None:
    table.span = span
    for entry in table.cells.values():
        entry.key_span = entry.span = span
        entry.literal = False
        if isinstance(entry.value, DictValue):
            _place(entry.value, span)
        elif isinstance(entry.value, ListValue):
            entry.value.span = span


def write_file(state: ProgramState, path: Value, content: Value | None, written: Span) -> None:
    """Note what the program writes to a file, if it is a dict or its text."""
    name = path_of(path)
    if name is None:
        return
    if isinstance(content, Constant) and isinstance(content.value, str):
        content = json_text(state, content.value, written)
    content = whole(state, content) if content is not None else None
    if isinstance(content, DictValue):
        state.written[posixpath.normpath(name)] = copied(state, content)


def method_of_file(state: ProgramState, file: Object, name: str, call: CallOf) -> Value:
    """The result of a method of an open file."""
    path = file.cells.get("path")
    if (at := path_of(path)) is None:
        return Unknown(path.reason if isinstance(path, Unknown) and path.reason else Reason(Cause.FILE))
    if name == "write":
        write_file(state, Constant(at), call.get("s", 0), call.span)
    return json_file(state, at) if name == "read" else COMPUTED


def exists(state: ProgramState, path: str) -> bool:
    """Whether a path names a file of the project, or one that the program writes."""
    return written_at(state, path) is not None or find(path, state.sources.all[0].path) is not None


def text_of(path: str) -> str | None:
    """The text of a file, which is read once a run; None if it cannot be read."""
    return store().found(("text", os.path.abspath(path)), lambda: _read(path))


def _read(path: str) -> str | None:
    try:
        return read(path)
    except ReadError:
        return None
