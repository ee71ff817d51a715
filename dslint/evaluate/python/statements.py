"""Statements in their order; assignments are in `assigning`. Where a condition is not known both branches are followed, and then joined."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from dataclasses import replace

from dslint.evaluate.python.assigning import assign
from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.evaluate import ProgramState, Raised, SkippedBranch, Trying, block, evaluate, raise_certainly, statement
from dslint.evaluate.python.functions import GENERATOR, enter, run_generator
from dslint.evaluate.python.journal import Changes
from dslint.evaluate.python.nodes import is_main
from dslint.evaluate.python.rank_conditions import condition_of
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import (
    NONE,
    Class,
    Constant,
    Function,
    Library,
    ListValue,
    Object,
    Scope,
    Unknown,
    Value,
    is_soft,
    member,
    truth,
)
from dslint.job.events import ABOUT_SETUP, REFUSAL, Condition
from dslint.record import Record
from dslint.source.tree import Span


@statement(ast.Return, ast.Raise, ast.Break, ast.Continue)
def _leave(state: ProgramState, node: ast.Return | ast.Raise | ast.Break | ast.Continue, scope: Scope) -> bool:
    if isinstance(node, ast.Return):
        found = evaluate(state, node.value, scope)
        if scope.returns is not None:
            scope.returns.append(found)
    elif isinstance(node, ast.Raise):
        found = evaluate(state, node.exc, scope)
        raise_certainly(state, raised_kinds(found), found)
    state.left = type(node).__name__.lower()
    return False


def raised_kinds(found: Value) -> tuple[str, ...]:
    """The names of the class of an exception and of those that it inherits from; () if they are not known."""
    if isinstance(found, Object) and found.type is not None:
        found = found.type
    if isinstance(found, Class):
        above = [name for base in found.bases for name in raised_kinds(base)]
        return (found.name, *above) if above else ()
    name = found.made if isinstance(found, Unknown) else found.name if isinstance(found, Library) else ""
    kind = getattr(builtins, name, None)
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        return ()
    return tuple(one.__name__ for one in kind.__mro__)


@statement(ast.Expr)
def _expression(state: ProgramState, node: ast.Expr, scope: Scope) -> bool:
    found = evaluate(state, node.value, scope)
    if not isinstance(found, Unknown) or found.made not in _EXITS or not isinstance(node.value, ast.Call):
        return True
    raise_certainly(state, ("SystemExit", "BaseException"))
    state.left = "raise"
    return False


_EXITS = frozenset({"sys.exit", "exit", "quit", "os._exit"})
"""The functions that end the program."""


def _context(node: ast.expr, made: str) -> str:
    """The name of a context manager: of a method that returns one, with the method, which tells what it is where its object is not known;
    "" for one of which nothing is known.
    """
    method = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return made if not method or made.endswith(f".{method}") else f"{made}.{method}"


@statement(ast.With, ast.AsyncWith)
def _with(state: ProgramState, node: ast.With | ast.AsyncWith, scope: Scope) -> bool:
    around = len(state.within)
    try:
        return _managed(state, node.items, node.body, scope)
    finally:
        del state.within[around:]


def _managed(state: ProgramState, items: Sequence[ast.withitem], body: Sequence[ast.stmt], scope: Scope) -> bool:
    """Follow the body of a `with`: those of the project's managers run before and behind it, too."""
    if not items:
        return block(state, body, scope)
    item, *rest = items
    manager = evaluate(state, item.context_expr, scope)
    kind = manager.type if isinstance(manager, Object) else None
    starts, ends = member(kind, "__enter__"), member(kind, "__exit__")
    found = enter(state, starts.bound(manager), [], {}) if isinstance(starts, Function) else manager
    goes_on: list[bool] = []

    def inside(given: Value) -> None:
        if item.optional_vars is not None:
            assign(state, item.optional_vars, given, item.context_expr, scope)
        goes_on.append(_managed(state, rest, body, scope))

    if isinstance(manager, Object) and manager.kind == GENERATOR:
        run_generator(state, manager, inside)
    elif isinstance(manager, Object) and manager.kind == "suppress":
        return _suppressed(state, manager, [ast.copy_location(ast.With(rest, list(body)), item.context_expr)] if rest else body, scope)
    if not goes_on:
        if isinstance(found, Unknown) and (context := _context(item.context_expr, found.made)):
            state.within.append(context)
        inside(found)
    if isinstance(ends, Function):
        enter(state, ends.bound(manager), [NONE, NONE, NONE], {})
    return goes_on[0]


