"""Loops of a script: over known values, until a condition ends them, and over the arguments of the script."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias

from dslint.evaluate.shell.commands import call
from dslint.evaluate.shell.interpreter import Interpreter, statement
from dslint.evaluate.shell.outcome import DONE, CommandOutcome
from dslint.evaluate.shell.pieces import Text, cut, known
from dslint.evaluate.shell.state import ScriptState
from dslint.evaluate.shell.syntax import Chunk

if TYPE_CHECKING:
    from tree_sitter import Node

ITERATIONS = 64
"""How many passes of a loop are followed: more launches than that are not kept, either."""


_Follows: TypeAlias = Callable[[Interpreter, Chunk, Any, ScriptState, "Text | None"], CommandOutcome]


def _with_own_breaks(follows: _Follows) -> _Follows:
    """A `break` ends the loop that is followed, not the one around it."""

    @wraps(follows)
    def follow(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, given: Text | None) -> CommandOutcome:
        around, state.may_have_broken = state.may_have_broken, False
        outcome = follows(shell, chunk, node, state, given)
        state.may_have_broken = around
        return outcome

    return follow


@statement("for_statement")
@_with_own_breaks
def _for(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, _: Text | None) -> CommandOutcome:
    variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
    if variable is None or body is None:
        return DONE
    name = chunk.raw(variable)
    values = [field for child in node.children_by_field_name("value") for field in shell.fields(chunk, child, state)]
    raw = [chunk.raw(child).strip('"') for child in node.children_by_field_name("value")]
    if state.arguments is None and raw in ([], ["$@"], ["$*"], ["${@}"]):
        inside = state.copy()
        inside.variables[name] = None
        shell.undecided += 1
        shell.follow(chunk, body, inside)  # it may launch something for each argument
        shell.undecided -= 1
        _without_arguments(chunk, body, state)
        return CommandOutcome(None, output=None)
    if not raw:
        values = list(state.arguments or ())
    values = [text for text in values if text]
    if len(values) > ITERATIONS:
        shell.cut_off_at(chunk, node)
    outcome = DONE
    for value in values[:ITERATIONS]:
        state.variables[name] = tuple(piece._replace(splits=False, quoted=False) for piece in value)
        if any(piece.splits and piece.text is None for piece in value):
            outcome = _any_turns(shell, chunk, body, state)  # it may be several words, or none
            continue
        outcome = outcome.then(shell.follow(chunk, body, state), because=False)
        if _leaves(state):
            break
    return outcome


@statement("c_style_for_statement")
@_with_own_breaks
def _counted(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, _: Text | None) -> CommandOutcome:
    body = node.child_by_field_name("body")
    raw = chunk.raw(node)
    head = raw[raw.find("((") + 2 : raw.find("))")].split(";")
    if body is None or len(head) != 3:
        return DONE
    at = chunk.piece(node)
    if head[0].strip():
        shell.expander.number(head[0], state, at)
    outcome = DONE
    for _turn in range(ITERATIONS):
        goes_on = shell.expander.number(head[1], state, at) if head[1].strip() else 1
        if goes_on == 0:
            return outcome
        if goes_on is None:
            return _any_turns(shell, chunk, body, state)
        outcome = outcome.then(shell.follow(chunk, body, state), because=False)
        if _leaves(state):
            return outcome
        if state.may_have_broken and not head[1].strip():
            return _any_turns(shell, chunk, body, state)
        if head[2].strip():
            shell.expander.number(head[2], state, at)
    shell.cut_off_at(chunk, node)
    return outcome


@statement("while_statement")
@_with_own_breaks
def _while(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, given: Text | None) -> CommandOutcome:
    body = node.child_by_field_name("body")
    conditions = [child for child in node.children_by_field_name("condition") if child.is_named]
    if not conditions or body is None:
        return DONE
    wanted = chunk.raw(node).startswith("while")
    reads = state.arguments is None and (_reads_arguments(chunk, body) or chunk.raw(conditions[0]).lstrip("(").startswith("getopts"))
    outcome = DONE
    lines = _lines(chunk.raw(conditions[-1]), given)
    if lines is not None:
        for line in lines:
            call(shell, _read_words(chunk, conditions[-1], shell, state), {}, state, line)
            outcome = outcome.then(shell.follow(chunk, body, state), because=False)
            if _leaves(state):
                break
        return outcome
    for _turn in range(ITERATIONS):
        shell.guarded += 1
        test = shell.block(chunk, conditions, state)
        shell.guarded -= 1
        if test.value is not None and not test.expected and test.value != wanted:
            if test.absent:
                _without_arguments(chunk, body, state)
            return outcome
        if test.value is None or test.expected or reads:
            break
        outcome = outcome.then(shell.follow(chunk, body, state), because=False)
        if _leaves(state):
            return outcome
        if state.may_have_broken:  # `while :; do PORT=...; nc -z localhost $PORT || break; done`
            break
    if reads:
        _without_arguments(chunk, body, state)
        return CommandOutcome(None, output=None)
    return _any_turns(shell, chunk, body, state)


def _lines(condition: str, given: Text | None) -> list[Text] | None:
    """The lines that `while read` reads, if its input is known."""
    text = known(given) if given is not None else None
    if given is None or text is None or not re.match(r"(IFS=\S* +)?read\b", condition) or text.count("\n") > ITERATIONS:
        return None
    return [cut(given, *match.span()) for match in re.finditer(r"[^\n]+|(?<=\n)(?=\n)|^(?=\n)", text)]


def _read_words(chunk: Chunk, node: Node, shell: Interpreter, state: ScriptState) -> list[Text]:
    """The words of `read -r NAME` in the condition of a loop."""
    words = [child for child in node.named_children if child.type != "variable_assignment"]
    return [field for child in words for field in shell.fields(chunk, child, state)]


def _any_turns(shell: Interpreter, chunk: Chunk, body: Node, state: ScriptState) -> CommandOutcome:
    """Follow a loop of which only the run knows how often it runs: what it assigns is unknown, inside and after it."""
    for name in _assigned(chunk, body):
        state.variables[name] = None
    inside = state.copy()
    shell.undecided += 1
    shell.follow(chunk, body, inside)
    shell.undecided -= 1
    inside.left = ""
    state.merge([state.copy(), inside])
    return CommandOutcome(None, output=None)


def _leaves(state: ScriptState) -> bool:
    """Whether a loop ends with this pass, by `break`, `return` or `exit`; after `continue` the next pass begins."""
    left = state.left
    if left in ("break", "continue"):
        state.left = ""
    return state.ended or left in ("break", "return")


def _without_arguments(chunk: Chunk, body: Node, state: ScriptState) -> None:
    """Pass over a loop that reads the arguments of the script: what has no value before it is set by an argument, or stays empty."""
    # Kaldi's parse_options.sh, which most recipes for speech source, assigns by `eval $name="$2"`.
    names = [*state.variables] if _EVAL.search(_without_functions(chunk, body)) else _assigned(chunk, body)
    for name in names:
        state.leave_open(name)


_EVAL = re.compile(r"\beval\b")


def _reads_arguments(chunk: Chunk, body: Node) -> bool:
    """Whether a loop reads the arguments of the script: `while true; do case "$1" in ... shift ... done`.

    Those that `set --` gives are not the script's, and `$1` in single quotes is one of another shell.
    """
    raw = _without_functions(chunk, body)
    return "shift" in raw and "$1" in raw and "set --" not in raw


def _without_functions(chunk: Chunk, node: Node) -> str:
    """The text of a loop without the functions that it defines and without quoted programs: those have arguments of their own."""
    found, position, waiting = "", chunk.start(node), [node]
    while waiting:
        here = waiting.pop()
        if here.type in ("function_definition", "raw_string"):
            found += chunk.text[position : chunk.start(here)]
            position = chunk.end(here)
        else:
            waiting += reversed(here.named_children)
    return found + chunk.text[position : chunk.end(node)]


def _assigned(chunk: Chunk, node: Node) -> set[str]:
    """The variables that a loop assigns."""
    found: set[str] = set()
    waiting = [node]
    while waiting:
        here = waiting.pop()
        if here.type == "variable_assignment":
            found.add(chunk.raw(here).partition("=")[0].rstrip("+").partition("[")[0])
        waiting += here.named_children
    return found
