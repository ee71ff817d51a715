"""Objects that a library holds by a weak reference only: they are gone once the program keeps them no longer.

transformers holds an `HfDeepSpeedConfig` so (transformers/integrations/deepspeed.py, set_hf_deepspeed_config).
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.job.events import DROPPED, HELD_WEAKLY

_HELD_WEAKLY = re.compile(HELD_WEAKLY)


def note_made(state: ProgramState, call: CallOf) -> None:
    """Take note of a call that makes such an object, if a local variable that nothing reads is all that keeps it."""
    if _HELD_WEAKLY.fullmatch(call.name) is None or state.at is None:
        return
    statement = state.at[1]
    if isinstance(statement, ast.Expr) and statement.value is call.node:
        _drop(state, call)
    elif state.active and _is_local(statement, call, state.active[-1]):
        state.weakly_held.append((state.active[-1], call))


def leave(state: ProgramState, function: ast.AST) -> None:
    """Drop the objects that the local variables of a function kept, which ends."""
    for made_in, call in [one for one in state.weakly_held if one[0] is function]:
        state.weakly_held.remove((made_in, call))
        _drop(state, call)


def _drop(state: ProgramState, call: CallOf) -> None:
    state.note(replace(call, name=f"{call.name}.{DROPPED}"), None)


def _is_local(statement: ast.stmt, call: CallOf, function: ast.AST) -> bool:
    """Whether a statement sets a variable of a function to the object, and nothing in the function reads it or makes it another's."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    name = targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""
    made = statement.value
    held = [made.body, made.orelse] if isinstance(made, ast.IfExp) else [made]
    if not name or call.node not in held:
        return False
    for node in ast.walk(function):
        if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            return False
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            return False
    return True
