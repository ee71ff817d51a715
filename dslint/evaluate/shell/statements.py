"""The statements of a script: variables, conditions and lists. Loops are in `loops`, commands in `commands`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from dslint.evaluate.shell.interpreter import Interpreter, statement
from dslint.evaluate.shell.outcome import DONE, CommandOutcome
from dslint.evaluate.shell.pieces import Text, TextPiece, known
from dslint.evaluate.shell.state import ABSENT, ScriptState
from dslint.evaluate.shell.syntax import Chunk
from dslint.evaluate.shell.words import bounded

if TYPE_CHECKING:
    from tree_sitter import Node

_AFTER_FAILURE = frozenset({"exit", "return", "true", "break", "continue", ":"})
"""What scripts do if a command fails, which it is not expected to: `mkdir out || exit 1` goes on."""

_LARGEST_ARRAY = 5_000
"""The most items of an array: each assignment copies it, and an array that grows in a loop would take the square of its length."""


@statement("program", "do_group", "ERROR")
def _group(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, _: Text | None) -> CommandOutcome:
    return shell.block(chunk, node.children, state)


@statement("compound_statement")
def _compound(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, given: Text | None) -> CommandOutcome:
    """`{ ...; }`, or `(( ... ))`."""
    if chunk.raw(node).startswith("(("):
        return shell.tester.decide(chunk, node, state)
    return _group(shell, chunk, node, state, given)


@statement("subshell")
def _subshell(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, _: Text | None) -> CommandOutcome:
    inside = state.copy()
    outcome = shell.block(chunk, node.named_children, inside)
    state.files.update(inside.files)
    return DONE.then(outcome)  # a failure that is excused inside is one of the subshell


@statement("test_command")
def _test(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, _: Text | None) -> CommandOutcome:
    return shell.tester.decide(chunk, node, state)


@statement("negated_command")
def _negated(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, _: Text | None) -> CommandOutcome:
    shell.guarded += 1
    outcome = shell.block(chunk, node.named_children, state)
    shell.guarded -= 1
    return outcome.negated()


# ---------------------------------------------------------------------- variables


@statement("variable_assignment")
def assign(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, _: Text | None = None) -> CommandOutcome:
    """`A=b`, `A+=b`, `A=(b c)`, `A[0]=b`."""
    target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if target is None:
        return DONE
    name = chunk.raw(target)
    adds = any(child.type == "+=" for child in node.children)
    if state.exports_all:
        state.exported.add(name.partition("[")[0])
    if target.type == "subscript":
        written = shell.text(chunk, value, state) if value is not None else ()
        _assign_element(
            shell, name, tuple(piece._replace(splits=False, quoted=False) for piece in written), state, chunk.piece(node), adds=adds
        )
        return DONE
    if value is not None and value.type == "array":
        items = [field for child in value.named_children for field in shell.fields(chunk, child, state)]
        before = state.variables.get(name)
        if adds and name in state.variables:
            if before is None:
                return DONE
            items = [*(before if isinstance(before, list) else [before]), *items]
        state.variables[name] = items[:_LARGEST_ARRAY]
        return DONE
    written = shell.text(chunk, value, state) if value is not None else ()
    _assign_text(
        name,
        bounded(tuple(piece._replace(splits=False, quoted=False) for piece in written), chunk.piece(node)),
        chunk,
        node,
        state,
        adds=adds,
    )
    return DONE


def _assign_text(name: str, text: Text, chunk: Chunk, node: Node, state: ScriptState, *, adds: bool) -> None:
    before = state.variables.get(name)
    if adds and isinstance(before, list):
        if before:
            state.variables[name] = [before[0] + text, *before[1:]]
        return
    if adds and name in state.variables:
        if not isinstance(before, tuple):
            return
        text = bounded(before + text, chunk.piece(node))
    state.variables[name] = text


def _assign_element(shell: Interpreter, name: str, text: Text, state: ScriptState, at: TextPiece, *, adds: bool) -> None:
    """`A[0]=b`: one item of an array; the whole array is unknown if the index is."""
    array, _, index = name.partition("[")
    before = state.variables.get(array)
    is_name = index.startswith(("'", '"'))
    number = None if is_name else shell.expander.number(index.rstrip("]"), state, at)
    items = list(before) if isinstance(before, list) else [] if array not in state.variables else None
    if number is None or items is None or adds or not 0 <= number <= len(items):
        state.variables[array] = None
    else:
        items[number : number + 1] = [text]
        state.variables[array] = items


@statement("variable_assignments")
def _assignments(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, _: Text | None) -> CommandOutcome:
    return shell.block(chunk, node.named_children, state)


@statement("declaration_command")
def _declaration(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, _: Text | None) -> CommandOutcome:
    """`export A=b`, `declare A=b`, `local A=b`."""
    raw = chunk.raw(node)
    exports = raw.startswith(("export", "declare -x", "typeset -x"))
    is_local = raw.startswith("local") or (state.locals is not None and raw.startswith(("declare", "typeset")))
    associative = raw.startswith(("declare -A", "typeset -A", "local -A"))
    for child in node.named_children:
        name = chunk.raw(child).partition("=")[0].rstrip("+")
        if is_local and state.locals is not None and name.isidentifier():
            state.locals.setdefault(name, state.variables.get(name, ABSENT))
        if associative and child.type == "variable_name":
            state.variables[name] = None
        if child.type == "variable_assignment":
            assign(shell, chunk, child, state)
            if associative:
                state.variables[name] = None
        elif is_local and child.type == "variable_name" and not associative:
            state.variables[name] = ()
        if exports:
            state.exported.add(name)
    return DONE


@statement("unset_command")
def _unset(_: Interpreter, chunk: Chunk, node: Node, state: ScriptState, __: Text | None) -> CommandOutcome:
    for child in node.named_children:
        state.variables.pop(chunk.raw(child), None)
        state.exported.discard(chunk.raw(child))
        state.functions.pop(chunk.raw(child), None)
    return DONE


@statement("function_definition")
def _definition(_: Interpreter, chunk: Chunk, node: Node, state: ScriptState, __: Text | None) -> CommandOutcome:
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is not None and body is not None:
        state.functions[chunk.raw(name)] = (chunk, body)
    return DONE


# ---------------------------------------------------------------------- conditions


@statement("if_statement")
def _if(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, _: Text | None) -> CommandOutcome:
    branches: list[tuple[list[Node], list[Node]]] = []
    parts: list[tuple[str, list[Node]]] = [("if", node.children)]
    parts += [(child.type, child.children) for child in node.named_children if child.type in ("elif_clause", "else_clause")]
    for kind, children in parts:
        named = [child for child in children if child.is_named and child.type not in ("elif_clause", "else_clause")]
        then = next((index for index, child in enumerate(children) if child.type == "then"), None)
        if kind == "else_clause" or then is None:
            branches.append(([], named))
            continue
        before = [child for child in children[:then] if child.is_named]
        branches.append((before, [child for child in named if child not in before]))
    return _choose(shell, chunk, branches, state)


def _choose(shell: Interpreter, chunk: Chunk, branches: list[tuple[list[Node], list[Node]]], state: ScriptState) -> CommandOutcome:
    """Take the branch that conditions decide; every branch that may be taken where they do not."""
    ways: list[ScriptState] = []
    undecided = shell.undecided
    try:
        for conditions, body in branches:
            shell.guarded += 1
            decision = shell.block(chunk, conditions, state) if conditions else None
            shell.guarded -= 1
            if decision is not None and decision.is_false:
                continue
            way = state.copy()
            if decision is not None and not decision.is_sure:
                shell.undecided += 1
            outcome = shell.block(chunk, body, way)
            if decision is not None and decision.absent and way.ended:
                continue  # a check of what the script needs: it ends only if that is missing
            ways.append(way)
            if decision is None or decision.is_true:
                state.merge(ways)
                return outcome if len(ways) == 1 else CommandOutcome(None, output=None)
    finally:
        shell.undecided = undecided
    state.merge([*ways, state.copy()])
    return CommandOutcome(None, output=None) if ways else DONE


@statement("list")
def _list(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, given: Text | None) -> CommandOutcome:
    """`a && b`, `a || b`."""
    left, right = node.named_children[0], node.named_children[-1]
    runs = any(child.type == "&&" for child in node.children)
    shell.guarded += 1
    outcome = shell.follow(chunk, left, state, given)
    shell.guarded -= 1
    if state.ended or state.left:
        return outcome
    if outcome.expected:
        if runs:
            return outcome.then(shell.follow(chunk, right, state))
        if right.type == "command" and chunk.raw(right).partition(" ")[0] in _AFTER_FAILURE:
            state.may_have_broken = state.may_have_broken or chunk.raw(right) == "break"
            return outcome
        return _perhaps(shell, chunk, right, state)
    if outcome.value is not None and not outcome.absent:
        return outcome.then(shell.follow(chunk, right, state)) if outcome.value == runs else _excused(outcome)
    way = state.copy()
    shell.undecided += 1
    second = shell.follow(chunk, right, way)
    shell.undecided -= 1
    if outcome.absent and outcome.value == runs and not way.ended:
        state.merge([way])
        return CommandOutcome(second.value, absent=True, expected=second.expected, output=second.output)
    perhaps = state.perhaps, state.may_have_returned
    if state.errexit and not shell.guarded and second.is_false and second.is_sure and not second.excused:
        way.ended = True
    state.merge([way, state.copy()])
    if outcome.absent:
        if outcome.value != runs:
            state.perhaps, state.may_have_returned = perhaps  # without the variable, the script goes on for certain
        return outcome
    decides = second.value is not runs and second.is_sure  # `unknown && false` fails, `unknown || true` succeeds
    found = CommandOutcome(second.value if decides else None, absent=second.absent, output=None)
    found.excused = True  # `set -e` has ended the script if it was the second command
    return found


def _excused(outcome: CommandOutcome) -> CommandOutcome:
    """The outcome of a list of which only the first command runs."""
    found = CommandOutcome(outcome.value, absent=outcome.absent, expected=outcome.expected, output=outcome.output)
    found.excused = True
    return found


def _perhaps(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState) -> CommandOutcome:
    """Follow a statement that may run or not."""
    way = state.copy()
    shell.undecided += 1
    shell.follow(chunk, node, way)
    shell.undecided -= 1
    state.merge([way, state.copy()])
    return CommandOutcome(value=True, expected=True, output=None)


@statement("case_statement")
def _case(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, _: Text | None) -> CommandOutcome:
    subject = node.child_by_field_name("value")
    word = known(shell.text(chunk, subject, state)) if subject is not None else None
    ways: list[ScriptState] = []
    undecided = shell.undecided
    try:
        for item in node.named_children:
            if item.type != "case_item":
                continue
            values = item.children_by_field_name("value")
            patterns = [known(shell.expander.text(chunk, one, state)) for one in values]
            fits = None if word is None or None in patterns else any(fnmatchcase(word, str(pattern)) for pattern in patterns)
            if fits is False:
                continue
            way = state.copy()
            shell.undecided += 0 if fits else 1
            outcome = shell.block(chunk, [child for child in item.named_children if child not in values], way)
            ways.append(way)
            if fits or patterns == ["*"]:
                state.merge(ways)
                return outcome if len(ways) == 1 else CommandOutcome(None, output=None)
    finally:
        shell.undecided = undecided
    state.merge([*ways, state.copy()])
    return CommandOutcome(None, output=None) if ways else DONE
