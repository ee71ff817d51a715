"""Follows the config through the source: which keys are looked up in it, with which defaults, and which models it is handed to.

A small abstract interpreter. It starts where DeepSpeed takes the config and goes wherever a part of it goes, both branches of every
condition. What it cannot know it drops; a name looked up in the config that it cannot know is noted in `Trace.dynamic`.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from surface_reading.source import Definition, External, Module, Source
from surface_reading.values import (
    UNKNOWN,
    Class,
    Config,
    Const,
    Foreign,
    Function,
    Instance,
    Mapping,
    NameIn,
    Sequence,
    Super,
    Value,
    Values,
    Whole,
    either,
    keys_of,
    texts,
    touches_config,
)

Path = tuple[str, ...]

ENTRIES = (("deepspeed.runtime.config", "DeepSpeedConfig", "config"), ("deepspeed", "initialize", "config"))
"""Where the config comes in: module, function or class, parameter."""

CONSTANTS: dict[str, Any] = {"sys.maxsize": sys.maxsize, "math.inf": float("inf")}
UNCHANGED = {"copy.copy", "copy.deepcopy", "dict", "list", "tuple", "bool", "int", "float", "str", "sorted", "set"}
"""Calls that give back what they are given, as far as keys are concerned."""

DEEPEST = 24
LONGEST_LOOP = 64
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.Mod: operator.mod,
}


@dataclass
class Read:
    """A key that is looked up: the defaults it is looked up with, and where."""

    path: Path
    defaults: dict[object, Values] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)


@dataclass
class Trace:
    """What became of the config."""

    reads: dict[Path, Read] = field(default_factory=dict)
    refused: dict[Path, str] = field(default_factory=dict)
    """Keys whose mere presence raises, and where."""
    models: dict[Path, tuple[Class, str]] = field(default_factory=dict)
    """Sections handed to a pydantic model, and where."""
    dynamic: dict[tuple[Path, str], None] = field(default_factory=dict)
    """Parts of the config in which a name is looked up that is not known, and where."""

    def size(self) -> tuple[int, ...]:
        reads = sum(len(read.defaults) + len(read.places) for read in self.reads.values())
        return len(self.reads), reads, len(self.refused), len(self.models), len(self.dynamic)


@dataclass
class Frame:
    """A function while it is followed."""

    module: Module
    names: dict[str, Values]
    function: Function | None = None
    returned: Values = UNKNOWN


@dataclass
class Arguments:
    """The arguments of a call. `spread`: what stood behind `**`."""

    positional: list[Values]
    named: dict[str, Values]
    spread: Values = UNKNOWN

    def all(self) -> Values:
        return either(*self.positional, *self.named.values(), self.spread)

    def at(self, index: int, name: str = "") -> Values:
        return self.positional[index] if index < len(self.positional) else self.named.get(name, UNKNOWN)


def follow(source: Source) -> Trace:
    """Follow the config from the entries until nothing new is found."""
    follower = Follower(source)
    size = None
    while size != follower.trace.size():
        size = follower.trace.size()
        follower.forget()
        for name, entry, parameter in ENTRIES:
            if module := source.modules.get(name):
                given = Arguments([], {parameter: (Config(),)})
                for value in follower.name(module, entry):
                    follower.call(value, given, None)
    return follower.trace


class Follower:
    """The interpreter. `call` and `evaluate` give values, and what they see of the config goes into `trace`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.trace = Trace()
        self._results: dict[object, Values] = {}
        self._instances: dict[object, Instance] = {}
        self._globals: dict[int, Values] = {}
        self._walked: set[int] = set()
        self._depth = 0

    def forget(self) -> None:
        """Begin anew, but for what is known of the config and of the objects that hold it."""
        self._results.clear()
        self._walked.clear()

    # ------------------------------------------------------------------ names

    def name(self, module: Module, name: str) -> Values:
        """What a name means at the top of a module."""
        return self._meant(module.lookup(name), name)

    def _meant(self, found: Definition | External | None, name: str) -> Values:
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
        found: list[Class | External] = [cls]
        for base in self.bases(cls):
            found += [base] if isinstance(base, External) else self.lineage(base)
        return list({(each.key() if isinstance(each, Class) else each.name): each for each in found}.values())

    def is_made_from(self, cls: Class, *names: str) -> bool:
        """Whether one of these classes from outside is among its ancestors."""
        return any(isinstance(each, External) and each.name in names for each in self.lineage(cls))

    def is_model(self, cls: Class) -> bool:
        """Whether it is a pydantic model."""
        return self.is_made_from(cls, "pydantic.BaseModel", "pydantic.v1.BaseModel")

    def _member(self, cls: Class, name: str, bound: Instance | None, *, above: bool = False) -> Values:
        for each in self.lineage(cls)[above:]:
            if not isinstance(each, Class):
                continue
            for node in each.node.body:
                match node:
                    case ast.FunctionDef(name=found) if found == name:
                        function = Function(each.module, node, None if _is_static(node) else bound, each)
                        is_property = any(isinstance(mark, ast.Name) and mark.id == "property" for mark in node.decorator_list)
                        return self.call(function, Arguments([], {}), None) if is_property else (function,)
                    case ast.Assign(targets=[ast.Name(id=found)], value=value) | ast.AnnAssign(
                        target=ast.Name(id=found), value=ast.expr() as value
                    ) if found == name:
                        return self.evaluate(value, Frame(each.module, {}))
        return UNKNOWN

    # ------------------------------------------------------------------ the config

    def _look_up(self, part: Config, name: str, defaults: Values, place: str) -> Values:
        """Note that a key is looked up."""
        path = (*part.path, name)
        read = self.trace.reads.setdefault(path, Read(path))
        if defaults:
            read.defaults.setdefault(keys_of(defaults), defaults)
        if place not in read.places:
            read.places.append(place)
        return (Config(path),)

    def _get(self, value: Value, keys: Values, defaults: Values, place: str) -> Values:
        """`value[key]`, or `value.get(key, default)`."""
        match value:
            case Config(path=path):
                found = [self._look_up(value, name, defaults, place) for name in texts(keys)]
                if any(isinstance(key, NameIn) for key in keys):
                    found.append((value.below("*"),))
                elif not found and not any(isinstance(key, Const) for key in keys):
                    self.trace.dynamic[path, place] = None
                    found.append((value.below("*"),))
                return either(*found)
            case NameIn(path=path) if path:
                item = Config((*path[:-1], path[-1] + "[]"))
                return either(*(self._look_up(item, name, defaults, place) for name in texts(keys)))
            case Mapping(entries=entries, merged=merged):
                known = [entries[key.value] for key in keys if isinstance(key, Const) and key.value in entries]
                if not keys or any(isinstance(key, NameIn) for key in keys):
                    known = [*entries.values()]
                parts = [self._look_up(part, name, either(*known), place) for part in merged for name in texts(keys)]
                return either(*known, *parts)
            case Sequence(items=items):
                indexes = [key.value for key in keys if isinstance(key, Const) and type(key.value) is int]
                known = [items[index] for index in indexes if -len(items) <= index < len(items)]
                return either(*(known or items))
        return UNKNOWN

    def _merge(self, target: Mapping, part: Config, place: str) -> None:
        """The user's keys are copied over a dict's entries: each entry is the default of a key."""
        for name, default in target.entries.items():
            if isinstance(name, str):
                self._look_up(part, name, default, place)
        if part not in target.merged:
            target.merged.append(part)

    def _store(self, value: Value, keys: Values, stored: Values, place: str) -> None:
        if not isinstance(value, Mapping):
            return
        for key in keys:
            if isinstance(key, Const):
                value.entries[key.value] = either(value.entries.get(key.value, UNKNOWN), stored)
            elif isinstance(key, NameIn):
                self._merge(value, Config(key.path), place)

    def _update(self, target: Value, given: Values, place: str) -> None:
        if not isinstance(target, Mapping):
            return
        for value in given:
            if isinstance(value, Config):
                self._merge(target, value, place)
            elif isinstance(value, Mapping) and value is not target:
                target.entries |= value.entries
                for part in value.merged:
                    self._merge(target, part, place)

    # ------------------------------------------------------------------ statements

    def _run(self, body: list[ast.stmt], frame: Frame) -> None:
        for node in body:
            self._statement(node, frame)

    def _statement(self, node: ast.stmt, frame: Frame) -> None:
        match node:
            case ast.Return(value=value):
                frame.returned = either(frame.returned, self.evaluate(value, frame) if value else ())
            case ast.Assign(targets=targets, value=value):
                values = self.evaluate(value, frame)
                for target in targets:
                    self._assign(target, values, frame)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self.evaluate(value, frame), frame)
            case ast.For(target=target, iter=iterable, body=body, orelse=orelse):
                for item in self._items(self.evaluate(iterable, frame)):
                    self._assign(target, item, frame)
                    self._run(body, frame)
                self._run(orelse, frame)
            case ast.If(test=test, body=body, orelse=orelse):
                self._test(test, frame, raises=_raises(body))
                self._branches([body, orelse], frame)
            case ast.Assert(test=test):
                self._test(test, frame, raises=False, asserted=True)
            case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
                self._run(body, frame)
                self._branches([[*orelse], *(handler.body for handler in handlers)], frame)
                self._run(final, frame)
            case ast.With(items=items, body=body):
                for item in items:
                    self.evaluate(item.context_expr, frame)
                self._run(body, frame)
            case ast.FunctionDef(name=name):
                frame.names[name] = (Function(frame.module, node),)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                for name in (alias.asname or alias.name.split(".")[0] for alias in aliases if alias.name != "*"):
                    frame.names[name] = self._meant(frame.module.imported(name, node), name)
            case ast.ClassDef() | ast.Raise():
                return
            case _:
                self._children(node, frame)

    def _children(self, node: ast.AST, frame: Frame) -> Values:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.evaluate(child, frame)
            elif isinstance(child, ast.stmt):
                self._statement(child, frame)
        return UNKNOWN

    def _branches(self, bodies: list[list[ast.stmt]], frame: Frame) -> None:
        """Follow each body from the same start; afterwards a name may mean what any of them made it."""
        before = dict(frame.names)
        after: dict[str, Values] = {}
        for body in bodies:
            frame.names = dict(before)
            self._run(body, frame)
            for name, values in frame.names.items():
                after[name] = either(after.get(name, UNKNOWN), values)
        frame.names = after

    def _test(self, test: ast.expr, frame: Frame, *, raises: bool, asserted: bool = False) -> None:
        """A condition. Where a key's presence alone leads to an exception, the key is refused rather than read."""
        operation = ast.NotIn if asserted else ast.In
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], operation) and (raises or asserted):
            place = frame.module.where(test)
            names = texts(self.evaluate(test.left, frame))
            for value in self.evaluate(test.comparators[0], frame):
                if isinstance(value, Config):
                    self.trace.refused |= {(*value.path, name): place for name in names}
        else:
            self.evaluate(test, frame)

    def _assign(self, target: ast.expr, values: Values, frame: Frame) -> None:
        match target:
            case ast.Name(id=name):
                frame.names[name] = values
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                sequences = [value for value in values if isinstance(value, Sequence) and len(value.items) == len(targets)]
                for index, inner in enumerate(targets):
                    self._assign(inner, either(*(sequence.items[index] for sequence in sequences)), frame)
            case ast.Attribute(value=owner, attr=name):
                for value in self.evaluate(owner, frame):
                    if isinstance(value, Instance):
                        value.attributes[name] = either(value.attributes.get(name, UNKNOWN), values)
            case ast.Subscript(value=owner, slice=key):
                keys = self.evaluate(key, frame)
                for value in self.evaluate(owner, frame):
                    self._store(value, keys, values, frame.module.where(target))

    def _items(self, values: Values) -> list[Values]:
        """What a loop over these goes through, turn by turn."""
        turns: list[Values] = []
        for value in values:
            match value:
                case Sequence(items=items):
                    turns += items[:LONGEST_LOOP]
                case Mapping(entries=entries, merged=merged):
                    turns += [(Const(name),) for name in entries][:LONGEST_LOOP]
                    turns += [(NameIn(part.path),) for part in merged]
                case Config(path=path):
                    turns.append((NameIn(path),))
        return turns or [UNKNOWN]

    # ------------------------------------------------------------------ expressions

    def evaluate(self, node: ast.expr, frame: Frame) -> Values:
        """What an expression stands for."""
        match node:
            case ast.Constant(value=value):
                return (Const(value),)
            case ast.Name(id=name):
                return frame.names[name] if name in frame.names else self.name(frame.module, name)
            case ast.Attribute(value=owner, attr=name):
                return either(*(self._attribute(value, name) for value in self.evaluate(owner, frame)))
            case ast.Subscript(value=owner, slice=key):
                keys = self.evaluate(key, frame)
                return either(*(self._get(value, keys, UNKNOWN, frame.module.where(node)) for value in self.evaluate(owner, frame)))
            case ast.Call():
                return self._call(node, frame)
            case ast.Compare():
                return self._compare(node, frame)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.evaluate(test, frame)
                return either(self.evaluate(body, frame), self.evaluate(orelse, frame))
            case ast.BoolOp(values=parts):
                return either(*[self.evaluate(part, frame) for part in parts])
            case ast.NamedExpr(target=target, value=value):
                values = self.evaluate(value, frame)
                self._assign(target, values, frame)
                return values
            case ast.Lambda():
                return UNKNOWN
        return self._display(node, frame)

    def _display(self, node: ast.expr, frame: Frame) -> Values:
        """Lists, dicts, comprehensions, and arithmetic."""
        match node:
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                return (Sequence([self.evaluate(part, frame) for part in parts]),)
            case ast.Dict():
                return (self._dict(node, frame),)
            case ast.ListComp(elt=element, generators=[loop]) | ast.GeneratorExp(elt=element, generators=[loop]):
                return (Sequence([self.evaluate(element, inner) for inner in self._turns(loop, frame)]),)
            case ast.DictComp(key=key, value=value, generators=[loop]):
                built = Mapping()
                for inner in self._turns(loop, frame):
                    self._store(built, self.evaluate(key, inner), self.evaluate(value, inner), frame.module.where(node))
                return (built,)
            case ast.BinOp(left=left, op=operation, right=right):
                return self._arithmetic(self.evaluate(left, frame), operation, self.evaluate(right, frame))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return tuple(
                    Const(-value.value)
                    for value in self.evaluate(operand, frame)
                    if isinstance(value, Const) and isinstance(value.value, int | float)
                )
        return self._children(node, frame)

    def _turns(self, loop: ast.comprehension, frame: Frame) -> list[Frame]:
        turns = []
        for item in self._items(self.evaluate(loop.iter, frame)):
            inner = Frame(frame.module, dict(frame.names), frame.function)
            self._assign(loop.target, item, inner)
            for condition in loop.ifs:
                self.evaluate(condition, inner)
            turns.append(inner)
        return turns

    def _dict(self, node: ast.Dict, frame: Frame) -> Mapping:
        built = Mapping()
        place = frame.module.where(node)
        for key, value in zip(node.keys, node.values, strict=True):
            values = self.evaluate(value, frame)
            if key is None:
                self._update(built, values, place)
            else:
                self._store(built, self.evaluate(key, frame), values, place)
        return built

    def _arithmetic(self, left: Values, operation: ast.operator, right: Values) -> Values:
        if type(operation) not in OPERATORS or len(left) != 1 or len(right) != 1:
            return UNKNOWN
        first, second = left[0], right[0]
        if isinstance(first, Sequence) and isinstance(second, Sequence):
            return (Sequence([*first.items, *second.items]),)
        if not (isinstance(first, Const) and isinstance(second, Const)):
            return UNKNOWN
        try:
            return (Const(OPERATORS[type(operation)](first.value, second.value)),)
        except (TypeError, ValueError, ArithmeticError):
            return UNKNOWN

    def _compare(self, node: ast.Compare, frame: Frame) -> Values:
        left, right = self.evaluate(node.left, frame), self.evaluate(node.comparators[0], frame)
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            for value in right:
                if isinstance(value, Config):
                    for name in texts(left):
                        self._look_up(value, name, UNKNOWN, frame.module.where(node))
        return UNKNOWN

    def _attribute(self, value: Value, name: str) -> Values:
        match value:
            case Instance(cls=cls, attributes=attributes):
                return attributes.get(name) or self._member(cls, name, value)
            case Super(instance=instance, owner=owner):
                return self._member(owner, name, instance, above=True)
            case Class():
                return self._member(value, name, None)
            case Whole(module=module):
                return self.name(module, name)
            case Foreign(external=external):
                return self._meant(External(f"{external.name}.{name}"), name)
            case Const() if name == "value":
                return (value,)  # a member of an enumeration
        return UNKNOWN

    # ------------------------------------------------------------------ calls

    def _call(self, node: ast.Call, frame: Frame) -> Values:
        arguments = self._arguments(node, frame)
        match node.func:
            case ast.Name(id="super"):
                function = frame.function
                return (Super(function.bound, function.owner),) if function and function.bound and function.owner else UNKNOWN
            case ast.Name(id="getattr"):
                found = [self._attribute(value, name) for value in arguments.at(0) for name in texts(arguments.at(1))]
                return either(*found, arguments.at(2))
            case ast.Attribute(value=owner, attr=name):
                values = self.evaluate(owner, frame)
                of_dicts = [self._method(value, name, arguments, frame.module.where(node)) for value in values]
                called = [self.call(each, arguments, node, frame) for value in values for each in self._attribute(value, name)]
                return either(*of_dicts, *called)
        return either(*(self.call(value, arguments, node, frame) for value in self.evaluate(node.func, frame)))

    def _arguments(self, node: ast.Call, frame: Frame) -> Arguments:
        positional = [self.evaluate(argument, frame) for argument in node.args if not isinstance(argument, ast.Starred)]
        named = {word.arg: self.evaluate(word.value, frame) for word in node.keywords if word.arg}
        spread = either(*(self.evaluate(word.value, frame) for word in node.keywords if not word.arg))
        return Arguments(positional, named, spread)

    def _method(self, value: Value, name: str, arguments: Arguments, place: str) -> Values:
        """A method of a dict, a list or a string."""
        if name in ("get", "pop", "setdefault"):
            defaults = arguments.at(1, "default")
            if name == "get" and not defaults:
                defaults = (Const(None),) if len(arguments.positional) == 1 else ()
            return either(self._get(value, arguments.at(0, "key"), defaults, place), arguments.at(1, "default"))
        if name == "update":
            self._update(value, arguments.all(), place)
        if name in ("copy", "upper", "lower", "strip"):
            if isinstance(value, Const) and isinstance(value.value, str) and name != "copy":
                return (Const(getattr(value.value, name)()),)
            return (value,)
        if name in ("keys", "values", "items"):
            return self._view(value, name)
        return UNKNOWN

    @staticmethod
    def _view(value: Value, name: str) -> Values:
        pairs: list[tuple[Values, Values]] = []
        if isinstance(value, Mapping):
            pairs += [((Const(key),), entry) for key, entry in value.entries.items()]
        parts = [value] if isinstance(value, Config) else value.merged if isinstance(value, Mapping) else []
        if name == "keys" and isinstance(value, Config):
            return (value,)  # so that `in` works as on the dict itself
        pairs += [((NameIn(part.path),), (part.below("*"),)) for part in parts]
        if not pairs:
            return UNKNOWN
        index = {"keys": 0, "values": 1}.get(name)
        return (Sequence([(Sequence([*pair]),) if index is None else pair[index] for pair in pairs]),)

    def call(self, callee: Value, arguments: Arguments, node: ast.Call | None, frame: Frame | None = None) -> Values:
        """What a call gives. Functions of the release are followed where a part of the config goes in."""
        match callee:
            case Foreign(external=External(name=name)) if name in UNCHANGED:
                return self._converted(name, arguments.at(0))
            case Class():
                return self._construct(callee, arguments, node, frame)
            case Function() if self._depth < DEEPEST and (callee.bound or touches_config(arguments.all())):
                return self._enter(callee, arguments)
        return UNKNOWN

    @staticmethod
    def _converted(name: str, values: Values) -> Values:
        kinds: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "str": str, "bool": bool}
        converted = []
        for value in values:
            if name in kinds and isinstance(value, Const):
                try:
                    converted.append(Const(kinds[name](value.value)))
                except (TypeError, ValueError):
                    continue
            else:
                converted.append(value)
        return either(converted)

    def _construct(self, cls: Class, arguments: Arguments, node: ast.Call | None, frame: Frame | None) -> Values:
        if self.is_model(cls):
            place = frame.module.where(node) if frame and node else ""
            self._model(cls, either(arguments.spread), place)
            return UNKNOWN
        for kind in ("int", "float", "str"):
            if self.is_made_from(cls, kind):
                return self._converted(kind, arguments.at(0))
        if self.is_made_from(cls, "enum.Enum"):
            return arguments.at(0)
        if not touches_config(arguments.all()):
            return (Instance(cls),)
        key = (cls.key(), node and id(node), keys_of(arguments.all()))
        instance = self._instances.setdefault(key, Instance(cls))
        for function in self._member(cls, "__init__", instance):
            self.call(function, arguments, node, frame)
        self._all_methods(instance)
        return (instance,)

    def _all_methods(self, instance: Instance) -> None:
        """An object that holds a part of the config: any of its methods may be called, and look something up in it."""
        if id(instance) in self._walked or not touches_config((instance,)):
            return
        self._walked.add(id(instance))
        for each in self.lineage(instance.cls):
            if isinstance(each, Class):
                for node in each.node.body:
                    if isinstance(node, ast.FunctionDef) and node.name != "__init__" and not _is_static(node):
                        self.call(Function(each.module, node, instance, each), Arguments([], {}), None)

    def _model(self, cls: Class, spread: Values, place: str) -> None:
        for value in spread:
            if isinstance(value, Config):
                self.trace.models.setdefault(value.path, (cls, place))
            elif isinstance(value, Mapping):
                self._model_of_parts(cls, value, place)

    def _model_of_parts(self, cls: Class, given: Mapping, place: str) -> None:
        """A model that is handed several sections: each belongs to the model that the field of its name has."""
        for name, values in given.entries.items():
            parts = [value for value in values if isinstance(value, Config)]
            annotations = [
                (each.module, node.annotation)
                for each in self.lineage(cls)
                if isinstance(each, Class)
                for node in each.node.body
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name
            ]
            for module, annotation in annotations:
                for inner in self.evaluate(annotation, Frame(module, {})):
                    for part in parts:
                        if isinstance(inner, Class) and self.is_model(inner):
                            self.trace.models.setdefault(part.path, (inner, place))

    def _enter(self, function: Function, arguments: Arguments) -> Values:
        names = self._bind(function, arguments)
        key = (id(function.node), id(function.bound), tuple((name, keys_of(values)) for name, values in names.items()))
        if key not in self._results:
            self._results[key] = UNKNOWN  # for recursion
            frame = Frame(function.module, names, function)
            self._depth += 1
            self._run(function.node.body, frame)
            self._depth -= 1
            self._results[key] = frame.returned
        return self._results[key]

    def _bind(self, function: Function, arguments: Arguments) -> dict[str, Values]:
        """The parameters of a function with what they are given. `**config` gives each the key of its name."""
        spec = function.node.args
        parameters = [*spec.posonlyargs, *spec.args]
        defaults: dict[str, ast.expr] = {}
        if spec.defaults:
            defaults = dict(zip([each.arg for each in parameters][-len(spec.defaults) :], spec.defaults, strict=True))
        defaults |= {each.arg: default for each, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if default}
        names: dict[str, Values] = {}
        positional = list(arguments.positional)
        if function.bound and parameters:
            positional.insert(0, (function.bound,))
        for index, parameter in enumerate([*parameters, *spec.kwonlyargs]):
            name = parameter.arg
            default = self.evaluate(defaults[name], Frame(function.module, {})) if name in defaults else UNKNOWN
            if index < len(positional) and index < len(parameters):
                names[name] = positional[index]
            elif name in arguments.named:
                names[name] = arguments.named[name]
            else:
                place = function.module.where(parameter)
                parts = [value for value in arguments.spread if isinstance(value, Config | Mapping)]
                names[name] = either(*(self._get(part, (Const(name),), default, place) for part in parts), default)
        if spec.kwarg:
            extra = {name: values for name, values in arguments.named.items() if name not in names}
            names[spec.kwarg.arg] = either((Mapping(dict(extra)),) if extra else (), arguments.spread)
        return names


def _raises(body: list[ast.stmt]) -> bool:
    return isinstance(body[0], ast.Raise)


def _is_static(node: ast.FunctionDef) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id in ("staticmethod", "classmethod") for mark in node.decorator_list)
