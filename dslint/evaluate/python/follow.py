"""Follow a program from its first statement on, and note the calls that concern DeepSpeed."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from dslint.evaluate.python import calling, definitions, repetition, statements
from dslint.evaluate.python.assumed_names import AssumedNames
from dslint.evaluate.python.evaluate import Exhausted, ProgramState, block
from dslint.evaluate.python.expressions import variable
from dslint.evaluate.python.functions import enter, follow_hooks, follow_rest
from dslint.evaluate.python.paths import located
from dslint.evaluate.python.record import Recorder
from dslint.evaluate.python.sources import SourceFile, Sources
from dslint.evaluate.python.untaken import Untaken
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import Cells, DictValue, Flag, Function, Scope, Unknown, Value
from dslint.job.events import ENGINE
from dslint.record import Record

FOLLOWS = (calling, definitions, repetition, statements)
"""The modules that register what `evaluate` and `block` know, with those that they import."""

_CONFIG = re.compile(r"(ds|deepspeed)_?(config|cfg)", re.IGNORECASE)
"""Names of variables and functions that hold or return a config."""

_STEPS_PER_NODE = 20
_FEWEST_STEPS = 20_000
"""The steps of a program grow with its own size, and not with that of its modules. The median program of LLaMA-Factory takes 19,400 steps,
of axolotl 0.19 1,100 and of GPT-NeoX 1,600; of their 82 programs 6 are cut off, which is reported."""


class Followed(Record):
    """What is known once a program was followed, besides what the recorder holds."""

    parsed: list[Value]
    """The classes that it parses the command line into."""
    is_whole: bool
    """Whether all its functions were followed."""
    variables: Cells
    """Its variables at the end, by their names."""
    untaken: Untaken
    at: tuple[SourceFile, ast.stmt] | None = None
    """The last statement of a program that is too large."""


def follow(
    parts: list[tuple[SourceFile, ast.Module]],
    sources: Sources,
    recorder: Recorder,
    flags: dict[str, Flag],
    left: AbstractSet[tuple[str, str]] = frozenset(),
    sections: frozenset[str] | None = None,
    assumed: AssumedNames | None = None,
    folders: Sequence[str] = (),
    *,
    again: bool = False,
) -> Followed:
    """Follow a program; `again` if it was too large, now from the start without most calls of functions that reach no call with a config.

    Any program that takes more than half of its steps is followed like that from there on. Of 792 programs of 45 public repositories 20
    take more than half and end, and say the same; of 11 that were cut off 7 now end in one pass.

    `left` are functions that are followed only where the program calls them, each with its class or "", unless a call, a command or an
    engine is found. `sections` are those of the config that the program is launched with; see `ProgramState.sections`. `assumed` are the
    names that nothing in the program binds, `folders` those of PYTHONPATH.
    """
    steps = _FEWEST_STEPS + _STEPS_PER_NODE * sum(source.parsed.size for source, _ in parts)
    library = {name: function for one in recorder.integrations for name, function in one.functions.items()}
    state = ProgramState(sources, recorder.receive, steps, steps, flags, sections, library)
    state.folders += folders
    state.sparing = steps if again else steps // 2
    state.found = lambda: len(recorder.calls) + len(recorder.unread) + len(recorder.commands)
    recorder.state = state
    state.note = recorder.note
    cells = state.journal.cells()
    cells["__file__"] = located(parts[0][0].path.replace(os.sep, "/"))
    cells["__name__"] = Unknown(Reason(Cause.DUNDER_NAME))
    if assumed:
        cells.update(assumed.values)
        state.is_posted = True
    is_whole = True
    try:
        for source, tree in parts:
            block(state, tree.body, Scope(cells, source))
        is_whole = not left
        for source, tree in parts:
            follow_rest(state, source, _nodes(tree, left) if left else frozenset())
        if left and (recorder.calls or recorder.commands or next(recorder.events.of(re.escape(ENGINE)), None) is not None):
            is_whole = True
            for source, _ in parts:
                follow_rest(state, source)
        for base, names in (one.hooks for one in recorder.integrations if one.hooks is not None):
            follow_hooks(state, base, names)
        recorder.finish()
        for one in recorder.integrations:
            if one.describes is not None and one.settings[0] in cells and not recorder.calls and not recorder.unread:
                one.describes(recorder, {name: variable(name, Scope(cells, parts[0][0])) for name in one.settings})
        if not recorder.calls and not recorder.unread:
            _definitions(parts, state, recorder, Scope(cells, parts[0][0]))
    except (Exhausted, RecursionError):
        state.skipped.clear()  # what is not followed may take these branches
        recorder.finish()
        return Followed(state.parsed, is_whole, cells, Untaken(state), state.at)
    return Followed(state.parsed, is_whole, cells, Untaken(state))


def _nodes(tree: ast.Module, names: AbstractSet[tuple[str, str]]) -> set[ast.AST]:
    """The functions and methods with these names at the top of a file."""
    found: set[ast.AST] = set()
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else (node,)
        owner = node.name if isinstance(node, ast.ClassDef) else ""
        found |= {one for one in inner if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and (owner, one.name) in names}
    return found


def _definitions(parts: list[tuple[SourceFile, ast.Module]], state: ProgramState, recorder: Recorder, scope: Scope) -> None:
    """Note the configs that a program without a call defines: variables and results of functions with a telling name, and dicts of
    training arguments that name one.
    """
    for source, tree in parts:
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                value = variable(name, scope)
                if _CONFIG.search(name):
                    recorder.define(name, value, source.span(node.value))
                else:
                    recorder.define_arguments(value)
            elif isinstance(node, ast.FunctionDef) and _CONFIG.search(node.name):
                function = variable(node.name, scope)
                if isinstance(function, Function):
                    result = enter(state, function, [], {}, complete=False)
                    recorder.define(node.name, result, result.span if isinstance(result, DictValue) else source.span(node))
