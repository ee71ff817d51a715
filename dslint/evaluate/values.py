"""What an expression of a program is known to be, and how two possibilities join to one.

`Constant`, `Unknown` and `Library` are never changed once they are made. They are not frozen dataclasses, because a program makes hundreds
of thousands of them, and a frozen `Unknown` takes six times as long to make.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dslint.evaluate.reasons import IS_COMPUTED, Reason
from dslint.source.tree import Span

if TYPE_CHECKING:
    from dslint.evaluate.python.sources import SourceFile


class Cells(dict[str, Any]):
    """The variables of a scope, the keys of a dict or the attributes of an object.

    `born` is the age of the journal when they were made; in a dict `optional`, a key that only one of two branches sets may be absent.
    """

    __slots__ = ("born", "optional")

    def __init__(self, born: int, *, optional: bool = False) -> None:
        super().__init__()
        self.born = born
        self.optional = optional


@dataclass(slots=True, unsafe_hash=True)
class Constant:
    """A string, number, boolean or None. `soft` means that it is a default which a flag of the command line can override."""

    value: str | int | float | bool | None
    soft: bool = False


@dataclass(slots=True, unsafe_hash=True)
class Unknown:
    """A value that is not known. `reason` says where it comes from; `made` is the function or class of a library that made it.

    `options` are values that it can have, as far as they are known: a condition selects one of them. With `closed` it has one of them or is
    None, with `or_none` it may be None, and with `shared` something else may hold
    the one that it does not have. `text` is what is known of a string, with `HOLE` for each part that is not.
    `path` is the path of the file that an absolute path names, from the working directory or the home directory.
    `length` is the number of items of which nothing else is known.
    `functions` are the functions and classes of libraries of which it is one, `makers` those of which one made it; "" among them stands for
    anything else.
    `others` are the values of the same kind that it may be instead, where a condition selects one of them: it stands for the first.
    `turn` tells apart what one call of a library makes in a function that is called from several places: 0 from the first of them.
    """

    reason: Reason | None = None
    made: str = ""
    span: Span | None = None
    options: tuple[Value, ...] = ()
    text: str = ""
    closed: bool = False
    or_none: bool = False
    shared: bool = False
    path: str | None = None
    length: int | None = None
    turn: int = field(default=0, compare=False)
    functions: tuple[str, ...] = ()
    makers: tuple[str, ...] = ()
    others: tuple[Unknown, ...] = ()


@dataclass(slots=True)
class Entry:
    """One key of a dict: where the key and the value are written, and whether the value is written there as a literal.

    `perhaps` is true of a key that only some branches set.
    """

    value: Value
    key_span: Span
    span: Span
    literal: bool = False
    perhaps: bool = False


@dataclass(slots=True, eq=False)
class DictValue:
    """A dict. With "more" in `open` it may have more keys; "reason" in `open` says where those come from, if they all have one source,
    and "why" at which place the program added the first of them; "has optimizer" whether it has the key
    optimizer, where that is known.

    `file` is shared by the dicts of one JSON file: "path" names the file, and "changed" is there once the program changes one of them.
    `inner` is true of a dict in another one. `of` is the object whose attributes the dict holds: `vars(args)`.
    """

    cells: Cells
    span: Span
    file: Cells | None = None
    inner: bool = False
    open: Cells = field(default_factory=lambda: Cells(0))
    of: Object | None = None

    @property
    def path(self) -> str | None:
        """The JSON file that holds just this dict; None for any other dict, and once the program changes it."""
        return None if self.file is None or self.inner or "changed" in self.file else self.file["path"]


class ListValue:
    """A list, or with `fixed` a tuple. The journal holds its items, which are None once they are not known; `reason` then says why."""

    __slots__ = ("cells", "fixed", "span")

    def __init__(self, items: list[Entry], span: Span, *, changed: bool = False, fixed: bool = False) -> None:
        self.fixed = fixed
        self.cells = Cells(0)
        self.cells["items"] = None if changed else items
        self.span = span

    @property
    def items(self) -> list[Entry]:
        """The items, [] if they are not known."""
        return self.cells["items"] or []

    @property
    def changed(self) -> bool:
        """Whether the items are not known."""
        return self.cells["items"] is None

    @property
    def among(self) -> list[Entry]:
        """Of a dict's keys or items that are not all known, those that are."""
        known: list[Entry] = self.cells.get("among", [])
        return known

    @property
    def reason(self) -> Reason | None:
        """Why the items are not known."""
        found: Reason | None = self.cells.get("reason")
        return found

    def pairs_with(self, other: ListValue) -> bool:
        """Whether the items of both are known, and as many."""
        return not self.changed and not other.changed and len(self.items) == len(other.items)


