"""Loops of a script: over known values, until a condition ends them, and over the arguments of the script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dslint.evaluate.shell.conditions import Tester
from dslint.evaluate.shell.pieces import Text
from dslint.evaluate.shell.state import State
from dslint.evaluate.shell.syntax import Chunk
from dslint.evaluate.shell.words import Expander

if TYPE_CHECKING:
    from tree_sitter import Node

ITERATIONS = 64
"""How many passes of a loop are followed."""


class Loops:
    """Follows loops. The statements in them are followed by the subclass."""

    expander: Expander
    tester: Tester

    def _statement(self, chunk: Chunk, node: Node, state: State) -> None:
        """Follow one statement."""
        raise NotImplementedError

    def _cut_off_at(self, chunk: Chunk, node: Node) -> None:
        """Note a statement that is not followed to its end."""
        raise NotImplementedError

    def _fields(self, chunk: Chunk, node: Node, state: State) -> list[Text]:
        """The fields of a word."""
        raise NotImplementedError

    def _for_statement(self, chunk: Chunk, node: Node, state: State) -> None:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if variable is None or body is None:
            return
        name = chunk.raw(variable)
        values = [field for child in node.children_by_field_name("value") for field in self._fields(chunk, child, state)]
        values = [text for text in values if text]
        raw = [chunk.raw(child).strip('"') for child in node.children_by_field_name("value")]
        if state.arguments is None and raw in ([], ["$@"], ["$*"], ["${@}"]):
            inside = state.copy()
            inside.variables[name] = None
            self._statement(chunk, body, inside)  # it may launch something for each argument
            self._without_arguments(chunk, body, state)
            return
        if len(values) > ITERATIONS:
            self._cut_off_at(chunk, node)
        for value in values[:ITERATIONS]:
            state.variables[name] = tuple(piece._replace(splits=False) for piece in value)
            self._statement(chunk, body, state)
            if state.ended or self._leaves(state):
                return

    def _c_style_for_statement(self, chunk: Chunk, node: Node, state: State) -> None:
        body = node.child_by_field_name("body")
        raw = chunk.raw(node)
        head = raw[raw.find("((") + 2 : raw.find("))")].split(";")
        if body is None or len(head) != 3:
            return
        name, _, first = (part.strip() for part in head[0].partition("="))
        value = self.expander.number(first, state)
        piece = chunk.piece(node)
        for _ in range(ITERATIONS):
            state.variables[name] = (piece._replace(text=str(value)),) if value is not None else None
            if self.expander.number(head[1], state) == 0:
                return
            self._statement(chunk, body, state)
            if self._leaves(state):
                return
            step = head[2].strip()
            changed = step.replace("++", "+1") if "++" in step else step.replace("--", "-1") if "--" in step else step.replace("+=", "+")
            value = self.expander.number(changed, state) if value is not None else None
            if state.ended or value is None:
                return
        self._cut_off_at(chunk, node)

    def _while_statement(self, chunk: Chunk, node: Node, state: State) -> None:
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        if condition is None or body is None:
            return
        for _ in range(ITERATIONS):
            decision = self.tester.decide(chunk, condition, state)
            wanted = chunk.raw(node).startswith("while")
            if decision.value is not None and decision.value != wanted:
                if decision.absent:
                    self._without_arguments(chunk, body, state)
                return
            if decision.value is None or (state.arguments is None and _reads_arguments(chunk, body)):
                break
            self._statement(chunk, body, state)
            if state.ended or self._leaves(state):
                return
        if state.arguments is None and (chunk.raw(condition).lstrip("(").startswith("getopts") or _reads_arguments(chunk, body)):
            self._without_arguments(chunk, body, state)
            return
        # How often it runs is not known: what it assigns is unknown, inside and after it.
        for name in _assigned(chunk, body):
            state.variables[name] = None
        inside = state.copy()
        self._statement(chunk, body, inside)
        inside.left = ""
        state.merge([state.copy(), inside])

    @staticmethod
    def _leaves(state: State) -> bool:
        """Whether a loop ends with this pass, by `break`; after `continue` the next pass begins."""
        left, state.left = state.left, ""
        return left == "break"

    def _without_arguments(self, chunk: Chunk, body: Node, state: State) -> None:
        """Pass over a loop that reads the arguments of the script: what has no value before it is set by an argument, or stays empty."""
        for name in _assigned(chunk, body):
            value = state.variables.setdefault(name, ())
            if isinstance(value, tuple) and not any(piece.text is None or piece.text for piece in value):
                state.variables[name] = ()
                state.optional.add(name)


def _reads_arguments(chunk: Chunk, body: Node) -> bool:
    """Whether a loop reads the arguments of the script: `while true; do case "$1" in ... shift ... done`."""
    raw = chunk.raw(body)
    return "shift" in raw and "$1" in raw


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
