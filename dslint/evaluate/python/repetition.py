"""Loops and comprehensions. Over a short list that is known they are followed item by item."""

from __future__ import annotations

import ast

from dslint.evaluate.python.carried import forget_carried
from dslint.evaluate.python.evaluate import State, block, evaluate, expression, statement
from dslint.evaluate.python.nodes import is_literal, leaves_loop
from dslint.evaluate.python.statements import assign
from dslint.evaluate.python.tables import new_table
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import COMPUTED, Constant, DictValue, Entry, ListValue, Scope, Unknown, Value, truth
from dslint.source.tree import Span

_MOST_TURNS = 40
_STEPS_PER_TURN = 5
_NOWHERE = Span(0, 0)


@statement(ast.For, ast.AsyncFor)
def _for(state: State, node: ast.For | ast.AsyncFor, scope: Scope) -> None:
    items = items_of(evaluate(state, node.iter, scope))
    state.loops += 1
    if items is not None and not leaves_loop(node.body):
        for item in items:
            assign(state, node.target, item.value, node.iter, scope)
            block(state, node.body, scope)
    else:
        assign(state, node.target, Unknown(Reason(Cause.LOOP, (), scope.source.span(node.target))), node.iter, scope)
        _any_turns(state, node, scope)
    state.loops -= 1
    block(state, node.orelse, scope)


@statement(ast.While)
def _while(state: State, node: ast.While, scope: Scope) -> None:
    evaluate(state, node.test, scope)
    state.loops += 1
    _any_turns(state, node, scope)
    state.loops -= 1
    block(state, node.orelse, scope)


def _any_turns(state: State, node: ast.For | ast.AsyncFor | ast.While, scope: Scope) -> None:
    """Follow the body of a loop once, for a turn that may be any of them, or none."""
    mark = state.journal.mark
    forget_carried(state, node.body, scope)
    state.repeated += 1
    block(state, node.body, scope)
    state.repeated -= 1
    after = state.journal.undo(mark)
    state.journal.condition = Reason(Cause.CONDITION, (), scope.source.span(node.test if isinstance(node, ast.While) else node.iter))
    state.journal.join(after, {})


def items_of(found: Value) -> list[Entry] | None:
    """The items of a value that a loop goes over; None if they are not known, or many."""
    if isinstance(found, ListValue):
        return found.items if len(found.items) <= _MOST_TURNS and not found.changed else None
    if isinstance(found, DictValue) and not found.open and len(found.cells) <= _MOST_TURNS:
        return [Entry(Constant(name), entry.key_span, entry.key_span) for name, entry in found.cells.items()]
    return None


@expression(ast.ListComp, ast.GeneratorExp)
def _list_comprehension(state: State, node: ast.ListComp | ast.GeneratorExp, scope: Scope) -> Value:
    found: list[Entry] = []
    for inside in _turns(state, node.generators, scope):
        if inside is None:
            evaluate(state, node.elt, _unknown(state, node.generators, scope))
            return COMPUTED
        found.append(Entry(evaluate(state, node.elt, inside), _NOWHERE, scope.source.span(node.elt), is_literal(node.elt)))
    return ListValue(found, scope.source.span(node))


@expression(ast.DictComp)
def _dict_comprehension(state: State, node: ast.DictComp, scope: Scope) -> Value:
    made = new_table(state, scope.source.span(node))
    for inside in _turns(state, node.generators, scope):
        turn = inside or _unknown(state, node.generators, scope)
        name, found = evaluate(state, node.key, turn), evaluate(state, node.value, turn)
        if isinstance(name, Constant) and isinstance(name.value, str):
            made.cells[name.value] = Entry(found, scope.source.span(node.key), scope.source.span(node.value), is_literal(node.value))
        else:
            made.open["more"] = True
    return made


def _turns(state: State, generators: list[ast.comprehension], scope: Scope) -> list[Scope | None]:
    """The scopes in which the element of a comprehension is evaluated; None stands for turns that are not known."""
    first, *rest = generators
    items = items_of(evaluate(state, first.iter, scope))
    if items is None:
        return [None]
    found: list[Scope | None] = []
    state.steps -= len(items) * _STEPS_PER_TURN
    for item in items:
        inside = Scope(state.journal.cells(), scope.source, scope)
        assign(state, first.target, item.value, first.iter, inside)
        tests = [truth(evaluate(state, test, inside)) for test in first.ifs]
        if False in tests:
            continue
        found += [None] if None in tests else _turns(state, rest, inside) if rest else [inside]
    return found if len(found) <= _MOST_TURNS else [None]


def _unknown(state: State, generators: list[ast.comprehension], scope: Scope) -> Scope:
    """A scope in which the variables of a comprehension are not known."""
    inside = Scope(state.journal.cells(), scope.source, scope)
    for one in generators:
        assign(state, one.target, Unknown(Reason(Cause.LOOP, (), scope.source.span(one.target))), one.iter, inside)
    return inside
