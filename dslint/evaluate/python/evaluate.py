"""Follow a program: `evaluate` an expression, follow a `block` of statements.

Each kind of expression and statement has a function of its own, registered by `@expression` and `@statement` in the modules next to this
one. They share one `ProgramState`. Nothing is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.journal import Journal
from dslint.evaluate.python.nodes import children
from dslint.evaluate.python.sources import SourceFile, Sources
from dslint.evaluate.reasons import IS_COMPUTED, Reason
from dslint.evaluate.values import COMPUTED, NONE, Cells, DictValue, Flag, Function, Module, Object, Scope, Unknown, Value
from dslint.job.events import Condition
from dslint.record import Record
from dslint.source.tree import Span


class Exhausted(Exception):
    """The program is too large to be followed to its end."""


class Raised(Exception):
    """The program raises for certain, in a `try` statement that handles it."""

    def __init__(self, kinds: tuple[str, ...], value: Value) -> None:
        super().__init__(kinds)
        self.kinds = kinds
        """The names of the class that is raised and of those that it inherits from."""
        self.value = value


@dataclass(slots=True)
class Trying:
    """A `try` statement: the names of what it handles, and how many conditions and loops are around it.

    `goes_on` says that the program may go on after an error of a library.
    """

    handles: frozenset[str]
    undecided: int
    repeated: int
    partial: int
    goes_on: bool = True
    may_raise: bool = False
    """Whether its body raises on a condition that only the run knows."""


class SkippedBranch(Record):
    """A branch that a known value does not take: the file, its statements, and the names of the functions and classes that it calls."""

    source: SourceFile
    body: Sequence[ast.stmt]
    called: frozenset[str]


class AwaitedName(NamedTuple):
    """A cell that waits for a name of a module: the scope that it is in, its own name, and what stands there until then."""

    cells: Cells
    name: str
    missing: Value


@dataclass(slots=True)
class ProgramState:
    """What is known while a program is followed. `receive` is called with each call of a library's function."""

    sources: Sources
    receive: Callable[[CallOf], Value | None]
    steps: int
    """How many expressions may still be evaluated."""
    attempts: int
    """How many may still be evaluated in loops that are then followed in another way."""
    flags: dict[str, Flag] = field(default_factory=dict)
    """The flags that the program is launched with, by the names of their arguments."""
    sections: frozenset[str] | None = None
    """The `SECTIONS` of the config that Accelerate is launched with; None if it is not known."""
    library: Mapping[str, Callable[[ProgramState, CallOf], Value]] = field(default_factory=dict)
    """Functions of frameworks' libraries, by their full names."""
    sparing: int = 0
    """With fewer steps left, functions that had their share are not followed again; see `functions.enter`."""
    spent: dict[ast.AST, int] = field(default_factory=dict)
    """The steps that each function has taken."""
    leads: set[ast.AST] = field(default_factory=set)
    """The functions that led to a call with a config."""
    passed_over: set[ast.AST] = field(default_factory=set)
    """The functions that were not followed again."""
    found: Callable[[], int] = field(default=lambda: 0)
    """How many calls with a config, and commands, are known."""
    journal: Journal = field(default_factory=Journal)
    functions: list[Function] = field(default_factory=list)
    later: list[tuple[Function, CallOf]] = field(default_factory=list)
    """The functions that a library calls later, with these calls."""
    followed: set[ast.AST] = field(default_factory=set)
    """The functions that were entered."""
    skipped: dict[ast.AST, SkippedBranch] = field(default_factory=dict)
    """The branches that a known value does not take, by their `if`. The first turn decides, unless `taken_later` has the `if`."""
    taken_later: set[ast.AST] = field(default_factory=set)
    """The `if` statements whose skipped branch another turn takes, or may take."""
    partial: int = 0
    """How many blocks are around the statement of which a statement before may have left."""
    missing: int = 0
    """How many items were read that an open dict may lack: there the program can raise."""
    active: list[ast.AST] = field(default_factory=list)
    """The functions that are being followed, from the outermost."""
    called_at: list[int] = field(default_factory=list)
    """The places of the calls of these functions; -1 for one that the project does not call."""
    turns: dict[int, dict[tuple[int, ...], int]] = field(default_factory=dict)
    """By the place of a call of a library, the places from which it was reached."""
    undecided: int = 0
    """How many conditions that only the run knows are around the statement."""
    unlikely: int = 0
    """How many of them a flag decides the other way by its default."""
    conditions: list[Condition] = field(default_factory=list)
    """The conditions that only the run knows, and that hold at the statement or do not."""
    within: list[str] = field(default_factory=list)
    """The context managers of libraries around the statement."""
    making: list[Object] = field(default_factory=list)
    """The objects of classes of the project that are being made, from the outermost."""
    loops: int = 0
    """How many loops are around the statement."""
    left: str = ""
    """How the statements that were left last are left: by "return", by "break" or "continue", or by "raise"."""
    perhaps_left: set[str] = field(default_factory=set)
    """How the statements that are followed may have been left before: on a condition that only the run knows."""
    trying: list[Trying] = field(default_factory=list)
    """The `try` statements around the statement."""
    consumers: list[Callable[[Value], None]] = field(default_factory=list)
    """What gets the values that the generators yield which are being followed, from the outermost."""
    repeated: int = 0
    """How many of them are followed by one turn that stands for all."""
    note: Callable[[CallOf, Value | None], None] = lambda _, __: None
    """Called with each call of a method of an object that a library made, and with that object."""
    at: tuple[SourceFile, ast.stmt] | None = None
    """The statement that is being followed, with its file."""
    flow: int = 0
    """Which of the functions that nothing calls is followed; 0 for what the program runs from its first statement on."""
    modules: dict[str, Module | None] = field(default_factory=dict)
    loading: list[str] = field(default_factory=list)
    """The files of modules that are being imported, from the outermost."""
    awaited: dict[tuple[str, str], list[AwaitedName]] = field(default_factory=dict)
    """By file and name: what imports a name before it is defined, because the modules import each other."""
    beyond: dict[str, str] = field(default_factory=dict)
    """The files of modules that are not followed because the program has too many, by the names of the modules; relative ones with the file
    that imports them before them."""
    folders: list[str] = field(default_factory=list)
    """The folders that the program, or PYTHONPATH of its launch, adds to `sys.path`."""
    outside: dict[str, str] = field(default_factory=dict)
    """By name: the files of modules in such a folder that are outside of the project, and not read."""
    written: dict[str, DictValue] = field(default_factory=dict)
    """The JSON files that the program writes."""
    environment: Cells = field(default_factory=lambda: Cells(0, optional=True))
    """The environment variables that the program sets."""
    replaces_flags: bool = False
    """Whether what only the run knows, such as a file, may have given an argument another value than its flag."""
    reset: set[str] = field(default_factory=set)
    """The attributes of objects to which what only the run knows may have given another value."""
    parsed: list[Value] = field(default_factory=list)
    """The classes that the program parses the command line into."""
    weakly_held: list[tuple[ast.AST, CallOf, bool]] = field(default_factory=list)
    """The calls that make an object which only a local variable keeps alive, with the functions that make them, and whether these return
    it; see `weak.py`.
    """
    plugins: dict[Span, Object] = field(default_factory=dict)
    """Accelerate's plugins for DeepSpeed, by the places of the calls that make them."""
    instances: dict[int, Object] = field(default_factory=dict)
    """An object of each class, for methods that no call reaches."""
    is_posted: bool = False
    """Whether it is a part of a program, as people post it: it uses names that nothing in it binds."""
    supposed: int = 0
    """Whether the followed call makes an object that only stands for those of other files: with defaults, which flags may replace."""
    made: dict[int, list[Object]] = field(default_factory=dict)
    """The objects of each class that the program makes."""

    @property
    def is_likely(self) -> bool:
        """Whether only defaults of flags decide that the statement is reached, and decide for it."""
        return not self.unlikely and (not self.undecided or self.undecided == sum(one.default for one in self.conditions))


