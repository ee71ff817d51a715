"""What a script knows at one point: variables, functions, the working directory, and the files that it has written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from dslint.evaluate.shell.outcome import DONE, CommandOutcome
from dslint.evaluate.shell.pieces import Text, key

if TYPE_CHECKING:
    from tree_sitter import Node

    from dslint.evaluate.shell.syntax import Chunk
    from dslint.job.arguments import SourcedValue
    from dslint.job.model import JobSize


class Absence:
    """A variable that is not set."""

    __slots__ = ()


ABSENT = Absence()

Value: TypeAlias = Text | list[Text] | None
"""The value of a variable: a text, an array, or None if it is unknown."""

STEPS = 20_000
"""How many statements of a script are followed; a loop or a recursion that needs more is cut off."""

PIECES = 10
"""The pieces of a text that are as much work as a statement."""

DEPTH = 12
"""How deep functions, files and texts that are commands are followed."""


@dataclass
class ScriptState:
    """The state of a script. `arguments` are None if nothing is known about them: at the top of a script, which is read without any."""

    variables: dict[str, Value] = field(default_factory=dict)
    functions: dict[str, tuple[Chunk, Node]] = field(default_factory=dict)
    files: dict[str, Text] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    optional: set[str] = field(default_factory=set)
    """The variables that arguments of the script or a file outside the project may set, if their value is empty."""
    arguments: list[Text] | None = None
    folder: str = ""
    ended: bool = False
    errexit: bool = False
    """Whether `set -e` is in force."""
    exports_all: bool = False
    """Whether `set -a` is in force, which exports each variable that is set."""
    perhaps: bool = False
    """Whether a condition that only the run decides may have ended the script before."""
    option: tuple[int, int] = (1, 1)
    """Where `getopts` is: the number of the argument, and of the character in it."""
    locals: dict[str, Value | Absence] | None = None
    """In a function, the values before of its local variables."""
    status: CommandOutcome = DONE
    """What the last `return` returns."""
    left: str = ""
    """`break`, `continue` or `return` while the statements after it are passed over."""
    may_have_returned: bool = False
    """In a function, whether only the run knows if a `return` has ended it."""
    may_have_broken: bool = False
    """In a loop, whether only the run knows if a `break` has ended it."""

    def copy(self) -> ScriptState:
        """The same state, for statements that do not change this one."""
        variables = {name: list(value) if isinstance(value, list) else value for name, value in self.variables.items()}
        return ScriptState(
            variables,
            dict(self.functions),
            dict(self.files),
            set(self.exported),
            set(self.optional),
            self.arguments,
            self.folder,
            self.ended,
            self.errexit,
            self.exports_all,
            self.perhaps,
            self.option,
            None if self.locals is None else dict(self.locals),
            self.status,
            self.left,
            self.may_have_returned,
            self.may_have_broken,
        )

    def child(self) -> ScriptState:
        """The state of another shell that a command starts: it gets only the variables that are exported, and those are texts."""
        inside = self.copy()
        inside.variables = {name: inside.variables[name] for name in inside.exported & inside.variables.keys()}
        inside.locals, inside.errexit, inside.exports_all = None, False, False
        return inside

    def leave_open(self, name: str) -> None:
        """Note that what is not seen may set a variable: if it is empty, it is meant to be set."""
        value = self.variables.setdefault(name, ())
        if isinstance(value, tuple) and not any(piece.text is None or piece.text for piece in value):
            self.variables[name] = ()
            self.optional.add(name)

    @property
    def environment(self) -> dict[str, Text]:
        """The variables that commands get, as far as their values are known."""
        values = ((name, self.variables.get(name)) for name in sorted(self.exported))
        return {name: value for name, value in values if isinstance(value, tuple)}

    @property
    def unexported(self) -> dict[str, Text]:
        """The variables that commands do not get, as far as their values are known."""
        return {name: value for name, value in self.variables.items() if name not in self.exported and isinstance(value, tuple)}

    def merge(self, ways: list[ScriptState]) -> None:
        """Continue after statements of which one of several ways was taken: what differs between them is unknown."""
        alive = [way for way in ways if not way.ended]
        if not alive:
            self.ended = True
            return
        self.perhaps = len(alive) < len(ways) or any(way.perhaps for way in alive)
        lefts = {way.left for way in alive}
        self.left = alive[0].left if len(lefts) == 1 else ""
        self.may_have_returned = any(way.may_have_returned for way in alive) or ("return" in lefts and len(lefts) > 1)
        self.may_have_broken = any(way.may_have_broken for way in alive) or ("break" in lefts and len(lefts) > 1)
        first, *others = alive
        names = {name for way in alive for name in way.variables}
        self.variables = {name: first.variables.get(name) if _agree(name, first, others) else None for name in names}
        self.exported = {name for way in alive for name in way.exported}
        self.optional = {name for way in alive for name in way.optional}
        self.functions = {name: entry for way in alive for name, entry in way.functions.items()}
        paths = {path for way in alive for path in way.files}
        self.files = {
            path: text for path in paths if (text := first.files.get(path)) and all(way.files.get(path) == text for way in others)
        }
        self.arguments = first.arguments
        if any(not _same(way.arguments, first.arguments) for way in others):
            some = next(text for way in alive for text in way.arguments or () if text)
            self.arguments = [(some[0]._replace(text=None, exact=False, splits=True, absent=False),)]
        self.folder = first.folder if all(way.folder == first.folder for way in others) else ""


def _agree(name: str, first: ScriptState, others: list[ScriptState]) -> bool:
    known = name in first.variables
    return all((name in way.variables) == known and _same(way.variables.get(name), first.variables.get(name)) for way in others)


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return [key(text) for text in one] == [key(text) for text in other]
    if isinstance(one, tuple) and isinstance(other, tuple):
        return key(one) == key(other)
    return one is None and other is None


class Launched:
    """A command that a script runs: its words, and what the script knows there."""

    __slots__ = ("container", "environment", "files", "folder", "job", "memory", "perhaps", "shell_of", "unexported", "words")

    def __init__(self, words: list[Text], environment: Mapping[str, Text], state: ScriptState, *, perhaps: bool = False) -> None:
        self.words = words
        self.perhaps = perhaps or state.perhaps or state.may_have_returned
        """Whether only the run decides that the command runs."""
        self.environment = {**state.environment, **environment}
        self.unexported = state.unexported
        """The variables of the script that the command does not get."""
        self.files = state.files.copy()
        self.folder = state.folder
        self.memory: SourcedValue | None = None
        """The memory limit of the container that runs it, in bytes."""
        self.container: SourcedValue | None = None
        """What starts the container that runs it, if that has only the shared memory which containers have by default."""
        self.job: JobSize | None = None
        """The size of the job that runs it, if a job file does."""
        self.shell_of: Sequence[Text] = ()
        """The words that start the shell which runs it: `srun -N 2` of `srun -N 2 bash -c "..."`."""