@dataclass(slots=True, eq=False)
class Function:
    """A function of the project; `this` is the object of a bound method, `owner` the class that defines it.

    `given` are the arguments that a decorator passes: those of Hydra and click. `defaults` are those of its parameters, which Python
    evaluates once.
    """

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    source: SourceFile
    scope: Scope
    this: Value | None = None
    owner: Class | None = None
    given: dict[str, Value] = field(default_factory=dict)
    defaults: dict[str, Value] = field(default_factory=dict)

    def bound(self, this: Value) -> Function:
        """The method of an object or a class."""
        return Function(self.node, self.source, self.scope, this, self.owner, self.given, self.defaults)


@dataclass(slots=True, eq=False)
class Class:
    """A class of the project. `cells` are its methods and the values of its body; `fields` are the names with an annotation, in order.

    `lists` are those whose annotation is a list: a parser makes a list of their flags, also of one word.
    """

    name: str
    cells: Cells
    bases: list[Value]
    fields: list[str]
    dataclass: bool
    lists: frozenset[str] = frozenset()
    switches: frozenset[str] = frozenset()
    """Those whose annotation is a boolean: a parser requires none of them."""
    order: list[Class] = field(default_factory=list)
    """What `resolution` found: every attribute of an object asks for it that the class itself does not define."""


@dataclass(slots=True, eq=False)
class Object:
    """An instance of a class of the project, or an object of a library that dslint follows: its `kind` is then the library's name.

    `reason` says where the object comes from, if the program only sets attributes of it.
    """

    kind: str
    cells: Cells
    type: Class | None = None
    about: Any = None
    reason: Reason | None = None


@dataclass(slots=True)
class ParsedNames:
    """The attributes that a parser of arguments can set in what it returns. With `open` something that is not followed may set more."""

    known: frozenset[str]
    open: bool = False


@dataclass(slots=True, unsafe_hash=True)
class Library:
    """A module, function or class of a library, by its full dotted name."""

    name: str


@dataclass(slots=True, eq=False)
class Module:
    """A module of the project."""

    source: SourceFile
    scope: Scope


@dataclass(slots=True, eq=False)
class Scope:
    """The variables of a module or of a call of `function`, and the scope around it.

    `outer` are the variables that a `global` or `nonlocal` statement names, with the cells that hold them.
    """

    cells: Cells
    source: SourceFile
    above: Scope | None = None
    returns: list[Value] | None = None
    function: Function | None = None
    outer: dict[str, Cells] = field(default_factory=dict)
    is_turn: bool = False
    """Whether these are the variables of a comprehension."""


Value: TypeAlias = Constant | Unknown | DictValue | ListValue | Function | Class | Object | Library | Module

NONE: Final = Constant(None)

HOLE: Final = "\0"
"""A part of a string that is not known."""

COMPUTED: Final = Unknown(IS_COMPUTED)

_LONGEST_NUMBER = 40
"""The longest text that is converted."""


def text_of(value: Value) -> str:
    """What is known of a value as a string."""
    return str(value.value) if isinstance(value, Constant) else (isinstance(value, Unknown) and value.text) or HOLE


def path_of(value: Value | None) -> str | None:
    """The path of a file that a value names; None if it is not known."""
    if isinstance(value, Constant):
        return value.value if isinstance(value.value, str) else None
    return value.path if isinstance(value, Unknown) else None