_Evaluates: TypeAlias = Callable[[ProgramState, Any, Scope], Value]
_Follows: TypeAlias = Callable[[ProgramState, Any, Scope], bool | None]
_E = TypeVar("_E", bound=_Evaluates)
_S = TypeVar("_S", bound=_Follows)

_EXPRESSIONS: dict[type[ast.expr], _Evaluates] = {}
_STATEMENTS: dict[type[ast.stmt], _Follows] = {}


def expression(*kinds: type[ast.expr]) -> Callable[[_E], _E]:
    """Register the function that evaluates kinds of expressions."""

    def register(function: _E) -> _E:
        _EXPRESSIONS.update(dict.fromkeys(kinds, function))
        return function

    return register


def statement(*kinds: type[ast.stmt]) -> Callable[[_S], _S]:
    """Register the function that follows kinds of statements. It returns False if the next statement is not reached."""

    def register(function: _S) -> _S:
        _STATEMENTS.update(dict.fromkeys(kinds, function))
        return function

    return register


def evaluate(state: ProgramState, node: ast.expr | None, scope: Scope) -> Value:
    """The value of an expression.

    Raises:
        Exhausted: the program is too large.
    """
    state.steps -= 1
    if state.steps < 0:
        raise Exhausted
    if node is None:
        return NONE
    known = _EXPRESSIONS.get(type(node))
    if known is not None:
        found: Value = known(state, node, scope)
        if type(found) is Unknown and (found.reason is None or found.reason.place is None):
            return placed(found, node, scope)
        return found
    for inner in children(node):
        if isinstance(inner, ast.expr):
            evaluate(state, inner, scope)
    return placed(COMPUTED, node, scope)


