"""What names stand for: modules, classes and what they are made from, functions and their parameters."""

from __future__ import annotations

import ast
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from surface_reading.source import Definition, External, Module, Source, bindings
from surface_reading.values import (
    UNKNOWN,
    Class,
    Const,
    Foreign,
    Function,
    Instance,
    Mapping,
    Sequence,
    Value,
    Values,
    Whole,
    either,
    texts,
)

CONSTANTS: dict[str, Any] = {"sys.maxsize": sys.maxsize, "math.inf": float("inf")}


@dataclass
class Frame:
    """A function while it is followed."""

    module: Module
    names: dict[str, Values]
    function: Function | None = None
    called_from: str | None = None
    returned: Values = UNKNOWN

    def place(self, node: ast.AST) -> str:
        """Where a node stands; in a helper that knows nothing but its parameters, such as `get_scalar_param`, where that is called."""
        return self.called_from if self.called_from and self.function and is_helper(self.function.node) else self.module.where(node)


@dataclass
class Arguments:
    """The arguments of a call. `spread`: what stood behind `**`."""

    positional: list[Values]
    named: dict[str, Values]
    spread: Values = UNKNOWN

    def all(self) -> Values:
        """The alternatives of all of them."""
        return either(*self.positional, *self.named.values(), self.spread)

    def at(self, index: int, name: str = "") -> Values:
        """The argument at a place, or of a name."""
        return self.positional[index] if index < len(self.positional) else self.named.get(name, UNKNOWN)