def tables_of(value: Value) -> tuple[DictValue, ...]:
    """The dicts of which a value that is used as a dict is one; () if it may be something else."""
    if isinstance(value, DictValue):
        return (value,)
    if not isinstance(value, Unknown) or not value.closed:
        return ()
    tables = tuple(one for one in value.options if isinstance(one, DictValue))
    return tables if len(tables) == len(value.options) else ()


def is_one_of(value: Value) -> bool:
    """Whether a value is one of several dicts that something else may hold: what changes it changes only one of them."""
    return isinstance(value, Unknown) and value.shared and len(tables_of(value)) > 1


def harden(value: Value) -> Value:
    """A value that no flag overrides."""
    return Constant(value.value) if isinstance(value, Constant) else value


def soften(value: Value) -> Value:
    """A value as the default of a flag. Without one, or with None, the flag decides."""
    return Constant(value.value, soft=True) if isinstance(value, Constant) else value


def converted(value: Constant, kind: str) -> Value:
    """A value as `int`, `float`, `str` or `bool` converts it."""
    if len(str(value.value)) > _LONGEST_NUMBER:
        return COMPUTED
    convert: Callable[[Any], Any] = {"int": int, "float": float, "str": str, "bool": bool}[kind]
    try:
        return Constant(convert(value.value), value.soft)
    except (TypeError, ValueError, OverflowError):
        return COMPUTED


def member(owner: Class | None, name: str) -> Value | None:
    """What a class of the project, or one that it inherits from, defines under a name."""
    if owner is None:
        return None
    found: Value | None = owner.cells.get(name)
    return found if found is not None else next((one.cells[name] for one in resolution(owner) if name in one.cells), None)


DEEPEST_CLASS = 10
"""How many classes of a project inherit from each other. In 12 public repositories, axolotl, LLaMA-Factory and TRL at most 2 do; a class
that a program defines again and again, each on the one before, is longer."""


def resolution(owner: Class) -> list[Class]:
    """A class of the project and those that it inherits from, in the order in which Python looks for a name."""
    if not owner.order:
        owner.order = _resolution(owner, 0)
    return owner.order


def _resolution(owner: Class, depth: int) -> list[Class]:
    bases = [one for one in owner.bases if isinstance(one, Class)] if depth < DEEPEST_CLASS else []
    waiting = [*(_resolution(one, depth + 1) for one in bases), list(bases)]
    order = [owner]
    while waiting := [one for one in waiting if one]:
        first = next((row[0] for row in waiting if not any(row[0] in other[1:] for other in waiting)), waiting[0][0])
        order.append(first)
        waiting = [[one for one in row if one is not first] for row in waiting]
    return order


def truth(value: Value) -> bool | None:
    """Whether a condition holds; None if that is not known."""
    if isinstance(value, Constant):
        return bool(value.value)
    if type(value) is Unknown and not value.made and not value.options:
        return None  # nearly all
    if isinstance(value, ListValue):
        return None if value.changed else bool(value.items)
    if isinstance(value, Unknown) and value.length == 0:
        return False
    if isinstance(value, DictValue):
        return True if value.cells else None
    if isinstance(value, Unknown) and not value.or_none and (tables := tables_of(value)):
        return True if all(one.cells for one in tables) else None
    if is_loaded(value):
        return True
    return True if isinstance(value, Function | Class | Object | Module) else None


def is_loaded(value: Value) -> bool:
    """Whether a value is a model, a tokenizer or another object that a library has loaded: it is not None, and counts as true."""
    return isinstance(value, Unknown) and not value.or_none and value.made.endswith(".from_pretrained")


def is_soft(value: Value) -> bool:
    """Whether a flag of the command line can change the value."""
    return isinstance(value, Constant) and value.soft


def same(left: Value, right: Value) -> bool:
    """Whether two values are certainly equal."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        return type(left.value) is type(right.value) and left.value == right.value
    return left is right or (isinstance(left, Library) and left == right)


Flag: TypeAlias = str | bool | None
"""The value of a command-line flag: True for one without a value, None for a value that only the run knows."""