def placed(found: Value, node: ast.expr, scope: Scope) -> Value:
    """A value; if it is not known, with the first expression that makes it so as the place of the reason."""
    if type(found) is not Unknown:
        return found
    cause, about, place, through = found.reason or IS_COMPUTED
    if place is not None:
        return found
    reason = Reason(cause, about, scope.source.span(node), through)
    # `replace` takes six times as long, and this is done for each expression that is not known.
    rest = found.made, found.span, found.options, found.text, found.closed, found.or_none, found.shared, found.path, found.length
    return Unknown(reason, *rest, found.turn, found.functions, found.makers, found.others)


def call_here(state: ProgramState, node: ast.Call, scope: Scope, name: str, span: Span) -> CallOf:
    """A call at the statement that is followed, without arguments."""
    undecided, unlikely, conditions = state.undecided > 0, state.unlikely > 0, tuple(state.conditions)
    # By position: this is done for each call, and names take longer.
    call = CallOf(node, scope, name, span, [], {}, True, undecided, unlikely, state.is_likely, conditions, tuple(state.within), state.loops)  # noqa: FBT003
    call.handled = any(one.goes_on for one in state.trying)
    return call


KEY_ERROR = ("KeyError", "LookupError", "Exception", "BaseException")
INDEX_ERROR = ("IndexError", *KEY_ERROR[1:])
ATTRIBUTE_ERROR = ("AttributeError", "Exception", "BaseException")
TYPE_ERROR = ("TypeError", "Exception", "BaseException")
VALUE_ERROR = ("ValueError", "Exception", "BaseException")
DIVISION_ERROR = ("ZeroDivisionError", "ArithmeticError", "Exception", "BaseException")


def raise_certainly(state: ProgramState, kinds: tuple[str, ...], value: Value = COMPUTED) -> None:
    """What raises: an exception, if the program raises it for certain in a `try` statement that handles it.

    Raises:
        Raised: it does.
    """
    for one in reversed(state.trying):
        if not one.handles.isdisjoint(kinds):
            if (state.undecided, state.repeated, state.partial) == (one.undecided, one.repeated, one.partial):
                raise Raised(kinds, value)
            one.may_raise = True
            return


def block(state: ProgramState, body: Sequence[ast.stmt], scope: Scope) -> bool:
    """Follow statements. Returns whether the statement behind them is reached."""
    around = len(state.conditions)
    try:
        for number, node in enumerate(body):
            state.at = (scope.source, node)
            known = _STATEMENTS.get(type(node))
            if known is not None and known(state, node, scope) is False:
                return False
            if state.perhaps_left and number + 1 < len(body):
                return _rest(state, body[number + 1 :], scope)
        return True
    finally:
        del state.conditions[around:]


def _rest(state: ProgramState, body: Sequence[ast.stmt], scope: Scope) -> bool:
    """Follow the statements behind one that may leave their block: what they do is done perhaps."""
    before, state.perhaps_left = state.perhaps_left, set()
    condition, mark = state.journal.condition, state.journal.mark
    state.partial += 1
    goes_on = block(state, body, scope)
    state.partial -= 1
    after = state.journal.undo(mark)
    state.journal.condition = condition
    state.journal.join(after, {})
    state.perhaps_left |= before
    return goes_on
