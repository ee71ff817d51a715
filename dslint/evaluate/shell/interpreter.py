"""The interpreter of scripts: it follows statements to the commands that they run. Nothing is executed.

Each kind of statement has a function of its own, registered by `@statement`, and each builtin of the shell one by `@builtin`, in the
modules next to this one. They share one `Interpreter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from dslint.evaluate.budget import Budget
from dslint.evaluate.shell.conditions import Tester
from dslint.evaluate.shell.outcome import CommandOutcome
from dslint.evaluate.shell.pieces import Text, TextPiece
from dslint.evaluate.shell.state import DEPTH, PIECES, STEPS, Launched, ScriptState
from dslint.evaluate.shell.syntax import Chunk
from dslint.evaluate.shell.words import Expander

if TYPE_CHECKING:
    from tree_sitter import Node


_COMPOUND = frozenset({"while_statement", "for_statement", "c_style_for_statement", "if_statement", "case_statement"})
"""Statements whose failure does not end a script with `set -e`: one inside that counts has ended it before (bash's manual, `set`)."""


def _is_compound(node: Node) -> bool:
    """Whether a statement is a compound one, also with a redirect: `while read LINE; do ...; done < FILE`."""
    body = node.child_by_field_name("body") if node.type == "redirected_statement" else node
    return body is not None and body.type in _COMPOUND


class Interpreter:
    """Follows a script.

    Args:
        path: where the script is; the files that it names are found from there.
        budget: the work that may still be done for the subject that the script belongs to.
    """

    def __init__(self, path: str, budget: Budget | None = None) -> None:
        self.path = path
        self.launched: list[Launched] = []
        """The commands that the script runs, in order."""
        self.files: dict[str, Text] = {}
        """The files that earlier texts of the same subject have written."""
        self.cut_off: TextPiece | None = None
        """The first statement that was not followed to its end."""
        self.budget = budget or Budget()
        self.project: dict[tuple[str, str], Text | None] = {}
        """The texts of files of the project that were looked for, by working directory and name."""
        self.chunks: dict[Text, Chunk] = {}
        """The trees of scripts that other scripts run."""
        self.steps = STEPS
        """The statements that may still be followed."""
        self.depth = 0
        """How many functions, files and texts that are commands are being followed."""
        self.undecided = 0
        """How many conditions that only the run decides are around the statement."""
        self.guarded = 0
        """How many conditions and lists are around the statement, in which a failure does not end the script."""
        self.expander = Expander(lambda chunk, node, state: _SUBSTITUTES[0](self, chunk, node, state))
        self.tester = Tester(self.expander)
        self._at: tuple[Chunk, Node] | None = None

    def run(self, chunk: Chunk, state: ScriptState) -> CommandOutcome:
        """Follow a text from its first statement on."""
        outcome = CommandOutcome(value=True)
        if self.depth >= DEPTH or self.steps < 0 or self.budget.is_spent:
            self.cut_off_here()
            return outcome
        self.depth += 1
        try:
            outcome = self.block(chunk, chunk.root.children, state)
        except RecursionError:  # thousands of statements in each other
            self.cut_off_here()
        self.depth -= 1
        return outcome

    def block(self, chunk: Chunk, nodes: Iterable[Node], state: ScriptState) -> CommandOutcome:
        """Follow statements one after another. The outcome is that of the last one."""
        outcome = CommandOutcome(value=True)
        for node in nodes:
            if state.ended or state.left:
                break
            if self.steps < 0 or self.budget.is_spent:
                self.cut_off_here()
                break
            if node.is_named and node.type != "comment":
                last = self.follow(chunk, node, state)
                outcome = outcome.then(last, because=False)
                outcome.excused = last.excused or _is_compound(node)
                if state.errexit and not outcome.excused and not self.guarded:
                    state.ended = state.ended or (last.is_false and last.is_sure)
                    state.perhaps = state.perhaps or (last.value is None and self._is_decision(chunk, node, state))
        return outcome

    @staticmethod
    def _is_decision(chunk: Chunk, node: Node, state: ScriptState) -> bool:
        """Whether a statement is a condition or a call of a function, which may be there to fail."""
        return node.type == "test_command" or (node.type == "command" and chunk.raw(node).split(maxsplit=1)[0] in state.functions)

    def follow(self, chunk: Chunk, node: Node, state: ScriptState, given: Text | None = None) -> CommandOutcome:
        """Follow a statement with a text on its standard input."""
        self._at = (chunk, node)
        self.steps -= 1
        if self.steps < 0 or not self.budget.spend():
            self.cut_off_here()
            return CommandOutcome(None, output=None)
        known = _STATEMENTS.get(node.type)
        return known(self, chunk, node, state, given) if known is not None else CommandOutcome(None, output=None)

    def text(self, chunk: Chunk, node: Node, state: ScriptState) -> Text:
        """A word as one text."""
        text = self.expander.text(chunk, node, state)
        self._work(len(text))
        return text

    def fields(self, chunk: Chunk, node: Node, state: ScriptState) -> list[Text]:
        """The fields of a word."""
        found = self.expander.fields(chunk, node, state)
        self._work(sum(map(len, found)))
        return found

    def _work(self, pieces: int) -> None:
        """Count the pieces of texts as work: variables that double each other make long ones of short scripts."""
        self.steps -= pieces // PIECES
        self.budget.spend(pieces // PIECES)

    def cut_off_here(self) -> None:
        """Note that the statement which is being followed is not followed to its end."""
        if self._at is not None:
            self.cut_off_at(*self._at)

    def cut_off_at(self, chunk: Chunk, node: Node) -> None:
        """Note a statement that is not followed to its end."""
        self.cut_off = self.cut_off or chunk.piece(node)


_Follows: TypeAlias = Callable[[Interpreter, Chunk, Any, ScriptState, "Text | None"], CommandOutcome]
_Substitutes: TypeAlias = Callable[[Interpreter, Chunk, Any, ScriptState], "Text | None"]
Builtin: TypeAlias = Callable[[Interpreter, "list[Text]", ScriptState, "Text | None"], CommandOutcome]
_F = TypeVar("_F", bound=_Follows)
_B = TypeVar("_B", bound=Builtin)
_S = TypeVar("_S", bound=_Substitutes)

_STATEMENTS: dict[str, _Follows] = {}
_SUBSTITUTES: list[_Substitutes] = []
BUILTINS: dict[str, Builtin] = {}
"""The builtins of the shell that change what it knows, by their names."""


def statement(*kinds: str) -> Callable[[_F], _F]:
    """Register the function that follows kinds of statements, by their names in tree-sitter's grammar."""

    def register(function: _F) -> _F:
        _STATEMENTS.update(dict.fromkeys(kinds, function))
        return function

    return register


def builtin(*names: str) -> Callable[[_B], _B]:
    """Register the function that follows a builtin with its words, the name among them, and its standard input."""

    def register(function: _B) -> _B:
        BUILTINS.update(dict.fromkeys(names, function))
        return function

    return register


def substitution(function: _S) -> _S:
    """Register the function that gives the output of `$(...)`."""
    _SUBSTITUTES.append(function)
    return function
