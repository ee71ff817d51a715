"""Follow a program with its calls and its imports, and note the calls that concern DeepSpeed."""

from __future__ import annotations

import ast
import os
import posixpath
import sys
from collections.abc import Callable

from dslint.setup.files import find
from dslint.setup.programs.calls import Argument, CallOf
from dslint.setup.programs.dicts import OF_TABLE
from dslint.setup.programs.functions import Functions
from dslint.setup.programs.library import FUNCTIONS
from dslint.setup.programs.nodes import is_literal
from dslint.setup.programs.parsers import OF_CLASSES, OF_PARSER
from dslint.setup.programs.sources import Source, Sources, json_tree
from dslint.setup.programs.values import (
    Cells,
    Class,
    Function,
    Library,
    Module,
    Object,
    Opaque,
    Plain,
    Row,
    Scope,
    Table,
    Value,
)
from dslint.source.parse import parse
from dslint.source.read import ReadError, read
from dslint.source.tree import Mapping, Span

_MOST_MODULES = 40
_LARGEST_MODULE = 400_000

_LIBRARIES = frozenset("deepspeed torch transformers accelerate lightning pytorch_lightning peft trl datasets numpy ray wandb".split())


class Follower(Functions):
    """Follows a program. `receive` is told of each call of a library's function, with the arguments as they are at that time."""

    def __init__(self, sources: Sources, receive: Callable[[CallOf], Value | None], steps: int) -> None:
        super().__init__(steps)
        self.sources = sources
        self.receive = receive
        self.methods: list[tuple[str, Value, CallOf]] = []
        self._modules: dict[str, Module | None] = {}

    # ------------------------------------------------------------------ calls

    def call(self, node: ast.Call, scope: Scope) -> Value:
        """A call: of a function of the project, or of one of a library."""
        owner: Value | None = None
        if isinstance(node.func, ast.Attribute):
            owner = (self.opened if node.func.attr == "update" else self.value)(node.func.value, scope)
            called = self.attribute_of(owner, node.func.attr)
        else:
            called = self.value(node.func, scope)
        call = self._arguments(node, scope, called.name if isinstance(called, Library) else "")
        if owner is not None and not isinstance(called, Function | Class | Library) and isinstance(node.func, ast.Attribute):
            return self._method(owner, node.func.attr, call)
        if isinstance(called, Function):
            return self.enter(called, *_values(call), complete=call.complete)
        if isinstance(called, Class):
            return self._construct(called, call)
        if not isinstance(called, Library):
            return Opaque(called.why if isinstance(called, Opaque) else "it is computed")
        known = FUNCTIONS.get(called.name) or FUNCTIONS.get(_PARSERS.get(called.name.rpartition(".")[2], ""))
        if known is not None:
            return known(self, call)
        return self.receive(call) or Opaque(f"the function {called.name}, which is not in the project, returns it", called.name, call.span)

    def _arguments(self, node: ast.Call, scope: Scope, name: str) -> CallOf:
        call = CallOf(node, scope, name, scope.source.span(node), chosen=self.undecided > 0)
        for one in node.args:
            value = self.value(one, scope)
            span = scope.source.span(one)
            call.complete = call.complete and not isinstance(one, ast.Starred)
            call.arguments.append(Argument(value, span, span, is_literal(one), one))
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            if keyword.arg is not None:
                start = scope.source.offset(keyword.lineno, keyword.col_offset)
                at = Span(start, start + len(keyword.arg))
                call.keywords[keyword.arg] = Argument(value, scope.source.span(keyword.value), at, is_literal(keyword.value), keyword.value)
            elif isinstance(value, Table) and not value.open:
                call.keywords.update({key: Argument(one.value, one.span, one.key_span, one.literal) for key, one in value.cells.items()})
            else:
                call.complete = False
        return call

    def _construct(self, made: Class, call: CallOf) -> Value:
        base = _library_base(made)
        if base:
            call.name = f"{base}"
            self.receive(call)
        thing = self.instance(made, *_values(call), complete=call.complete)
        if base:
            thing.about = base
        return thing

    def _method(self, owner: Value, name: str, call: CallOf) -> Value:
        if isinstance(owner, Table):
            method = OF_TABLE.get(name)
            return method(self, owner, call) if method else Opaque("it is computed")
        if isinstance(owner, Row) and name in ("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"):
            owner.items = []
        if isinstance(owner, Plain) and isinstance(owner.value, str):
            return _of_string(owner, name, call)
        if isinstance(owner, Object):
            table = {"argparse": OF_PARSER, "classes": OF_CLASSES}.get(owner.kind, {})
            if name in table:
                return table[name](self, owner, call)
            if owner.kind == "file":
                return self._of_file(owner, name, call)
        self.methods.append((name, owner, call))
        if isinstance(owner, Opaque):
            return Opaque(owner.why, owner.made, owner.span)
        return Opaque(f".{name}() returns it")

    def _of_file(self, file: Object, name: str, call: CallOf) -> Value:
        path = file.cells.get("path")
        if not isinstance(path, Plain) or not isinstance(path.value, str):
            return Opaque("it is read from a file")
        text = call.plain("s", 0)
        if name == "write" and isinstance(text, str):
            made = self.json_text(text, call.span)
            if isinstance(made, Table):
                self.written[posixpath.normpath(path.value)] = made
        return self.json_file(path.value) if name == "read" else Opaque("it is computed")

    # ------------------------------------------------------------------ files

    def json_file(self, path: str, *, as_json: bool = True) -> Value:
        """The dict in a JSON file of the project; without `as_json` the program reads it with hjson."""
        made = self.written.get(posixpath.normpath(path))
        if made is not None:
            return self.copied(made)
        linked = find(path, self.sources.all[0].path)
        text = _text(linked.path) if linked else None
        if linked is None or text is None:
            return Opaque(f"{path}, which is not there")
        source = next((one for one in self.sources.all if one.shown == linked.shown), None)
        source = source or self.sources.add(text, linked.path, linked.shown)
        root = json_tree(source)
        if not isinstance(root, Mapping):
            return Opaque(f"{linked.shown} cannot be read")
        file = self.journal.cells()
        file["path"] = path
        if not as_json:
            file["hjson"] = True
        return self.of_tree(root, file, as_json=as_json)

    def json_text(self, text: str, written: Span) -> Value:
        """The dict in a JSON text: every value is placed at the text."""
        document = parse(text)
        if document.problems or not isinstance(document.root, Mapping):
            return Opaque("it is computed")
        table = self.of_tree(document.root)
        if isinstance(table, Table):
            _place(table, written)
        return table

    def lookup_import(self, name: str, level: int, scope: Scope) -> Value:
        """The module that an import names: one of the project, or a library."""
        first = name.partition(".")[0]
        if not level and (first in _LIBRARIES or first in sys.stdlib_module_names):
            return Library(name)
        beside = scope.source.path
        for _ in range(level - 1):
            beside = os.path.dirname(os.path.abspath(beside))
        below = name.replace(".", "/")
        for path in (f"{below}.py", f"{below}/__init__.py") if below else ("__init__.py",):
            linked = find(path, beside)
            if linked is not None:
                module = self._module(linked.path, linked.shown)
                if module is not None:
                    return module
        return Opaque(f"{'.' * level}{name}, which is not in the project") if level else Library(name)

    def _module(self, path: str, shown: str) -> Module | None:
        if shown in self._modules:
            return self._modules[shown]
        if shown == self.sources.all[0].shown or len(self._modules) >= _MOST_MODULES:
            return None
        self._modules[shown] = None
        text = _text(path)
        if text is None or len(text) > _LARGEST_MODULE:
            return None
        source = self.sources.add(text, path, shown)
        tree = source.parse()
        if tree is None:
            return None
        scope = Scope(self.journal.cells(), source)
        scope.cells["__file__"] = Plain(os.path.abspath(path).replace(os.sep, "/"))
        module = self._modules[shown] = Module(source, scope)
        self.block(tree.body, scope)
        return module


