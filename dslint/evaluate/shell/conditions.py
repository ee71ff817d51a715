"""Conditions of a script: true, false, or None if that is only known at run time.

A script is read as it runs without arguments, with only the variables that are given: what nothing sets is empty in a test.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, TypeAlias

from dslint.evaluate.shell.outcome import CommandOutcome
from dslint.evaluate.shell.pieces import Text, is_absent, known
from dslint.evaluate.shell.state import ScriptState
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


_SORTS_ALIKE = re.compile(r"[a-z0-9]*")
"""Texts whose order is the same in every locale."""

_PLAIN_PATTERN = re.compile(r"\^?(?:[\w.-]|\[\^?[\w-]+\]|\((?:[\w-]|\|)+\)(?![*+?])|(?<!^)(?<!\^)[*+?](?![*+?])){1,60}\$?", re.ASCII)
"""Regular expressions of letters, digits, simple sets, alternatives and repetitions."""

_MOST_REPETITIONS = 4
"""The most repetitions in such a pattern; each can multiply the work with the length of the text."""

_LONGEST_MATCHED = 1_000
"""The most characters of a text that a pattern is matched with: four repetitions try up to the fourth power of the length in the worst
case, which only a text without a match has."""


Absent: TypeAlias = Literal["empty", "any", "true"]
"""How to read a condition on something that nothing sets: as empty; as not decided, so that both branches are followed; as true."""


class Tester:
    """Decides the conditions of a script."""

    def __init__(self, expander: Expander) -> None:
        self.expander = expander
        self.absent: Absent = "empty"
        self.left_out = False
        """Whether such a condition was decided."""

    def decide(self, chunk: Chunk, node: Node, state: ScriptState) -> CommandOutcome:
        """What `[ ... ]`, `[[ ... ]]` or `(( ... ))` comes to."""
        return self._read(self._decision(chunk, node, state))

    def _read(self, decision: CommandOutcome) -> CommandOutcome:
        """A decision on something that nothing sets, as the reader of the script is told to read it."""
        if decision.absent and decision.value is not None:
            self.left_out = True
            if self.absent != "empty":
                return CommandOutcome(None if self.absent == "any" else True)
        return decision

    def _decision(self, chunk: Chunk, node: Node, state: ScriptState) -> CommandOutcome:
        if node.type == "test_command":
            parts = node.named_children
            leaves = [leaf for child in node.children[1:-1] for leaf in _leaves(child)]
            if not chunk.raw(node).startswith("[[") and any(chunk.raw(leaf) in ("-a", "-o") for leaf in leaves):
                return self._of_words(chunk, leaves, state)
            return self._expression(chunk, parts[0], state) if len(parts) == 1 else CommandOutcome(None)
        if node.type == "compound_statement" and chunk.raw(node).startswith("(("):
            expression = chunk.raw(node)[2:-2]
            value = self.expander.number(expression, state, chunk.piece(node))
            return CommandOutcome(bool(value) if value is not None else None, absent="$#" in expression and state.arguments is None)
        return CommandOutcome(None)

    def _of_words(self, chunk: Chunk, words: list[Node], state: ScriptState) -> CommandOutcome:
        """`[ a -a b -o c ]` by its words: the syntax tree gives `-a` no lower rank than `-eq`."""
        answers: list[bool | None] = []
        absent = False
        for part in _split(chunk, words, "-o"):
            tests = [self._of_part(chunk, one, state) for one in _split(chunk, part, "-a")]
            values = [one.value for one in tests]
            answers.append(False if False in values else None if None in values else True)
            absent = absent or any(one.absent for one in tests)
        return CommandOutcome(True if True in answers else None if None in answers else False, absent=absent)

    def _of_part(self, chunk: Chunk, words: list[Node], state: ScriptState) -> CommandOutcome:
        """A test of one, two or three words."""
        if len(words) > 1 and chunk.raw(words[0]) == "!":
            inner = self._of_part(chunk, words[1:], state)
            return CommandOutcome(None if inner.value is None else not inner.value, absent=inner.absent)
        texts = [self.expander.text(chunk, word, state) for word in words]
        if len(words) == 3:
            return _binary(texts[0], chunk.raw(words[1]), texts[2], pattern=False)
        return _unary(chunk.raw(words[0]) if len(words) == 2 else "-n", texts[-1]) if len(words) in (1, 2) else CommandOutcome(None)

    def test(self, words: list[Text]) -> CommandOutcome:
        """`test ...`, with its arguments."""
        if len(words) == 2:
            return self._read(_unary(known(words[0]) or "", words[1]))
        return self._read(_binary(words[0], known(words[1]) or "", words[2], pattern=False) if len(words) == 3 else CommandOutcome(None))

    def _joined(self, chunk: Chunk, node: Node, state: ScriptState) -> CommandOutcome:
        left, right = (self._expression(chunk, child, state) for child in node.named_children[:2])
        absent = left.absent or right.absent
        values = (left.value, right.value)
        if any(child.type == "&&" for child in node.children):
            return CommandOutcome(False if False in values else None if None in values else True, absent=absent)
        return CommandOutcome(True if True in values else None if None in values else False, absent=absent)

    def _expression(self, chunk: Chunk, node: Node, state: ScriptState) -> CommandOutcome:
        if node.type == "parenthesized_expression" and node.named_children:
            return self._expression(chunk, node.named_children[0], state)
        if node.type == "unary_expression":
            return self._unary_expression(chunk, node, state)
        if node.type == "binary_expression":
            sign = node.child_by_field_name("operator")
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if sign is None or left is None or right is None:
                return CommandOutcome(None)
            if sign.type in ("&&", "||", "-a", "-o"):
                return self._joined(chunk, node, state)
            name = chunk.raw(sign)
            pattern = chunk.raw(node.parent).startswith("[[") if node.parent is not None else False
            texts = (self.expander.text(chunk, left, state), self.expander.text(chunk, right, state))
            if name == "=~":
                return _matched(texts[0], chunk.raw(right) if right.type == "regex" else "")
            return _binary(texts[0], name, texts[1], pattern=pattern and right.type not in ("string", "raw_string"))
        if node.type in ("string", "word", "simple_expansion", "expansion", "concatenation", "raw_string"):
            return _unary("-n", self.expander.text(chunk, node, state))
        return CommandOutcome(None)

    def _unary_expression(self, chunk: Chunk, node: Node, state: ScriptState) -> CommandOutcome:
        if chunk.raw(node).startswith("!"):
            inner = self._expression(chunk, node.named_children[-1], state)
            return CommandOutcome(None if inner.value is None else not inner.value, absent=inner.absent)
        if len(node.named_children) < 2:
            return CommandOutcome(None)
        return _unary(chunk.raw(node.named_children[0]), self.expander.text(chunk, node.named_children[-1], state))


def _leaves(node: Node) -> list[Node]:
    """The words of a test, in their order."""
    if node.type not in ("unary_expression", "binary_expression"):
        return [node]
    return [leaf for child in node.children for leaf in _leaves(child)]


def _split(chunk: Chunk, words: list[Node], sign: str) -> list[list[Node]]:
    """Words between those that are a sign."""
    parts: list[list[Node]] = [[]]
    for word in words:
        if chunk.raw(word) == sign:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _unary(sign: str, text: Text) -> CommandOutcome:
    if sign not in ("-z", "-n"):
        return CommandOutcome(None)
    if is_absent(text):
        return CommandOutcome(sign == "-z", absent=True)
    characters = known(text)
    full = True if any(piece.text for piece in text) else None if characters is None else bool(characters)
    return CommandOutcome(None if full is None else full == (sign == "-n"))


def _matched(text: Text, pattern: str) -> CommandOutcome:
    """`[[ $A =~ pattern ]]`, for patterns that mean the same to Python."""
    value = known(text) if not is_absent(text) else ""
    if value is None or len(value) > _LONGEST_MATCHED or _is_of_platform(text):
        return CommandOutcome(None)
    if not _PLAIN_PATTERN.fullmatch(pattern) or len(re.findall(r"[*+?]", pattern)) > _MOST_REPETITIONS:
        return CommandOutcome(None)
    try:
        return CommandOutcome(re.search(pattern, value) is not None, absent=is_absent(text))
    except re.error:
        return CommandOutcome(None)


def _is_of_platform(text: Text) -> bool:
    """Whether a variable that nothing in the script sets is one that a platform sets for each process: its rank, or a name of Slurm's."""
    return any(piece.absent and _PLATFORM.search(piece.source.document.text[slice(*piece.span)]) for piece in text)


def _binary(left: Text, sign: str, right: Text, *, pattern: bool) -> CommandOutcome:
    if _is_of_platform(left) or _is_of_platform(right):
        return CommandOutcome(None)
    absent = is_absent(left) or is_absent(right)
    one, other = (known(text) if known(text) is not None or not is_absent(text) else "" for text in (left, right))
    if one is None or other is None:
        return CommandOutcome(None)
    if sign in ("=", "==", "!="):
        equal = fnmatchcase(one, other) if pattern else one == other
        return CommandOutcome(equal == (sign != "!="), absent=absent)
    if sign in ("<", ">") and _SORTS_ALIKE.fullmatch(one) and _SORTS_ALIKE.fullmatch(other):
        return CommandOutcome(one < other if sign == "<" else one > other, absent=absent)
    compare = _NUMBERS.get(sign)
    if compare is None:
        return CommandOutcome(None)
    try:
        return CommandOutcome(compare(int(one or 0), int(other or 0)), absent=absent)
    except ValueError:
        return CommandOutcome(None)
