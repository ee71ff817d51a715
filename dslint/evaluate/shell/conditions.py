"""Conditions of a script: true, false, or None if that is only known at run time.

A script is read as it runs without arguments, with only the variables that are given: what nothing sets is empty in a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, TypeAlias

from dslint.evaluate.shell.pieces import Text, is_absent, known
from dslint.evaluate.shell.state import State
from dslint.evaluate.shell.syntax import Chunk
from dslint.evaluate.shell.words import Expander

if TYPE_CHECKING:
    from tree_sitter import Node

_NUMBERS = {
    "-eq": lambda one, other: one == other,
    "-ne": lambda one, other: one != other,
    "-lt": lambda one, other: one < other,
    "-le": lambda one, other: one <= other,
    "-gt": lambda one, other: one > other,
    "-ge": lambda one, other: one >= other,
}


_PLATFORM = re.compile(
    r"(?<![A-Za-z0-9])(?:\w*_)?RANK\b|NODEID\b|\b(?:SLURM|SKYPILOT|OMPI|PMIX?|PBS|LSB|AZUREML|AZ_BATCH)_|\bJOB_COMPLETION_INDEX\b"
)
"""Names of variables that only a platform sets."""


Absent: TypeAlias = Literal["empty", "any", "true"]
"""How to read a condition on something that nothing sets: as empty; as not decided, so that both branches are followed; as true."""


class Decision:
    """What a condition comes to, and whether it hangs on something that nothing sets."""

    __slots__ = ("absent", "value")

    def __init__(self, value: bool | None, *, absent: bool = False) -> None:  # noqa: FBT001 - it is the decision
        self.value = value
        self.absent = absent


Decide: TypeAlias = Callable[[Chunk, "Node", State], Decision]


class Tester:
    """Decides the conditions of a script."""

    def __init__(self, expander: Expander) -> None:
        self.expander = expander
        self.absent: Absent = "empty"
        self.left_out = False
        """Whether such a condition was decided."""

    def decide(self, chunk: Chunk, node: Node, state: State) -> Decision:
        """What a command in the place of a condition comes to."""
        decision = self._decision(chunk, node, state)
        if decision.absent and decision.value is not None:
            self.left_out = True
            if self.absent != "empty":
                return Decision(None if self.absent == "any" else True)
        return decision

    def _decision(self, chunk: Chunk, node: Node, state: State) -> Decision:
        if node.type == "test_command":
            parts = node.named_children
            return self._expression(chunk, parts[0], state) if len(parts) == 1 else Decision(None)
        if node.type == "compound_statement" and chunk.raw(node).startswith("(("):
            expression = chunk.raw(node)[2:-2]
            value = self.expander.number(expression, state)
            return Decision(bool(value) if value is not None else None, absent="$#" in expression and state.arguments is None)
        if node.type == "negated_command" and node.named_children:
            inner = self.decide(chunk, node.named_children[0], state)
            return Decision(None if inner.value is None else not inner.value, absent=inner.absent)
        if node.type == "list":
            return self._joined(chunk, node, state, self.decide)
        if node.type == "command":
            name = chunk.raw(node)
            if name in ("true", ":"):
                return Decision(value=True)
            if name == "false":
                return Decision(value=False)
            if name.startswith("test "):
                return self._test(chunk, node, state)
        return Decision(None)

    def _test(self, chunk: Chunk, node: Node, state: State) -> Decision:
        words = [self.expander.text(chunk, child, state) for child in node.children_by_field_name("argument")]
        if len(words) == 2:
            return _unary(known(words[0]) or "", words[1])
        return _binary(words[0], known(words[1]) or "", words[2], pattern=False) if len(words) == 3 else Decision(None)

    def _joined(self, chunk: Chunk, node: Node, state: State, decide: Decide) -> Decision:
        left, right = (decide(chunk, child, state) for child in node.named_children[:2])
        absent = left.absent or right.absent
        values = (left.value, right.value)
        if any(child.type == "&&" for child in node.children):
            return Decision(False if False in values else None if None in values else True, absent=absent)
        return Decision(True if True in values else None if None in values else False, absent=absent)

    def _expression(self, chunk: Chunk, node: Node, state: State) -> Decision:
        if node.type == "parenthesized_expression" and node.named_children:
            return self._expression(chunk, node.named_children[0], state)
        if node.type == "unary_expression":
            return self._unary_expression(chunk, node, state)
        if node.type == "binary_expression":
            sign = node.child_by_field_name("operator")
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if sign is None or left is None or right is None:
                return Decision(None)
            if sign.type in ("&&", "||", "-a", "-o"):
                return self._joined(chunk, node, state, self._expression)
            name = chunk.raw(sign)
            pattern = chunk.raw(node.parent).startswith("[[") if node.parent is not None else False
            texts = (self.expander.text(chunk, left, state), self.expander.text(chunk, right, state))
            return _binary(texts[0], name, texts[1], pattern=pattern and right.type not in ("string", "raw_string"))
        if node.type in ("string", "word", "simple_expansion", "expansion", "concatenation", "raw_string"):
            return _unary("-n", self.expander.text(chunk, node, state))
        return Decision(None)

    def _unary_expression(self, chunk: Chunk, node: Node, state: State) -> Decision:
        if chunk.raw(node).startswith("!"):
            inner = self._expression(chunk, node.named_children[-1], state)
            return Decision(None if inner.value is None else not inner.value, absent=inner.absent)
        if len(node.named_children) < 2:
            return Decision(None)
        return _unary(chunk.raw(node.named_children[0]), self.expander.text(chunk, node.named_children[-1], state))


def _unary(sign: str, text: Text) -> Decision:
    if sign not in ("-z", "-n"):
        return Decision(None)
    if is_absent(text):
        return Decision(sign == "-z", absent=True)
    characters = known(text)
    full = True if any(piece.text for piece in text) else None if characters is None else bool(characters)
    return Decision(None if full is None else full == (sign == "-n"))


def _is_of_platform(text: Text) -> bool:
    """Whether a variable that nothing in the script sets is one that a platform sets for each process: its rank, or a name of Slurm's."""
    return any(piece.absent and _PLATFORM.search(piece.source.document.text[slice(*piece.span)]) for piece in text)


def _binary(left: Text, sign: str, right: Text, *, pattern: bool) -> Decision:
    if _is_of_platform(left) or _is_of_platform(right):
        return Decision(None)
    absent = is_absent(left) or is_absent(right)
    one, other = (known(text) if known(text) is not None or not is_absent(text) else "" for text in (left, right))
    if one is None or other is None:
        return Decision(None)
    if sign in ("=", "==", "!="):
        equal = fnmatchcase(one, other) if pattern else one == other
        return Decision(equal == (sign != "!="), absent=absent)
    compare = _NUMBERS.get(sign)
    if compare is None:
        return Decision(None)
    try:
        return Decision(compare(int(one or 0), int(other or 0)), absent=absent)
    except ValueError:
        return Decision(None)
