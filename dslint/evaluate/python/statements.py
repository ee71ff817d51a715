"""Statements in their order. Where a condition is not known both branches are followed, and then joined."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.evaluate import State, block, evaluate, statement
from dslint.evaluate.python.expressions import item_of, operate
from dslint.evaluate.python.journal import Changes
from dslint.evaluate.python.nodes import is_literal, is_main
from dslint.evaluate.python.rank_conditions import selects_ranks
from dslint.evaluate.python.tables import mark_changed, merge, new_table
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import (
    COMPUTED,
    Class,
    Constant,
    Entry,
    Library,
    ListValue,
    Object,
    Scope,
    Unknown,
    Value,
    is_soft,
    tables_of,
    truth,
)
from dslint.job.events import Condition
from dslint.source.tree import Span


@statement(ast.Return, ast.Raise, ast.Break, ast.Continue)
def _leave(state: State, node: ast.Return | ast.Raise | ast.Break | ast.Continue, scope: Scope) -> bool:
    if isinstance(node, ast.Return):
        found = evaluate(state, node.value, scope)
        if scope.returns is not None:
            scope.returns.append(found)
    elif isinstance(node, ast.Raise):
        evaluate(state, node.exc, scope)
    return False


@statement(ast.Expr)
def _expression(state: State, node: ast.Expr, scope: Scope) -> None:
    evaluate(state, node.value, scope)


def _context(node: ast.expr, made: str) -> str:
    """The name of a context manager: of a method that returns one, with the method."""
    method = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return made if not method or made.endswith(f".{method}") else f"{made}.{method}"


@statement(ast.With, ast.AsyncWith)
def _with(state: State, node: ast.With | ast.AsyncWith, scope: Scope) -> bool:
    around = len(state.within)
    for item in node.items:
        found = evaluate(state, item.context_expr, scope)
        if item.optional_vars is not None:
            assign(state, item.optional_vars, found, item.context_expr, scope)
        if isinstance(found, Unknown) and found.made:
            state.within.append(_context(item.context_expr, found.made))
    try:
        return block(state, node.body, scope)
    finally:
        del state.within[around:]


# ---------------------------------------------------------------------- assigning


@statement(ast.Assign, ast.AnnAssign)
def _assignment(state: State, node: ast.Assign | ast.AnnAssign, scope: Scope) -> None:
    if node.value is None:
        return
    found = evaluate(state, node.value, scope)
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        assign(state, target, found, node.value, scope)


@statement(ast.AugAssign)
def _augmented(state: State, node: ast.AugAssign, scope: Scope) -> None:
    """`a += value`, `a |= value`."""
    before = evaluate(state, node.target, scope)
    right = evaluate(state, node.value, scope)
    if (tables := tables_of(before)) and isinstance(node.op, ast.BitOr):
        for table in tables:
            merge(state, table, right)
    else:
        assign(state, node.target, operate(state, node.op, before, right), node.value, scope)


def assign(state: State, target: ast.expr, found: Value, written: ast.expr, scope: Scope) -> None:
    """Assign a value to a name, an attribute or an item."""
    if isinstance(target, ast.Name):
        state.journal.write(scope.outer.get(target.id, scope.cells), target.id, found)
    elif isinstance(target, ast.Attribute):
        _assign_attribute(state, target, found, written, scope)
    elif isinstance(target, ast.Subscript):
        _assign_item(state, target, found, written, scope)
    elif isinstance(target, ast.Tuple | ast.List):
        parts = [one.value for one in found.items] if isinstance(found, ListValue) and len(found.items) == len(target.elts) else None
        unknown = Unknown(found.reason) if isinstance(found, Unknown) and found.reason else COMPUTED
        for number, one in enumerate(target.elts):
            first = item_of(state, found, Constant(number))
            assign(
                state,
                one,
                parts[number] if parts else first if number == 0 or (isinstance(first, Unknown) and first.made) else unknown,
                written,
                scope,
            )
    elif isinstance(target, ast.Starred):
        assign(state, target.value, COMPUTED, written, scope)


def _assign_attribute(state: State, target: ast.Attribute, found: Value, written: ast.expr, scope: Scope) -> None:
    owner = evaluate(state, target.value, scope)
    place = scope.source.span(target)
    key = Span(place.end - len(target.attr), place.end)
    if isinstance(owner, Unknown) and owner.reason and not owner.made and isinstance(target.value, ast.Name):
        owner = Object("unknown", state.journal.cells(), reason=owner.reason)
        assign(state, target.value, owner, target.value, scope)
    if isinstance(owner, Object | Class):
        set_attribute(state, owner, target.attr, Argument(found, scope.source.span(written), key, is_literal(written), written))
    for table in tables_of(owner):  # a dict with its keys as attributes, as of EasyDict and OmegaConf
        mark_changed(state, table)
        state.journal.write(table.cells, target.attr, Entry(found, key, scope.source.span(written), is_literal(written)))


def set_attribute(state: State, owner: Object | Class, name: str, given: Argument) -> None:
    """Set an attribute. Training arguments are received again with it."""
    state.journal.write(owner.cells, name, given.value)
    if isinstance(owner, Object) and isinstance(owner.about, CallOf):
        owner.about = replace(owner.about, keywords={**owner.about.keywords, name: given})
        state.receive(owner.about)


def _assign_item(state: State, target: ast.Subscript, found: Value, written: ast.expr, scope: Scope) -> None:
    """`owner[key] = value`."""
    owner, key = opened(state, target.value, scope), evaluate(state, target.slice, scope)
    name = key.value if isinstance(key, Constant) and isinstance(key.value, str) else None
    spans = scope.source.span(target.slice), scope.source.span(written)
    if isinstance(owner, Object) and name is not None:
        state.journal.write(owner.cells, name, found)
    elif isinstance(owner, Library) and owner.name == "os.environ" and name is not None:
        set_variable(state, name, Argument(found, spans[1], spans[0], is_literal(written), written), scope)
    elif isinstance(owner, ListValue):
        owner.items = [Entry(COMPUTED, one.key_span, one.span) for one in owner.items]
    for table in tables_of(owner):
        if name is None:
            merge(state, table, Unknown(), Reason(Cause.COMPUTED_KEY, (), spans[0]))
        else:
            mark_changed(state, table)
            state.journal.write(table.cells, name, Entry(found, *spans, is_literal(written)))


def set_variable(state: State, name: str, given: Argument, scope: Scope) -> None:
    """Set an environment variable."""
    state.environment[name] = given.value
    nowhere = ast.Call(ast.Name("os.environ"), [], [])
    state.receive(CallOf(nowhere, scope, "os.environ", given.key, keywords={name: given}))


def opened(state: State, node: ast.expr, scope: Scope) -> Value:
    """The value of an expression that the program treats as a dict. One that is not known becomes a dict with more keys."""
    owner = evaluate(state, node, scope)
    if not isinstance(owner, Unknown) or tables_of(owner) or not isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        return owner
    made = new_table(state, scope.source.span(node))
    made.open["more"] = True
    made.open["reason"] = owner.reason
    assign(state, node, made, node, scope)
    return made


@statement(ast.Delete)
def _delete(state: State, node: ast.Delete, scope: Scope) -> None:
    for target in (one for one in node.targets if isinstance(one, ast.Subscript)):
        owner, key = evaluate(state, target.value, scope), evaluate(state, target.slice, scope)
        for table in tables_of(owner):
            mark_changed(state, table)
            if isinstance(key, Constant) and isinstance(key.value, str):
                state.journal.erase(table.cells, key.value)
            else:
                merge(state, table, Unknown())


@statement(ast.Global)
def _global(_: State, node: ast.Global, scope: Scope) -> None:
    top = scope
    while top.above is not None:
        top = top.above
    scope.outer.update(dict.fromkeys(node.names, top.cells))


@statement(ast.Nonlocal)
def _nonlocal(_: State, node: ast.Nonlocal, scope: Scope) -> None:
    for name in node.names:
        here = scope.above
        while here is not None and name not in here.cells:
            here = here.above
        if here is not None:
            scope.outer[name] = here.cells


# ---------------------------------------------------------------------- branches


@statement(ast.If)
def _if(state: State, node: ast.If, scope: Scope) -> bool:
    """Where a flag of the command line decides, both branches are followed, and the one of the flag's default counts."""
    test = evaluate(state, node.test, scope)
    holds = True if is_main(node.test) else truth(test)
    chosen = node.body if holds else node.orelse
    if any(isinstance(one, ast.Raise) for one in chosen):
        holds = None  # a program that always raises is not what is run: some value differs there
    if holds is not None and not is_soft(test):
        return block(state, chosen, scope)
    state.undecided += 1
    condition = Condition(
        scope.source.written(scope.source.span(node.test)), scope.source.span(node).start, holds is not False, selects_ranks(node.test)
    )
    try:
        if holds is None:
            goes_on = _branches(state, [node.body, node.orelse], scope, node.test, condition)
        else:
            goes_on = _by_default(state, *((node.body, node.orelse) if holds else (node.orelse, node.body)), scope, condition)
    finally:
        state.undecided -= 1
    if goes_on and condition.ranks and _leaves(node.body) is not _leaves(node.orelse):
        state.conditions.append(condition._replace(holds=_leaves(node.orelse)))  # until the end of the block
    return goes_on


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether the statements behind a branch are not reached from it."""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Continue | ast.Break)


def _under(state: State, condition: Condition | None, body: Sequence[ast.stmt], scope: Scope) -> bool:
    """Follow a branch of a condition."""
    if condition is None:
        return block(state, body, scope)
    state.conditions.append(condition)
    try:
        return block(state, body, scope)
    finally:
        state.conditions.remove(condition)


def _by_default(state: State, chosen: Sequence[ast.stmt], other: Sequence[ast.stmt], scope: Scope, condition: Condition) -> bool:
    """Two branches between which a flag decides; its default decides for `chosen`.

    A name that only the other branch sets is used where the flag selects that branch.
    """
    mark = state.journal.mark
    state.unlikely += 1
    reached_other = _under(state, condition._replace(holds=not condition.holds), other, scope)
    state.unlikely -= 1
    left_by_other = state.journal.undo(mark)
    if _under(state, condition, chosen, scope):
        if reached_other:
            state.journal.adopt(left_by_other, scope.cells)
        return True
    if reached_other:
        state.journal.undo(mark)
        state.journal.redo(left_by_other)
    return reached_other


def _branches(
    state: State, bodies: Sequence[Sequence[ast.stmt]], scope: Scope, decides: ast.expr, condition: Condition | None = None
) -> bool:
    """Follow branches of which one is taken; `decides` is the condition between them, `condition` that of an `if` with its two."""
    mark = state.journal.mark
    reached: list[Changes] = []
    left: list[Changes] = []
    for number, body in enumerate(bodies):
        goes_on = _under(state, condition._replace(holds=number == 0) if condition is not None else None, body, scope)
        (reached if goes_on else left).append(state.journal.undo(mark))
    states = reached or left
    if not states:
        return True
    joined = states[0]
    state.journal.condition = Reason(Cause.CONDITION, (), scope.source.span(decides))
    for one in states[1:]:
        state.journal.join(joined, one)
        joined = state.journal.undo(mark)
    state.journal.redo(joined)
    return bool(reached)


@statement(ast.Match)
def _match(state: State, node: ast.Match, scope: Scope) -> bool:
    """One of the cases, or none. A subject that is known selects its case."""
    subject = evaluate(state, node.subject, scope)
    for number, case in enumerate(node.cases):
        fits = _fits(state, case, subject, scope)
        if fits is None:
            return _branches(state, [case.body for case in node.cases[number:]] + [[]], scope, node.subject)
        if fits:
            return block(state, case.body, scope)
    return True


def _fits(state: State, case: ast.match_case, subject: Value, scope: Scope) -> bool | None:
    """Whether a case fits a subject; None if that is not known."""
    if not isinstance(subject, Constant) or case.guard is not None:
        return None
    patterns = case.pattern.patterns if isinstance(case.pattern, ast.MatchOr) else [case.pattern]
    answers: list[bool | None] = []
    for one in patterns:
        if isinstance(one, ast.MatchAs) and one.pattern is None and one.name is None:
            return True
        found = evaluate(state, one.value, scope) if isinstance(one, ast.MatchValue) else None
        answers.append(found.value == subject.value if isinstance(found, Constant) else None)
    return True if True in answers else None if None in answers else False


@statement(ast.Try, ast.TryStar)
def _try(state: State, node: ast.Try | ast.TryStar, scope: Scope) -> bool:
    """The program is taken to go on behind the body; the handlers are followed for the calls in them.

    Where the body reads an item that a dict lacks, either can be what the program does.
    """
    mark, missing = state.journal.mark, state.missing
    goes_on = block(state, node.body, scope) and block(state, node.orelse, scope)
    read = next((one for part in node.body for one in ast.walk(part) if isinstance(one, ast.Subscript)), None)
    if state.missing > missing and node.handlers and read is not None:
        state.journal.undo(mark)
        bodies = [[*node.body, *node.orelse], *(handler.body for handler in node.handlers)]
        return _branches(state, bodies, scope, read) and block(state, node.finalbody, scope)
    mark = state.journal.mark
    handled = False
    for handler in node.handlers:
        if handler.name:
            state.journal.write(scope.cells, handler.name, Unknown(Reason(Cause.EXCEPTION)))
        handled = block(state, handler.body, scope) or handled
        state.journal.undo(mark)
    return block(state, node.finalbody, scope) and (goes_on or handled)
