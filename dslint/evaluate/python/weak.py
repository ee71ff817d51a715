"""Objects that a library holds by a weak reference only: they are gone once the program keeps them no longer.

transformers holds an `HfDeepSpeedConfig` so (transformers/integrations/deepspeed.py, set_hf_deepspeed_config).
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.values import Constant
from dslint.job.events import DROPPED, HELD_WEAKLY

_HELD_WEAKLY = re.compile(HELD_WEAKLY)


def note_made(state: ProgramState, call: CallOf) -> None:
    """Take note of a call that makes such an object, if a local variable that nothing reads is all that keeps it."""
    if _HELD_WEAKLY.fullmatch(call.name) is not None:
        _note(state, call, call.node)


def _note(state: ProgramState, made: CallOf, node: ast.expr) -> None:
    """Take note of what becomes of an object that an expression of the current statement returns."""
    if state.at is None:
        return
    statement = state.at[1]
    if isinstance(statement, ast.Expr) and statement.value is node:
        _drop(state, made, at_once=True)
    elif state.active and isinstance(function := state.active[-1], ast.FunctionDef | ast.AsyncFunctionDef):
        if isinstance(statement, ast.Return):
            is_returned = statement.value is not None and node in _results(statement.value)
            if is_returned:
                state.weakly_held.append((function, made, True))
        elif (name := _variable(statement, node)) and (reads := _reads(function, name)) is not None:
            state.weakly_held.append((function, made, bool(reads)))


def leave(state: ProgramState, function: ast.AST, call: CallOf | None) -> None:
    """Drop the objects that the local variables of a function kept, which ends. What it returns, the caller may keep."""
    for one in [one for one in state.weakly_held if one[0] is function]:
        state.weakly_held.remove(one)
        _, made, is_returned = one
        if not is_returned:
            _drop(state, made, at_once=False)
        elif call is not None:
            _note(state, made, call.node)


def _drop(state: ProgramState, call: CallOf, *, at_once: bool) -> None:
    """Note the end of an object; with `at_once` a statement drops it, which is nothing but a call."""
    given = {"at_once": Argument(Constant(value=True), call.span, call.span)} if at_once else {}
    state.note(replace(call, name=f"{call.name}.{DROPPED}", arguments=[], keywords=given), None)


def _results(value: ast.expr) -> list[ast.expr]:
    """The expressions of which one is the value of another one."""
    return [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]


def _variable(statement: ast.stmt, node: ast.expr) -> str:
    """The variable that a statement sets to the value of an expression; "" if it does anything else."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return ""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    name = targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""
    return name if node in _results(statement.value) else ""


def _reads(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> list[ast.expr] | None:
    """Where a function returns a local variable; None if the object may have another holder, or the variable is not the function's own.

    To read an attribute of the object, or to call one of its methods, makes no holder.
    """
    returned = [one.value for one in ast.walk(function) if isinstance(one, ast.Return) and isinstance(one.value, ast.Name)]
    owners = [one.value for one in ast.walk(function) if isinstance(one, ast.Attribute)]
    for node in ast.walk(function):
        if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            return None
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and node not in (*returned, *owners):
            return None
    return [one for one in returned if one.id == name]
