"""Follow the statements of a script: variables, conditions, loops, functions. Nothing is executed."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from dslint.evaluate.shell.conditions import Tester
from dslint.evaluate.shell.loops import Loops
from dslint.evaluate.shell.pieces import Piece, Text, known
from dslint.evaluate.shell.state import DEPTH, PIECES, STEPS, State
from dslint.evaluate.shell.syntax import Chunk
from dslint.evaluate.shell.words import Expander, bounded

if TYPE_CHECKING:
    from tree_sitter import Node

_AFTER_FAILURE = frozenset({"exit", "return", "true", "break", "continue", ":"})
"""What scripts do if a command fails, which it is not expected to."""


class Flow(Loops):
    """Follows statements. Commands are followed by the subclass; `cut_off` is the first statement that was not followed to its end."""

    def __init__(self) -> None:
        self.expander = Expander(self._substitute)
        self.tester = Tester(self.expander)
        self.cut_off: Piece | None = None
        self._at: tuple[Chunk, Node] | None = None
        self._steps = 0
        self._depth = 0

    def run(self, chunk: Chunk, state: State) -> None:
        """Follow a text from its first statement on."""
        if self._depth >= DEPTH:
            self._cut_off_here()
            return
        self._depth += 1
        try:
            self._block(chunk, chunk.root.children, state)
        except RecursionError:  # thousands of statements in each other
            self._cut_off_here()
        self._depth -= 1

    def _cut_off_here(self) -> None:
        """Note that the statement which is being followed is not followed to its end."""
        if self._at is not None:
            self._cut_off_at(*self._at)

    def _cut_off_at(self, chunk: Chunk, node: Node) -> None:
        self.cut_off = self.cut_off or chunk.piece(node)

    def _substitute(self, chunk: Chunk, node: Node, state: State) -> Text | None:
        """The output of `$(...)`, if it is known."""
        raise NotImplementedError

    def _block(self, chunk: Chunk, nodes: Iterable[Node], state: State) -> None:
        for node in nodes:
            if state.ended or state.left:
                return
            if node.is_named:
                self._statement(chunk, node, state)

    def _statement(self, chunk: Chunk, node: Node, state: State) -> None:
        self._steps += 1
        self._at = (chunk, node)
        if self._steps > STEPS:
            self._cut_off_here()
            return
        follow = getattr(self, "_" + node.type, None) if node.type in _STATEMENTS else None
        if follow is not None:
            follow(chunk, node, state)
        elif node.type in ("do_group", "compound_statement", "ERROR", "program") and not chunk.raw(node).startswith("(("):
            self._block(chunk, node.children, state)

    def _text(self, chunk: Chunk, node: Node, state: State) -> Text:
        """A word as one text. Each piece of it is work, as a statement is: variables may double each other."""
        text = self.expander.text(chunk, node, state)
        self._steps += len(text) // PIECES
        return text

    def _fields(self, chunk: Chunk, node: Node, state: State) -> list[Text]:
        """The fields of a word, which are work as well."""
        found = self.expander.fields(chunk, node, state)
        self._steps += sum(map(len, found)) // PIECES
        return found

    # ------------------------------------------------------------------ variables

    def _variable_assignment(self, chunk: Chunk, node: Node, state: State) -> None:
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return
        name = chunk.raw(target)
        adds = any(child.type == "+=" for child in node.children)
        if target.type == "subscript":
            state.variables[name.partition("[")[0]] = None
            return
        if value is not None and value.type == "array":
            items = [field for child in value.named_children for field in self._fields(chunk, child, state)]
            before = state.variables.get(name)
            if adds and name in state.variables:
                if before is None:
                    return
                items = [*(before if isinstance(before, list) else [before]), *items]
            state.variables[name] = items[:5_000]
            return
        written = self._text(chunk, value, state) if value is not None else ()
        text = tuple(piece._replace(splits=False) for piece in written)
        before = state.variables.get(name)
        if adds and isinstance(before, list):
            if before:
                state.variables[name] = [before[0] + text, *before[1:]]
            return
        if adds and name in state.variables:
            if not isinstance(before, tuple):
                return
            text = before + text
        state.variables[name] = bounded(text, chunk.piece(node))

    def _variable_assignments(self, chunk: Chunk, node: Node, state: State) -> None:
        self._block(chunk, node.named_children, state)

    def _declaration_command(self, chunk: Chunk, node: Node, state: State) -> None:
        exports = chunk.raw(node).startswith(("export", "declare -x", "typeset -x"))
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._variable_assignment(chunk, child, state)
            if exports:
                state.exported.add(chunk.raw(child).partition("=")[0].rstrip("+"))

    def _unset_command(self, chunk: Chunk, node: Node, state: State) -> None:
        for child in node.named_children:
            state.variables.pop(chunk.raw(child), None)
            state.functions.pop(chunk.raw(child), None)

    def _function_definition(self, chunk: Chunk, node: Node, state: State) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            state.functions[chunk.raw(name)] = (chunk, body)

    # ------------------------------------------------------------------ control flow

    def _if_statement(self, chunk: Chunk, node: Node, state: State) -> None:
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
        self._choose(chunk, branches, state)

    def _choose(self, chunk: Chunk, branches: list[tuple[list[Node], list[Node]]], state: State) -> None:
        """Take the branch that conditions decide; every branch that may be taken where they do not."""
        ways: list[State] = []
        for conditions, body in branches:
            decision = self.tester.decide(chunk, conditions[-1], state) if conditions else None
            if decision is not None and decision.value is False:
                continue
            way = state.copy()
            self._block(chunk, body, way)
            if decision is not None and decision.absent and way.ended:
                continue  # a check of what the script needs: it ends only if that is missing
            ways.append(way)
            if decision is None or decision.value is True:
                state.merge(ways)
                return
        state.merge([*ways, state.copy()])

    def _list(self, chunk: Chunk, node: Node, state: State) -> None:
        sign = "&&" if any(child.type == "&&" for child in node.children) else "||"
        self._chain(chunk, _operands(node, sign), state, runs=sign == "&&")

    def _chain(self, chunk: Chunk, nodes: list[Node], state: State, *, runs: bool) -> None:
        """Follow `a && b && c` (`runs`) or `a || b || c`."""
        left, *rest = nodes
        if not rest:
            self._statement(chunk, left, state)
            return
        if left.type not in ("test_command", "negated_command", "compound_statement") or not chunk.raw(left).startswith(("[", "((", "!")):
            self._statement(chunk, left, state)
            if runs:
                self._chain(chunk, rest, state, runs=runs)
            elif rest[0].type != "command" or chunk.raw(rest[0]).partition(" ")[0] not in _AFTER_FAILURE:
                self._choose(chunk, [([left], rest)], state)
            return
        decision = self.tester.decide(chunk, left, state)
        if decision.value is not None and not decision.absent:
            if decision.value == runs:
                self._chain(chunk, rest, state, runs=runs)
            return
        ways = [state.copy()]
        self._chain(chunk, rest, ways[0], runs=runs)
        if not (decision.absent and decision.value == runs and not ways[0].ended):
            ways.append(state.copy())
        state.merge(ways)

    def _case_statement(self, chunk: Chunk, node: Node, state: State) -> None:
        subject = node.child_by_field_name("value")
        word = known(self.expander.text(chunk, subject, state)) if subject is not None else None
        ways: list[State] = []
        for item in node.named_children:
            if item.type != "case_item":
                continue
            values = item.children_by_field_name("value")
            patterns = [known(self.expander.text(chunk, one, state)) for one in values]
            fits = None if word is None or None in patterns else any(fnmatchcase(word, str(pattern)) for pattern in patterns)
            if fits is False:
                continue
            way = state.copy()
            self._block(chunk, [child for child in item.named_children if child not in values], way)
            ways.append(way)
            if fits or patterns == ["*"]:
                state.merge(ways)
                return
        state.merge([*ways, state.copy()])

    def _subshell(self, chunk: Chunk, node: Node, state: State) -> None:
        inside = state.copy()
        self._block(chunk, node.named_children, inside)
        state.files.update(inside.files)

    def _negated_command(self, chunk: Chunk, node: Node, state: State) -> None:
        self._block(chunk, node.named_children, state)


_STATEMENTS = frozenset(
    """
    variable_assignment variable_assignments declaration_command unset_command function_definition if_statement list for_statement
    c_style_for_statement while_statement case_statement subshell negated_command pipeline redirected_statement command
    """.split()
)
"""The kinds of statement; each has a method."""


def _operands(node: Node, sign: str) -> list[Node]:
    """The commands that one operator joins."""
    left, right = node.named_children[0], node.named_children[-1]
    inner = left.type == "list" and any(child.type == sign for child in left.children)
    return [*(_operands(left, sign) if inner else [left]), right]
