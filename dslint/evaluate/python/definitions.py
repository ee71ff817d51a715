"""Definitions of functions and classes, and imports."""

from __future__ import annotations

import ast

from dslint.evaluate.python.click_options import given_by_click
from dslint.evaluate.python.command_flags import note_command
from dslint.evaluate.python.decorators import given_by
from dslint.evaluate.python.evaluate import AwaitedName, ProgramState, block, evaluate, statement
from dslint.evaluate.python.expressions import attribute_of, defaults_of
from dslint.evaluate.python.functions import enter, instance
from dslint.evaluate.python.modules import module_named
from dslint.evaluate.python.nodes import is_dataclass
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import Class, Function, Library, Module, Object, Scope, Unknown, Value

_LIKE_DATACLASSES = ("BaseModel", "BaseSettings", "NamedTuple")


@statement(ast.FunctionDef, ast.AsyncFunctionDef)
def _function(state: ProgramState, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
    function = Function(node, scope.source, scope, defaults=defaults_of(state, node, scope))
    function.given.update(given_by_click(state, node, scope))
    decorators: list[Value] = []
    for decorator in node.decorator_list:
        function.given.update(given_by(state, decorator, node, scope))
        decorators.append(evaluate(state, decorator, scope))
    note_command(state, node, scope)
    state.functions.append(function)
    made: Value = function
    for one in reversed(decorators):
        if isinstance(one, Function):  # those of libraries are taken to call the function as it is called
            made = enter(state, one, [made], {})
        elif isinstance(one, Class):
            made = instance(state, one, [made], {})
    accessors = [one.attr for one in node.decorator_list if isinstance(one, ast.Attribute) and one.attr in ("setter", "deleter")]
    state.journal.write(scope.cells, ".".join((node.name, *accessors[:1])), made)


@statement(ast.ClassDef)
def _class(state: ProgramState, node: ast.ClassDef, scope: Scope) -> None:
    decorators = [evaluate(state, decorator, scope) for decorator in node.decorator_list]
    bases = [evaluate(state, base, scope) for base in node.bases]
    inside = Scope(state.journal.cells(), scope.source, scope)
    fields = scope.source.parsed.fields(node)
    made = Class(node.name, inside.cells, bases, list(fields.names), is_dataclass(node), fields.lists, fields.switches)
    made.fields[:0] = [name for base in bases if isinstance(base, Class) for name in base.fields]
    made.dataclass = made.dataclass or any(_is_like_dataclass(base) for base in bases)
    state.journal.write(scope.cells, node.name, made)
    first = len(state.functions)
    block(state, node.body, inside)
    for function in state.functions[first:]:
        function.scope = scope
        function.this = function.owner = made
    for one in reversed(decorators):
        if isinstance(one, Function):
            state.journal.write(scope.cells, node.name, enter(state, one, [made], {}))


def _is_like_dataclass(base: Value) -> bool:
    if isinstance(base, Library):
        return base.name.endswith(_LIKE_DATACLASSES)
    return isinstance(base, Class) and base.dataclass


@statement(ast.Import)
def _import(state: ProgramState, node: ast.Import, scope: Scope) -> None:
    for alias in node.names:
        found = module_named(state, alias.name, 0, scope)
        first, *rest = alias.name.split(".")
        if alias.asname or not rest:
            state.journal.write(scope.cells, alias.asname or first, found)
        elif isinstance(found, Library):
            state.journal.write(scope.cells, first, Library(first))
        else:
            state.journal.write(scope.cells, first, _package(state, first, rest, found, scope))


def _package(state: ProgramState, first: str, rest: list[str], found: Value, scope: Scope) -> Value:
    """What `import first.a.b` binds to `first`: the package, with the module in it."""
    before = scope.cells.get(first)
    outer = module_named(state, first, 0, scope)
    owner: Value = (
        before if isinstance(before, Object | Module) else outer if isinstance(outer, Module) else Object(first, state.journal.cells())
    )
    here = owner
    for name in rest[:-1]:
        cells = here.scope.cells if isinstance(here, Module) else here.cells if isinstance(here, Object) else {}
        inner = cells.get(name)
        if not isinstance(inner, Object | Module):
            inner = cells[name] = Object(name, state.journal.cells())
        here = inner
    cells = here.scope.cells if isinstance(here, Module) else here.cells if isinstance(here, Object) else {}
    cells[rest[-1]] = found
    return owner


@statement(ast.ImportFrom)
def _import_from(state: ProgramState, node: ast.ImportFrom, scope: Scope) -> None:
    for alias in node.names:
        owner = module_named(state, node.module or "", node.level, scope)
        if alias.name != "*":
            found, name = _imported(state, owner, alias.name, node, scope), alias.asname or alias.name
            state.journal.write(scope.cells, name, found)
            _await(state, owner, alias.name, AwaitedName(scope.cells, name, found))
        elif isinstance(owner, Module):
            for name, found in owner.scope.cells.items():
                state.journal.write(scope.cells, name, found)


def _await(state: ProgramState, owner: Value, name: str, waiting: AwaitedName) -> None:
    """Remember a name that a module imports of one which is being imported itself, and defines it later."""
    reason = waiting.missing.reason if isinstance(waiting.missing, Unknown) else None
    if reason is None or reason.cause is not Cause.NOT_DEFINED:
        return
    # Some import it from a module that waits for it, too.
    others = next((cells for cells in state.awaited.values() if any(one.missing is waiting.missing for one in cells)), None)
    if others is None and isinstance(owner, Module) and owner.source.shown in state.loading:
        others = state.awaited.setdefault((owner.source.shown, name), [])
    if others is not None:
        others.append(waiting)


def _imported(state: ProgramState, owner: Value, name: str, node: ast.ImportFrom, scope: Scope) -> Value:
    """`from owner import name`."""
    if not isinstance(owner, Module) or name in owner.scope.cells:
        return attribute_of(state, owner, name)
    inner = module_named(state, f"{node.module}.{name}" if node.module else name, node.level, scope)
    return inner if isinstance(inner, Module) else Unknown(Reason(Cause.NOT_DEFINED, (name, owner.source.shown)))
