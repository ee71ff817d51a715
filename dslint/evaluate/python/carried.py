"""What one turn of a loop leaves to the next.

A loop of unknown length is followed by one turn, which stands for all. A number, a boolean or None that the loop sets is not known at
the start of this turn: `if step % 100 == 0` is decided otherwise in turn 100 than in the first. Texts, dicts and objects keep the value
of the first turn: a config that crashes in that turn crashes.
"""

from __future__ import annotations

import ast

from dslint.evaluate.python.evaluate import State, evaluate
from dslint.evaluate.python.nodes import is_dotted
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import Cells, Class, Constant, Object, Scope, Unknown


def forget_carried(state: State, body: list[ast.stmt], scope: Scope) -> None:
    """Forget the values before a loop of all that its body sets, outside of functions and classes in it."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            _forget(state, node, scope)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def forget_counters(state: State, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
    """Forget the attributes that a function counts up: a loop calls it, and each call leaves them to the next."""
    if node not in state.counters:
        counted = (one.target for one in ast.walk(node) if isinstance(one, ast.AugAssign))
        state.counters[node] = [target for target in counted if isinstance(target, ast.Attribute)]
    for target in state.counters[node]:
        _forget(state, target, scope)


def _forget(state: State, target: ast.Name | ast.Attribute, scope: Scope) -> None:
    if isinstance(target, ast.Name):
        cells: Cells = scope.outer.get(target.id, scope.cells)
        name = target.id
    else:
        owner = evaluate(state, target.value, scope) if is_dotted(target) else None
        if not isinstance(owner, Object | Class):
            return
        cells, name = owner.cells, target.attr
    before = cells.get(name)
    if isinstance(before, Constant) and not isinstance(before.value, str):
        state.journal.write(cells, name, Unknown(Reason(Cause.LOOP, (), scope.source.span(target))))