_PARSERS = {"HfArgumentParser": "transformers.HfArgumentParser", "TrlParser": "trl.TrlParser", "H4ArgumentParser": "trl.TrlParser"}


def _values(call: CallOf) -> tuple[list[Value], dict[str, Value]]:
    positional = [one.value for one in call.arguments if not isinstance(one.node, ast.Starred)]
    return positional, {name: one.value for name, one in call.keywords.items()}


def _library_base(made: Class, depth: int = 0) -> str:
    """The class of a library that a class inherits from; "" if there is none."""
    for base in made.bases:
        found = base.name if isinstance(base, Library) else _library_base(base, depth + 1) if isinstance(base, Class) and depth < 10 else ""
        if found:
            return found
    return ""


def _of_string(owner: Plain, name: str, call: CallOf) -> Value:
    text = str(owner.value)
    if name in ("lower", "upper", "strip") and not call.arguments:
        return Plain(getattr(text, name)(), owner.soft)
    if name in ("resolve", "absolute", "as_posix", "expanduser") and not call.arguments:
        return owner
    if name == "joinpath":
        parts = [one.value for one in call.arguments]
        if all(isinstance(part, Plain) and isinstance(part.value, str) for part in parts):
            return Plain(posixpath.join(text, *(str(part.value) for part in parts if isinstance(part, Plain))), owner.soft)
    if name == "open":
        cells = Cells(0)
        cells["path"] = owner
        return Object("file", cells, about="r")
    return Opaque("it is computed")


def _place(table: Table, span: Span) -> None:
    table.span = span
    for entry in table.cells.values():
        entry.key_span = entry.span = span
        entry.literal = False
        if isinstance(entry.value, Table):
            _place(entry.value, span)
        elif isinstance(entry.value, Row):
            entry.value.span = span


def _text(path: str) -> str | None:
    try:
        return read(path)
    except ReadError:
        return None


__all__ = ["Follower", "Source"]