def _suppressed(state: ProgramState, manager: Object, body: Sequence[ast.stmt], scope: Scope) -> bool:
    """Follow a body in `contextlib.suppress`."""
    mark, missing = state.journal.mark, state.missing
    trying = Trying(manager.about, state.undecided, state.repeated, state.partial)
    raised, goes_on = attempt(state, trying, body, scope)
    if raised is not None:
        return True
    if state.missing > missing or trying.may_raise:
        state.journal.undo(mark)
        return _branches(state, [body, []], scope, _first_expression(body))
    return goes_on


@statement(ast.If)
def _if(state: ProgramState, node: ast.If, scope: Scope) -> bool:
    """Where a flag of the command line decides, both branches are followed, and the one of the flag's default counts."""
    test = evaluate(state, node.test, scope)
    holds = scope.source.path == state.sources.all[0].path if is_main(node.test) else truth(test)
    if holds is None and isinstance(node.test, ast.BoolOp) and (part := _deciding(state, node.test, scope)) is not None:
        test, holds = part, truth(part)
    tested = _options_in(state, node.test, scope) if holds is None else None
    if tested is not None and (holds := tested.agreed) is not None:
        test = Constant(holds)
    chosen = node.body if holds else node.orelse
    if state.flags and not (state.trying or state.undecided or state.loops or state.replaces_flags):
        _note_refusal(state, node, test, scope, holds=holds)
    if not state.trying and any(isinstance(one, ast.Raise) for one in chosen):
        holds = None  # a program that always raises is not what is run: some value differs there
    if holds is not None and not is_soft(test):
        if not is_main(node.test):
            _skip(state, node, node.orelse if holds else node.body, scope)
        return block(state, chosen, scope)
    state.taken_later.add(node)
    state.undecided += 1
    condition = condition_of(node, scope, state.active[-1] if state.active else None, holds=holds is not False)
    try:
        if holds is None:
            goes_on = _branches(state, [node.body, node.orelse], scope, node.test, condition, tested)
        else:
            ways = (node.body, node.orelse) if holds else (node.orelse, node.body)
            goes_on = _by_default(state, *ways, scope, condition, scope.source.span(node.test))
    finally:
        state.undecided -= 1
    if goes_on and _leaves(node.body) is not _leaves(node.orelse) and (condition.ranks or ABOUT_SETUP.search(condition.text)):
        state.conditions.append(condition._replace(holds=_leaves(node.orelse)))  # until the end of the block
    return goes_on


_PLAIN = (
    *(ast.BoolOp, ast.UnaryOp, ast.Compare, ast.Attribute, ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Set),
    *(ast.boolop, ast.unaryop, ast.cmpop, ast.expr_context),
)
"""What a condition on flags is made of. A call or an item may be more than what is known of it, as in a table that other modules fill."""


def _note_refusal(state: ProgramState, node: ast.If, test: Value, scope: Scope, *, holds: bool | None) -> None:
    """Note what the program raises for the flags that it is launched with: by themselves, or at ZeRO stage 3."""
    names = {
        one.attr if isinstance(one, ast.Attribute) else one.id for one in ast.walk(node.test) if isinstance(one, ast.Attribute | ast.Name)
    }
    if names.isdisjoint(state.flags) or state.supposed:
        return
    is_known = holds is not None and not is_soft(test) and all(isinstance(one, _PLAIN) for one in ast.walk(node.test))
    at_stage_3 = not is_known and _holds_at_stage_3(state, node.test, scope)
    for one in (node.body if holds or at_stage_3 else node.orelse) if is_known or at_stage_3 else ():
        if isinstance(one, ast.Raise) and isinstance(one.exc, ast.Call):
            span = scope.source.span(one.exc)
            stage = Argument(Constant(at_stage_3), span, span)
            state.note(CallOf(one.exc, scope, REFUSAL, span, keywords={"at_stage_3": stage}), None)
        elif not isinstance(one, ast.Expr):
            return


def _holds_at_stage_3(state: ProgramState, test: ast.expr, scope: Scope) -> bool:
    """Whether `a and is_deepspeed_zero3_enabled()` holds at stage 3, because flags make all its other parts true."""
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And):
        return False
    parts = test.values
    others = [one for one in parts if not (isinstance(one, ast.Call) and ast.unparse(one.func).endswith("is_deepspeed_zero3_enabled"))]
    if not others or len(others) == len(parts):
        return False
    plain = scope.source.parsed.without_acts(test)
    if any(one not in plain for one in others):
        return False
    values = [evaluate(state, one, scope) for one in others]
    return all(truth(one) is True and not is_soft(one) for one in values)


