"""Loops and comprehensions. Over a short list that is known they are followed item by item."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial

from dslint.evaluate.python.assigning import assign
from dslint.evaluate.python.carried import forget_carried
from dslint.evaluate.python.evaluate import ProgramState, block, evaluate, expression, statement
from dslint.evaluate.python.events import item_in_turn
from dslint.evaluate.python.functions import GENERATOR, collected, run_generator
from dslint.evaluate.python.nodes import is_literal, leaves_loop, own_nodes
from dslint.evaluate.python.tables import as_set, certain_items, items_of, known_among, leave_open, merge, new_table, number_of
from dslint.evaluate.reasons import IS_COMPUTED, Cause, Reason
from dslint.evaluate.values import COMPUTED, Constant, Entry, ListValue, Object, Scope, Unknown, Value, is_soft, truth
from dslint.source.tree import Span

_MOST_TURNS = 40
"""How many turns of a loop are followed one by one. Of 713 loops over known items in 12 public repositories, axolotl, LLaMA-Factory and TRL
the longest has 29."""

_STEPS_PER_TURN = 5
"""What a turn of a comprehension costs besides what it evaluates, so that comprehensions in each other end."""

_LARGEST_BODY = 60
"""The most nodes of a `while` loop that is followed turn by turn: one that computes a setting is short, one that trains is not."""
_NOWHERE = Span(0, 0)


@statement(ast.For, ast.AsyncFor)
def _for(state: ProgramState, node: ast.For | ast.AsyncFor, scope: Scope) -> bool:
    found = evaluate(state, node.iter, scope)
    if isinstance(found, Object) and found.kind == GENERATOR and not leaves_loop(node.body):
        _over_generator(state, node, found, scope)
        return block(state, node.orelse, scope)
    found = collected(state, found, scope.source.span(node.iter))
    items = items_of(found)
    if items is not None:
        mark, before = state.journal.mark, set(state.perhaps_left)
        ends = _over_items(state, node, items, scope)
        if ends is not None:
            return ends == "" and block(state, node.orelse, scope) if ends in ("", "return", "raise") else True
        state.journal.undo(mark)
        state.perhaps_left = before
    state.loops += 1
    _any_turns(state, node, scope, item_in_turn(found, Reason(Cause.LOOP, (), scope.source.span(node.target))))
    state.loops -= 1
    return True


def _over_items(state: ProgramState, node: ast.For | ast.AsyncFor, items: list[Entry], scope: Scope) -> str | None:
    """Follow the turns of a loop over known items. Returns how they end, None if only the run knows."""
    state.loops += 1
    try:
        for item in items:
            if item.perhaps:
                _perhaps(state, partial(_turn, state, node, item, scope), node.iter, scope)
            elif not _turn(state, node, item, scope) and state.left != "continue":
                return state.left
            if state.perhaps_left & {"break", "continue"}:
                return None
        return ""
    finally:
        state.loops -= 1


def _turn(state: ProgramState, node: ast.For | ast.AsyncFor, item: Entry, scope: Scope) -> bool:
    assign(state, node.target, item.value, node.iter, scope)
    return block(state, node.body, scope)


def _over_generator(state: ProgramState, node: ast.For | ast.AsyncFor, found: Object, scope: Scope) -> None:
    """Follow the body of a loop at each `yield` of a generator."""
    repeated = state.repeated

    def consume(given: Value) -> None:
        if state.repeated > repeated:
            forget_carried(state, node.body, scope)
        assign(state, node.target, given, node.iter, scope)
        state.loops += 1
        block(state, node.body, scope)
        state.loops -= 1

    run_generator(state, found, consume)


def _perhaps(state: ProgramState, follow: Callable[[], object], decides: ast.expr, scope: Scope) -> None:
    """Follow what happens perhaps."""
    mark = state.journal.mark
    state.undecided += 1
    follow()
    state.undecided -= 1
    after = state.journal.undo(mark)
    state.journal.condition = Reason(Cause.CONDITION, (), scope.source.span(decides))
    state.journal.join(after, {})


@statement(ast.While)
def _while(state: ProgramState, node: ast.While, scope: Scope) -> bool:
    mark, before, steps = state.journal.mark, set(state.perhaps_left), state.steps
    if state.attempts > 0 and sum(1 for _ in own_nodes(node.body)) <= _LARGEST_BODY:
        ends = _known_turns(state, node, scope)
        if ends is not None:
            return ends == "" and block(state, node.orelse, scope) if ends in ("", "return", "raise") else True
        state.journal.undo(mark)
        state.attempts -= steps - state.steps  # a loop around another, or around a call of its own function, multiplies them
        state.perhaps_left, state.steps = before, steps - 1
    state.loops += 1
    _any_turns(state, node, scope)
    state.loops -= 1
    return True


def _known_turns(state: ProgramState, node: ast.While, scope: Scope) -> str | None:
    """Follow the turns of a loop whose condition is known each time. Returns how they end, None if only the run knows."""
    state.loops += 1
    try:
        for _ in range(_MOST_TURNS):
            test = evaluate(state, node.test, scope)
            holds = truth(test)
            if holds is None or is_soft(test):
                return None
            if not holds:
                return ""
            if not block(state, node.body, scope) and state.left != "continue":
                return state.left
            if state.perhaps_left:
                return None
        return None
    finally:
        state.loops -= 1


def _any_turns(state: ProgramState, node: ast.For | ast.AsyncFor | ast.While, scope: Scope, item: Value | None = None) -> None:
    """Follow the body of a loop once, for a turn that may be any of them, or none."""
    mark, before = state.journal.mark, set(state.perhaps_left)
    forget_carried(state, node.body, scope)
    if isinstance(node, ast.While):
        test = evaluate(state, node.test, scope)
        if truth(test) is False and not is_soft(test):
            state.journal.undo(mark)
            block(state, node.orelse, scope)
            return
    elif item is not None:
        assign(state, node.target, item, node.iter, scope)
    state.repeated += 1
    state.left = ""
    goes_on = block(state, node.body, scope)
    state.repeated -= 1
    after = state.journal.undo(mark)
    state.journal.condition = Reason(Cause.CONDITION, (), scope.source.span(node.test if isinstance(node, ast.While) else node.iter))
    state.journal.join(after, {})
    state.perhaps_left = (state.perhaps_left - {"break", "continue"}) | before
    state.perhaps_left |= {"return"} if not goes_on and state.left == "return" else set()
    if node.orelse and any(isinstance(one, ast.Break) for one in own_nodes(node.body)):
        _perhaps(state, lambda: block(state, node.orelse, scope), _decides(node), scope)
    else:
        block(state, node.orelse, scope)


def _decides(node: ast.For | ast.AsyncFor | ast.While) -> ast.expr:
    return node.test if isinstance(node, ast.While) else node.iter


@expression(ast.Yield)
def _yield(state: ProgramState, node: ast.Yield, scope: Scope) -> Value:
    found = evaluate(state, node.value, scope)
    if state.consumers:
        _give(state, found)
    return Unknown(Reason(Cause.GENERATOR, (), scope.source.span(node)))


@expression(ast.YieldFrom)
def _yield_from(state: ProgramState, node: ast.YieldFrom, scope: Scope) -> Value:
    found = evaluate(state, node.value, scope)
    if isinstance(found, Object) and found.kind == GENERATOR:
        run_generator(state, found, lambda given: _give(state, given) if state.consumers else None)
    elif state.consumers:
        items = certain_items(found)
        for one in items or ():
            _give(state, one.value)
        if items is None:
            state.repeated += 1
            _perhaps(state, lambda: _give(state, Unknown(Reason(Cause.GENERATOR, (), scope.source.span(node)))), node.value, scope)
            state.repeated -= 1
    return COMPUTED


def _give(state: ProgramState, found: Value) -> None:
    """Give a value to what goes over the generator that is followed."""
    consumer = state.consumers.pop()
    left, state.perhaps_left = state.perhaps_left, set()
    try:
        consumer(found)
    finally:
        state.consumers.append(consumer)
        state.perhaps_left = left


@expression(ast.ListComp, ast.GeneratorExp)
def _list_comprehension(state: ProgramState, node: ast.ListComp | ast.GeneratorExp, scope: Scope) -> Value:
    found: list[Entry] = []
    over = _gone_over(state, node.generators[0], scope)
    for inside in _turns(state, node.generators, scope, over):
        if inside is None or len(found) >= _MOST_TURNS:
            evaluate(state, node.elt, _unknown(state, node.generators, scope))
            takes_all = len(node.generators) == 1 and not node.generators[0].ifs and isinstance(node, ast.ListComp)
            return Unknown(IS_COMPUTED, length=number_of(over) if takes_all else None)
        found.append(Entry(evaluate(state, node.elt, inside), _NOWHERE, scope.source.span(node.elt), is_literal(node.elt)))
    return ListValue(found, scope.source.span(node))


@expression(ast.SetComp)
def _set_comprehension(state: ProgramState, node: ast.SetComp, scope: Scope) -> Value:
    found = evaluate(state, ast.copy_location(ast.ListComp(node.elt, node.generators), node), scope)
    return as_set(found.items, found.span) if isinstance(found, ListValue) else found


@expression(ast.DictComp)
def _dict_comprehension(state: ProgramState, node: ast.DictComp, scope: Scope) -> Value:
    over = _gone_over(state, node.generators[0], scope)
    if len(node.generators) == 1 and isinstance(over, Unknown) and _is_weight(node.value, node.generators[0].target):
        weights, _, method = over.made.rpartition(".")
        if method in ("state_dict", "named_parameters"):
            return Unknown(IS_COMPUTED, f"{weights}.state_dict", over.span)
    made = new_table(state, scope.source.span(node))
    if _keeps_keys(node) and (known := known_among(over)) is not None:
        leave_open(state, made, known.reason or IS_COMPUTED)
        over = ListValue(known.among, known.span)
    for inside in _turns(state, node.generators, scope, over):
        turn = inside or _unknown(state, node.generators, scope)
        name, found = evaluate(state, node.key, turn), evaluate(state, node.value, turn)
        if inside is not None and isinstance(name, Constant) and isinstance(name.value, str):
            made.cells[name.value] = Entry(found, scope.source.span(node.key), scope.source.span(node.value), is_literal(node.value))
        else:
            merge(state, made, Unknown(), Reason(Cause.COMPUTED_KEY, (), scope.source.span(node)))
    return made


def _keeps_keys(node: ast.DictComp) -> bool:
    """Whether a comprehension gives items of a dict the keys that they have: `{k: v for k, v in given.items() if k in names}`."""
    if len(node.generators) > 1:
        return False
    target = node.generators[0].target
    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
    return isinstance(node.key, ast.Name) and isinstance(first, ast.Name) and node.key.id == first.id


def _is_weight(value: ast.expr, target: ast.expr) -> bool:
    """Whether a comprehension over names and weights keeps each weight: itself, or `weight.detach().cpu()`. A function may gather it."""
    while isinstance(value, ast.Attribute | ast.Call):
        value = value.value if isinstance(value, ast.Attribute) else value.func
    pair = target.elts if isinstance(target, ast.Tuple) and len(target.elts) == 2 else []
    return isinstance(value, ast.Name) and any(isinstance(one, ast.Name) and one.id == value.id for one in pair[1:])


def _gone_over(state: ProgramState, generator: ast.comprehension, scope: Scope) -> Value:
    """What a comprehension goes over."""
    return collected(state, evaluate(state, generator.iter, scope), scope.source.span(generator.iter))


def _turns(state: ProgramState, generators: list[ast.comprehension], scope: Scope, over: Value | None = None) -> Iterator[Scope | None]:
    """The scopes in which the element of a comprehension is evaluated, one turn after the other; None stands for any turns."""
    first, *rest = generators
    items = items_of(over if over is not None else _gone_over(state, first, scope))
    if items is None:
        yield None
        return
    state.steps -= len(items) * _STEPS_PER_TURN
    inside = Scope(state.journal.cells(), scope.source, scope, is_turn=True)
    for item in items:
        assign(state, first.target, item.value, first.iter, inside)
        tests = [truth(evaluate(state, test, inside)) for test in first.ifs]
        if False in tests:
            continue
        if None in tests or item.perhaps:
            yield None
        elif rest:
            yield from _turns(state, rest, inside)
        else:
            yield inside


def _unknown(state: ProgramState, generators: list[ast.comprehension], scope: Scope) -> Scope:
    """A scope in which the variables of a comprehension are not known."""
    inside = Scope(state.journal.cells(), scope.source, scope, is_turn=True)
    for one in generators:
        assign(state, one.target, Unknown(Reason(Cause.LOOP, (), scope.source.span(one.target))), one.iter, inside)
    return inside