class Names(ABC):
    """Finds what names mean. Evaluating what they are bound to, and calling properties, is for `Follower`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._globals: dict[int, Values] = {}
        self._bodies: dict[int, dict[str, ast.AST]] = {}
        self._lineages: dict[int, list[Class | External]] = {}

    @abstractmethod
    def evaluate(self, node: ast.expr, frame: Frame) -> Values:
        """What an expression stands for."""

    @abstractmethod
    def call(self, callee: Value, arguments: Arguments, node: ast.Call | None, frame: Frame | None = None) -> Values:
        """What a call gives."""

    def name(self, module: Module, name: str) -> Values:
        """What a name means at the top of a module."""
        return self.meant(module.lookup(name), name)

    def found(self, name: str, dotted: str) -> Values:
        """A function, class or method of a module, wherever it is defined."""
        module = self.source.modules.get(name)
        if module is None:
            return UNKNOWN
        first, _, method = dotted.partition(".")
        found = tuple(value for value in self.name(module, first) if isinstance(value, Class | Function))
        if not method:
            return found
        return either(*(self.member(cls, method, Instance(cls)) for cls in found if isinstance(cls, Class)))

    def meant(self, found: Definition | External | None, name: str) -> Values:
        """The value of a name with a known definition, or of an unbound one."""
        match found:
            case None:
                return (Foreign(External(name)),)
            case External():
                return (Const(CONSTANTS[found.name]),) if found.name in CONSTANTS else (Foreign(found),)
            case Definition(module=module, node=ast.Module()):
                return (Whole(module),)
            case Definition(module=module, node=ast.ClassDef() as node):
                return (Class(module, node),)
            case Definition(module=module, node=ast.FunctionDef() as node):
                return (Function(module, node),)
            case Definition(module=module, node=ast.expr() as node):
                if id(node) not in self._globals:
                    self._globals[id(node)] = UNKNOWN  # for names that mean themselves
                    self._globals[id(node)] = self.evaluate(node, Frame(module, {}))
                return self._globals[id(node)]
        return UNKNOWN

    def bases(self, cls: Class) -> list[Class | External]:
        """The classes that a class is made from, those outside the release by name."""
        found: list[Class | External] = []
        for base in cls.node.bases:
            for value in self.evaluate(base, Frame(cls.module, {})):
                if isinstance(value, Class):
                    found.append(value)
                elif isinstance(value, Foreign):
                    found.append(value.external)
        return found

    def lineage(self, cls: Class) -> list[Class | External]:
        """The class and all it is made from, nearest first."""
        if id(cls.node) not in self._lineages:
            found: list[Class | External] = [cls]
            for base in self.bases(cls):
                found += [base] if isinstance(base, External) else self.lineage(base)
            self._lineages[id(cls.node)] = list({(each.key() if isinstance(each, Class) else each.name): each for each in found}.values())
        return self._lineages[id(cls.node)]

    def is_made_from(self, cls: Class, *names: str) -> bool:
        """Whether one of these classes from outside is among its ancestors."""
        return any(isinstance(each, External) and each.name in names for each in self.lineage(cls))

    def is_model(self, cls: Class) -> bool:
        """Whether it is a pydantic model."""
        return self.is_made_from(cls, "pydantic.BaseModel", "pydantic.v1.BaseModel")

    def member(self, cls: Class, name: str, bound: Instance | None, *, above: bool = False) -> Values:
        """What a name means in a class: a method, what a property gives, or a value of the class itself."""
        for each in self.lineage(cls)[above:]:
            node = self._members(each).get(name) if isinstance(each, Class) else None
            if isinstance(each, Class) and isinstance(node, ast.FunctionDef):
                function = Function(each.module, node, None if is_marked(node, "staticmethod", "classmethod") else bound, each)
                return self.call(function, Arguments([], {}), None) if is_marked(node, "property") else (function,)
            if isinstance(each, Class) and isinstance(node, ast.expr):
                return self.evaluate(node, Frame(each.module, {}))
        return UNKNOWN

    def _members(self, cls: Class) -> dict[str, ast.AST]:
        if id(cls.node) not in self._bodies:
            self._bodies[id(cls.node)] = dict(bindings(cls.node.body))
        return self._bodies[id(cls.node)]

    def listed(self, module: Module, name: str) -> list[str] | None:
        """The strings of a list at the top of a module; None if it is not a list of strings."""
        lists = [value for value in self.name(module, name) if isinstance(value, Sequence)]
        return texts(either(*lists[0].items)) if lists and all(texts(item) for item in lists[0].items) else None

    def members(self, cls: Class) -> list[Values]:
        """The values of an enumeration."""
        return [
            self.evaluate(node, Frame(cls.module, {}))
            for name, node in self._members(cls).items()
            if isinstance(node, ast.expr) and not name.startswith("_")
        ]

    def constructor(self, cls: Class) -> Values:
        """The function that makes an object of a class."""
        return self.member(cls, "__init__", None)

    def parameters(self, function: Function) -> list[tuple[str, ast.expr | None, Values | None]]:
        """The parameters of a function: name, annotation, and default (None where there is none)."""
        defaults = defaults_of(function.node.args)
        every = [*function.node.args.posonlyargs, *function.node.args.args, *function.node.args.kwonlyargs]
        frame = Frame(function.module, {})
        return [(each.arg, each.annotation, self.evaluate(defaults[each.arg], frame) if each.arg in defaults else None) for each in every]

    def empty(self, factory: ast.expr, frame: Frame) -> Values:
        """What `list` and `dict` make of nothing."""
        made: dict[str, Value] = {"list": Sequence([]), "dict": Mapping()}
        return tuple(
            made[value.external.name]
            for value in self.evaluate(factory, frame)
            if isinstance(value, Foreign) and value.external.name in made
        )


def defaults_of(spec: ast.arguments) -> dict[str, ast.expr]:
    """The defaults of a function's parameters, by name."""
    defaults = dict(zip([each.arg for each in [*spec.posonlyargs, *spec.args]][::-1], spec.defaults[::-1], strict=False))
    return defaults | {each.arg: default for each, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if default}


def is_helper(node: ast.FunctionDef) -> bool:
    """Whether a function is one statement about its parameters."""
    if len(node.body) != 1:
        return False
    own = {each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    inside = [*ast.walk(node.body[0])]
    return not any(isinstance(each, ast.Name) and each.id not in own for each in inside) and not any(
        isinstance(each, ast.Constant) for each in inside
    )


def is_marked(node: ast.FunctionDef, *names: str) -> bool:
    """Whether a function has one of these decorators."""
    return any(isinstance(mark, ast.Name) and mark.id in names for mark in node.decorator_list)