def _skip(state: ProgramState, node: ast.If, left: list[ast.stmt], scope: Scope) -> None:
    """Note the branch that this turn leaves out, or that it takes the one which an earlier turn left out."""
    known = state.skipped.get(node)
    if known is None:
        state.skipped[node] = SkippedBranch(scope.source, left, scope.source.parsed.called(left))
    elif known.body is not left:
        state.taken_later.add(node)


def _deciding(state: ProgramState, test: ast.BoolOp, scope: Scope) -> Value | None:
    """The part of `a and b` that makes it false, or of `a or b` that makes it true, whatever the unknown others are.

    Parts with calls are not evaluated again.
    """
    wanted = isinstance(test.op, ast.Or)
    plain = scope.source.parsed.without_acts(test)
    return next((value for one in plain if truth(value := evaluate(state, one, scope)) is wanted), None)


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether the statements behind a branch are not reached from it."""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Continue | ast.Break)


def _under(state: ProgramState, condition: Condition | None, body: Sequence[ast.stmt], scope: Scope) -> bool:
    """Follow a branch of a condition."""
    if condition is None:
        return block(state, body, scope)
    state.conditions.append(condition)
    try:
        return block(state, body, scope)
    finally:
        state.conditions.remove(condition)


def _by_default(
    state: ProgramState, chosen: Sequence[ast.stmt], other: Sequence[ast.stmt], scope: Scope, condition: Condition, decides: Span
) -> bool:
    """Two branches between which a flag decides; its default decides for `chosen`. `decides` is where its condition stands.

    A name that only the other branch sets is used where the flag selects that branch. A default that ends the program or a function is
    not what is run, one that ends a turn of a loop is.
    """
    mark = state.journal.mark
    state.unlikely += 1
    reached_other = _under(state, condition._replace(holds=not condition.holds), other, scope)
    state.unlikely -= 1
    left_by_other = state.journal.undo(mark)
    if _under(state, condition._replace(default=True), chosen, scope):
        if reached_other:
            # a launch that is read gives the flag, or has words that nobody knows
            state.journal.adopt(left_by_other, scope.cells, decides if not state.flags else None)
        return True
    if not reached_other or state.left in ("break", "continue"):
        return False
    state.journal.undo(mark)
    state.journal.redo(left_by_other)
    return True


class _Options(Record):
    """A variable that is one of several values, and whether a condition holds for each; `if_none` is for None."""

    name: str
    value: Unknown
    answers: list[bool | None]
    if_none: bool | None

    @property
    def agreed(self) -> bool | None:
        """What the condition is, whichever value the variable has; None if that differs, or is not known."""
        every = {*self.answers, self.if_none} if self.value.or_none else set(self.answers)
        return every.pop() if self.value.closed and len(every) == 1 else None


def _options_in(state: ProgramState, test: ast.expr, scope: Scope) -> _Options | None:
    """The variable of a condition that is one of several values; None without one, or with several."""
    tested = {one.id for one in scope.source.parsed.plain_names(test) if isinstance(scope.cells.get(one.id), Unknown)}
    if len(tested) != 1:
        return None
    (name,) = tested
    value: Unknown = scope.cells[name]
    if not value.options or value.path is not None:
        return None

    def answer(option: Value) -> bool | None:
        scope.cells[name] = option
        return truth(evaluate(state, test, scope))

    answers, if_none = [answer(option) for option in value.options], answer(NONE)
    scope.cells[name] = value
    return _Options(name, value, answers, if_none)


def _select(state: ProgramState, tested: _Options, scope: Scope, *, holds: bool) -> None:
    """Leave a variable the values that lead to a branch: behind `if name in PRESETS: return` not the presets."""
    value = tested.value
    options = tuple(one for one, answer in zip(value.options, tested.answers, strict=True) if answer is not (not holds))
    or_none = value.or_none and tested.if_none is not (not holds)
    if (options, or_none) != (value.options, value.or_none):
        state.journal.write(scope.cells, tested.name, replace(value, options=options, or_none=or_none))


def _branches(
    state: ProgramState,
    bodies: Sequence[Sequence[ast.stmt]],
    scope: Scope,
    decides: ast.expr,
    condition: Condition | None = None,
    tested: _Options | None = None,
) -> bool:
    """Follow branches of which one is taken; `decides` is the condition between them, `condition` and `tested` that of an `if`."""
    mark = state.journal.mark
    reached: list[Changes] = []
    left: list[Changes] = []
    ways: set[str] = set()
    for number, body in enumerate(bodies):
        state.left = ""
        if tested is not None:
            _select(state, tested, scope, holds=number == 0)
        goes_on = _under(state, condition._replace(holds=number == 0) if condition is not None else None, body, scope)
        (reached if goes_on else left).append(state.journal.undo(mark))
        ways |= set() if goes_on else {state.left}
    states = reached or left
    if not states:
        return True
    if reached:
        state.perhaps_left |= ways & {"return", "break", "continue"}
    joined = states[0]
    state.journal.since = mark[1]
    state.journal.condition = Reason(Cause.CONDITION, (), scope.source.span(decides))
    for one in states[1:]:
        state.journal.join(joined, one)
        joined = state.journal.undo(mark)
    state.journal.redo(joined)
    return bool(reached)


@statement(ast.Match)
def _match(state: ProgramState, node: ast.Match, scope: Scope) -> bool:
    """One of the cases, or none. A subject that is known selects its case."""
    subject = evaluate(state, node.subject, scope)
    for number, case in enumerate(node.cases):
        fits = _fits(state, case, subject, scope)
        if fits is None:
            for one in node.cases[number:]:
                _capture(state, one.pattern, node.subject, scope)
            ends = (
                isinstance(node.cases[-1].pattern, ast.MatchAs) and node.cases[-1].pattern.pattern is None and node.cases[-1].guard is None
            )
            state.undecided += 1
            try:
                return _branches(state, [case.body for case in node.cases[number:]] + [[]] * (not ends), scope, node.subject)
            finally:
                state.undecided -= 1
        if fits:
            return block(state, case.body, scope)
    return True


def _capture(state: ProgramState, pattern: ast.pattern, subject: ast.expr, scope: Scope) -> None:
    """Forget the variables that a pattern sets."""
    for one in ast.walk(pattern):
        name = one.name if isinstance(one, ast.MatchAs | ast.MatchStar) else one.rest if isinstance(one, ast.MatchMapping) else None
        if name is not None:
            state.journal.write(scope.cells, name, Unknown(Reason(Cause.COMPUTED, (), scope.source.span(subject))))


def _fits(state: ProgramState, case: ast.match_case, subject: Value, scope: Scope) -> bool | None:
    """Whether a case fits a subject; None if that is not known."""
    fits = _matches(state, case.pattern, subject, scope)
    if not fits or case.guard is None:
        return fits
    return truth(evaluate(state, case.guard, scope))


def _matches(state: ProgramState, pattern: ast.pattern, subject: Value, scope: Scope) -> bool | None:
    """Whether a value is as a pattern says; None if that is not known. The variables of the pattern are set."""
    if isinstance(pattern, ast.MatchOr):
        answers = [_matches(state, one, subject, scope) for one in pattern.patterns]
        return True if True in answers else None if None in answers else False
    if isinstance(pattern, ast.MatchAs):
        fits = _matches(state, pattern.pattern, subject, scope) if pattern.pattern is not None else True
        if fits and pattern.name is not None:
            state.journal.write(scope.cells, pattern.name, subject)
        return fits
    if isinstance(pattern, ast.MatchSequence) and isinstance(subject, ListValue) and not subject.changed:
        stars = any(isinstance(one, ast.MatchStar) for one in pattern.patterns)
        if stars or len(pattern.patterns) != len(subject.items):
            return None if stars else False
        answers = [_matches(state, one, item.value, scope) for one, item in zip(pattern.patterns, subject.items, strict=True)]
        return False if False in answers else None if None in answers else True
    if isinstance(pattern, ast.MatchValue | ast.MatchSingleton):
        found = evaluate(state, pattern.value, scope) if isinstance(pattern, ast.MatchValue) else Constant(pattern.value)
        return found.value == subject.value if isinstance(found, Constant) and isinstance(subject, Constant) else None
    return None


@statement(ast.Try, ast.TryStar)
def _try(state: ProgramState, node: ast.Try | ast.TryStar, scope: Scope) -> bool:
    """The program is taken to go on behind the body; the handlers are followed for the calls in them.

    Where the body may read an item that a dict lacks, or raises on a condition that only the run knows, either can be what the program
    does. Where it raises for certain, the handler is what it does.
    """
    mark, missing = state.journal.mark, state.missing
    handles = [_handled(state, handler, scope) for handler in node.handlers]
    goes_on_after = any(_goes_on_after(handler, kinds) for handler, kinds in zip(node.handlers, handles, strict=True))
    trying = Trying(frozenset().union(*handles), state.undecided, state.repeated, state.partial, goes_on_after)
    try:
        raised, goes_on = attempt(state, trying, node.body, scope)
    except Raised:
        block(state, node.finalbody, scope)
        raise
    if raised is not None:
        number = next(number for number, one in enumerate(handles) if not one.isdisjoint(raised.kinds))
        handler = node.handlers[number]
        if handler.name:
            state.journal.write(scope.cells, handler.name, raised.value)
        goes_on = block(state, handler.body, scope)
        return block(state, node.finalbody, scope) and goes_on
    if node.handlers and (state.missing > missing or trying.may_raise):
        state.journal.undo(mark)
        for handler in node.handlers:
            if handler.name:
                state.journal.write(scope.cells, handler.name, Unknown(Reason(Cause.EXCEPTION, (), scope.source.span(node.body[0]))))
        bodies = [[*node.body, *node.orelse], *(handler.body for handler in node.handlers)]
        goes_on = _branches(state, bodies, scope, _first_expression(node.body))
        return block(state, node.finalbody, scope) and goes_on
    goes_on = goes_on and block(state, node.orelse, scope)
    handled = False
    mark = state.journal.mark
    for handler in node.handlers:
        if handler.name:
            state.journal.write(scope.cells, handler.name, Unknown(Reason(Cause.EXCEPTION, (), scope.source.span(node.body[0]))))
        state.undecided += 1
        try:
            handled = _under(state, _raised(handler, scope), handler.body, scope) or handled
        finally:
            state.undecided -= 1
        state.journal.undo(mark)
    if handled and not goes_on:
        state.perhaps_left |= {state.left} & {"return", "break", "continue"}
    return block(state, node.finalbody, scope) and (goes_on or handled)


def _raised(handler: ast.ExceptHandler, scope: Scope) -> Condition:
    """The condition for the calls in a handler."""
    what = f" {ast.unparse(handler.type)}" if handler.type is not None else ""
    return Condition(f"except{what}", scope.source.span(handler).start, holds=True, ranks=False)


def _first_expression(body: Sequence[ast.stmt]) -> ast.expr:
    """The item that is read first in statements, or their first expression."""
    every = [one for part in body for one in ast.walk(part) if isinstance(one, ast.expr)]
    first = every[0] if every else ast.copy_location(ast.Constant(None), body[0])  # an import
    return next((one for one in every if isinstance(one, ast.Subscript)), first)


def _handled(state: ProgramState, handler: ast.ExceptHandler, scope: Scope) -> frozenset[str]:
    """The names of the exceptions that a handler handles."""
    if handler.type is None:
        return frozenset({"BaseException"})
    found = evaluate(state, handler.type, scope)
    kinds = [one.value for one in found.items] if isinstance(found, ListValue) else [found]
    return frozenset(one.name for one in kinds if isinstance(one, Class | Library))


_NO_ERRORS = frozenset(
    "KeyboardInterrupt SystemExit GeneratorExit StopIteration StopAsyncIteration ImportError ModuleNotFoundError".split()
)
"""What a call of a library does not raise as an error: the interrupt of a person, an end, and an import that failed."""

_ENDS = frozenset(("sys.exit", "os._exit", "exit", "quit", "os.abort"))


def _goes_on_after(handler: ast.ExceptHandler, kinds: frozenset[str]) -> bool:
    """Whether a program may go on after an error of a library that a handler handles: it neither raises again nor ends the program."""
    if handler.type is not None and kinds and kinds <= _NO_ERRORS:
        return False
    last = handler.body[-1]
    ends = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and ast.unparse(last.value.func) in _ENDS
    return not (isinstance(last, ast.Raise) or ends)


def attempt(state: ProgramState, trying: Trying, body: Sequence[ast.stmt], scope: Scope) -> tuple[Raised | None, bool]:
    """Follow statements which may raise. Returns what they raise for certain, and whether the statement behind them is reached.

    Raises:
        Raised: something that `trying` does not handle.
    """
    counts = (state.loops, state.repeated, state.undecided, state.unlikely, state.partial)
    stacks = [(one, len(one)) for one in (state.trying, state.conditions, state.within, state.making, state.active, state.consumers)]
    left = set(state.perhaps_left)
    state.trying.append(trying)
    try:
        return None, block(state, body, scope)
    except Raised as error:
        state.loops, state.repeated, state.undecided, state.unlikely, state.partial = counts
        state.perhaps_left = left
        if trying.handles.isdisjoint(error.kinds):
            raise
        return error, False
    finally:
        for stack, length in stacks:
            del stack[length:]
