"""What one turn of a loop leaves to the next.

A loop of unknown length is followed by one turn, which stands for all. A plain value or a list that the loop sets is not known at the
start of this turn: `if step % 100 == 0` is decided otherwise in turn 100 than in the first. Dicts and objects keep the value of the first
turn: a config that crashes in that turn crashes.
"""

from __future__ import annotations

import ast

from dslint.evaluate.python.evaluate import ProgramState, block, evaluate
from dslint.evaluate.python.nodes import CHANGES_ROW, is_dotted
from dslint.evaluate.python.tables import set_items
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import Cells, Class, Constant, Entry, ListValue, Object, Scope, Unknown, path_of, tables_of


def forget_carried(state: ProgramState, body: list[ast.stmt], scope: Scope) -> None:
    """Forget the values before a loop of all that its body sets, outside of functions and classes in it."""
    for node in scope.source.parsed.changes(body):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            _forget(state, node, scope)
        elif isinstance(node, ast.AugAssign) and is_dotted(node.target):
            owner = evaluate(state, node.target, scope)
            if isinstance(owner, ListValue):
                set_items(state, owner, None, scope.source.span(node))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and is_dotted(node.value):
            _forget_item(state, node, scope)
        elif isinstance(node, ast.Attribute) and node.attr in CHANGES_ROW and is_dotted(node.value):
            owner = evaluate(state, node.value, scope)
            if isinstance(owner, ListValue):
                set_items(state, owner, None, scope.source.span(node))


def _forget_item(state: ProgramState, node: ast.Subscript, scope: Scope) -> None:
    """Forget the item of a dict or a list that a loop sets."""
    owner = evaluate(state, node.value, scope)
    if isinstance(owner, ListValue):
        set_items(state, owner, None, scope.source.span(node))
    name = node.slice.value if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str) else None
    for table in tables_of(owner) if name is not None else ():
        assert name is not None
        before = table.cells.get(name)
        if before is None or isinstance(before.value, Constant) or path_of(before.value) is not None:
            place = scope.source.span(node)
            options = (before.value,) if before is not None and path_of(before.value) is not None else ()
            unknown = Unknown(Reason(Cause.LOOP, (), place), options=options)
            state.journal.write(table.cells, name, Entry(unknown, place, place, perhaps=before is None or before.perhaps))


def forget_counters(state: ProgramState, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
    """Forget what a function counts up outside of it: a loop calls it, and each call leaves that to the next."""
    counters = scope.source.parsed.counters(node)
    if counters:
        block(state, [one for one in node.body if isinstance(one, ast.Global | ast.Nonlocal)], scope)
    for target in counters:
        if isinstance(target, ast.Attribute) or (isinstance(target, ast.Name) and target.id in scope.outer):
            _forget(state, target, scope)
        elif isinstance(target, ast.Subscript) and is_dotted(target.value):
            _forget_item(state, target, scope)


def _forget(state: ProgramState, target: ast.Name | ast.Attribute, scope: Scope) -> None:
    if isinstance(target, ast.Name):
        cells: Cells = scope.outer.get(target.id, scope.cells)
        name = target.id
    else:
        owner = evaluate(state, target.value, scope) if is_dotted(target) else None
        if not isinstance(owner, Object | Class):
            return
        cells, name = owner.cells, target.attr
    before = cells.get(name)
    if before is not None and (isinstance(before, Constant) or path_of(before) is not None):
        options = (before,) if path_of(before) is not None else ()
        state.journal.write(cells, name, Unknown(Reason(Cause.LOOP, (), scope.source.span(target)), options=options))
    elif isinstance(before, ListValue):
        state.journal.write(cells, name, Unknown(Reason(Cause.LOOP, (), scope.source.span(target))))
