"""Follows the config through the source: which keys are looked up in it, with which defaults, and which models it is handed to.

A small abstract interpreter. It starts where DeepSpeed takes the config and goes wherever a part of it goes, both branches of every
condition. What it cannot know it drops; a name looked up in the config that it cannot know is noted in `Trace.dynamic`.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable
from typing import Any

from surface_reading.names import Arguments, Frame, Names, defaults_of, is_marked
from surface_reading.source import External, Source
from surface_reading.trace import LONGEST_LOOP, Trace
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
    Path,
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

RANDOM_LTD = ("data_efficiency", "data_routing", "random_ltd")
ENTRIES: tuple[tuple[str, str, str, Path], ...] = (
    ("deepspeed.runtime.config", "DeepSpeedConfig", "config", ()),
    ("deepspeed", "initialize", "config", ()),
    ("deepspeed.runtime.data_pipeline.data_routing.basic_layer", "RandomLayerTokenDrop.init_config", "config", RANDOM_LTD),
)
"""Where the config comes in, or a part of it that is handed on to whatever module has the method: module, function, parameter, part."""

UNCHANGED = {"copy.copy", "copy.deepcopy", "dict", "list", "tuple", "bool", "int", "float", "str", "sorted", "set"}
"""Calls that give back what they are given, as far as keys are concerned."""

DEEPEST = 24
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


def follow(follower: Follower) -> Trace:
    """Follow the config from the entries until nothing new is found."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10_000))  # an expression in a call in a call takes many frames
    size = None
    while size != follower.trace.size():
        size = follower.trace.size()
        follower.forget()
        for name, entry, parameter, part in ENTRIES:
            functions = follower.found(name, entry)
            if not functions:
                follower.trace.missing[f"{name}.{entry}"] = None
            for function in functions:
                follower.call(function, Arguments([], {parameter: (Config(part),)}), None)
    return follower.trace


class Follower(Names):
    """The interpreter. `call` and `evaluate` give values, and what they see of the config goes into `trace`."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.trace = Trace()
        self._results: dict[object, Values] = {}
        self._instances: dict[int, Instance] = {}
        self._widened: dict[object, dict[str, Values]] = {}
        self._mappings: dict[ast.AST, Mapping] = {}
        self._lists: dict[ast.AST, Sequence] = {}
        self._walked: set[int] = set()
        self._depth = 0

    def forget(self) -> None:
        """Begin anew, but for what is known of the config and of the objects that hold it."""
        self._results.clear()
        self._walked.clear()

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
            case ast.FunctionDef(name=name):
                frame.names[name] = (Function(frame.module, node),)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                for name in (alias.asname or alias.name.split(".")[0] for alias in aliases if alias.name != "*"):
                    frame.names[name] = self.meant(frame.module.imported(name, node), name)
            case ast.ClassDef() | ast.Raise():
                return
            case _:
                self._compound(node, frame)

    def _compound(self, node: ast.stmt, frame: Frame) -> None:
        """Statements with others in them."""
        match node:
            case ast.For(target=target, iter=iterable, body=body, orelse=orelse):
                for item in self.trace.items(self.evaluate(iterable, frame)):
                    self._assign(target, item, frame)
                    self._run(body, frame)
                self._run(orelse, frame)
            case ast.If(test=test, body=body, orelse=orelse):
                self._test(test, frame, raises=isinstance(body[0], ast.Raise))
                self._branches([body, orelse], frame)
            case ast.Assert(test=test):
                self._test(test, frame, raises=False, asserted=True)
            case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
                self._run(body, frame)
                self._branches([orelse, *(handler.body for handler in handlers)], frame)
                self._run(final, frame)
            case ast.With(items=entered, body=body):
                for each in entered:
                    self.evaluate(each.context_expr, frame)
                self._run(body, frame)
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
        """A condition. If the mere presence of a key leads to an exception, the key is refused rather than read."""
        operation = ast.NotIn if asserted else ast.In
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], operation) and (raises or asserted):
            place = frame.place(test)
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
                    self.trace.store(value, keys, values, frame.place(target))

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
                return either(*(self.trace.get(value, keys, UNKNOWN, frame.place(node)) for value in self.evaluate(owner, frame)))
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
                return (self._listed(node, [self.evaluate(part, frame) for part in parts]),)
            case ast.Dict():
                return (self._dict(node, frame),)
            case ast.ListComp(elt=element, generators=[loop]) | ast.GeneratorExp(elt=element, generators=[loop]):
                return (self._listed(node, [self.evaluate(element, inner) for inner in self._turns(loop, frame)]),)
            case ast.DictComp(
                key=ast.Name(), value=ast.Name(), generators=[ast.comprehension(iter=ast.Call(func=ast.Attribute(value=whole)))]
            ):
                return self.evaluate(whole, frame)  # a copy, or a part of one
            case ast.DictComp(key=key, value=value, generators=[loop]):
                built = self._mappings.setdefault(node, Mapping())
                for inner in self._turns(loop, frame):
                    names = tuple(name for name in self.evaluate(key, inner) if isinstance(name, Const))
                    self.trace.store(built, names, self.evaluate(value, inner), frame.place(node))
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
        for item in self.trace.items(self.evaluate(loop.iter, frame)):
            inner = Frame(frame.module, dict(frame.names), frame.function)
            self._assign(loop.target, item, inner)
            for condition in loop.ifs:
                self.evaluate(condition, inner)
            turns.append(inner)
        return turns

    def _listed(self, node: ast.expr, items: list[Values]) -> Sequence:
        """The list that an expression makes: one, however often it is evaluated, or following would have no end."""
        listed = self._lists.setdefault(node, Sequence([]))
        longest = max(len(listed.items), len(items))
        padded = [[*each, *[UNKNOWN] * (longest - len(each))] for each in (listed.items, items)]
        listed.items = [either(before, now) for before, now in zip(*padded, strict=True)]
        return listed

    def _dict(self, node: ast.Dict, frame: Frame) -> Mapping:
        built = self._mappings.setdefault(node, Mapping())
        place = frame.place(node)
        for key, value in zip(node.keys, node.values, strict=True):
            values = self.evaluate(value, frame)
            if key is None:
                self.trace.update(built, values, place)
            else:
                self.trace.store(built, self.evaluate(key, frame), values, place)
        return built

    def _arithmetic(self, left: Values, operation: ast.operator, right: Values) -> Values:
        if type(operation) not in OPERATORS or len(left) != 1 or len(right) != 1:
            return UNKNOWN
        first, second = left[0], right[0]
        if isinstance(first, Sequence) and isinstance(second, Sequence):
            return (Sequence([*first.items, *second.items]),) if len(first.items) + len(second.items) <= LONGEST_LOOP else UNKNOWN
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
                        self.trace.look_up(value, name, UNKNOWN, frame.place(node))
        return UNKNOWN

    def _attribute(self, value: Value, name: str) -> Values:
        match value:
            case Instance(cls=cls, attributes=attributes):
                return attributes.get(name) or self.member(cls, name, value)
            case Super(instance=instance, owner=owner):
                return self.member(owner, name, instance, above=True)
            case Class():
                return self.member(value, name, None)
            case Whole(module=module):
                return self.name(module, name)
            case Foreign(external=external):
                return self.meant(External(f"{external.name}.{name}"), name)
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
                of_dicts = [self._method(value, name, arguments, frame.place(node)) for value in values]
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
            return either(self.trace.get(value, arguments.at(0, "key"), defaults, place), arguments.at(1, "default"))
        if name == "update":
            self.trace.update(value, arguments.all(), place)
        if name in ("copy", "upper", "lower", "strip"):
            if isinstance(value, Const) and isinstance(value.value, str) and name != "copy":
                return (Const(getattr(value.value, name)()),)
            return (value,)
        if name in ("keys", "values", "items"):
            return self.trace.view(value, name)
        return UNKNOWN

    def call(self, callee: Value, arguments: Arguments, node: ast.Call | None, frame: Frame | None = None) -> Values:
        """What a call gives. Functions of the release are followed where a part of the config goes in."""
        match callee:
            case Foreign(external=External(name=name)) if name in UNCHANGED:
                return self._converted(name, arguments.at(0))
            case Class():
                return self._construct(callee, arguments, node, frame)
            case Function() if self._depth < DEEPEST and self._concerns(either((callee,), arguments.all()), frame, callee.bound):
                return self._enter(callee, arguments, frame.place(node) if frame and node else None)
        return UNKNOWN

    @staticmethod
    def _concerns(values: Values, frame: Frame | None, bound: Instance | None = None) -> bool:
        """Whether a part of the config goes in. An object that hands itself on does not count: its own methods are followed anyway."""
        itself = frame.function.bound if frame and frame.function else None
        return touches_config(tuple(value for value in values if value is not itself or value is bound))

    @staticmethod
    def _converted(name: str, values: Values) -> Values:
        kinds: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "str": str, "bool": bool}
        converted: list[Value] = []
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
            place = frame.place(node) if frame and node else ""
            self._model(cls, either(arguments.spread), place)
            return UNKNOWN
        for kind in ("int", "float", "str"):
            if self.is_made_from(cls, kind):
                return self._converted(kind, arguments.at(0))
        if self.is_made_from(cls, "enum.Enum"):
            return arguments.at(0)
        if not self._concerns(arguments.all(), frame):
            return (Instance(cls),)
        instance = self._instances.setdefault(id(cls.node), Instance(cls))
        for function in self.member(cls, "__init__", instance):
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
                    if isinstance(node, ast.FunctionDef) and node.name != "__init__" and not is_marked(node, "staticmethod", "classmethod"):
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

    def _enter(self, function: Function, arguments: Arguments, called_from: str | None) -> Values:
        names = self._bind(function, arguments)
        place = (id(function.node), id(function.bound))
        if function.bound:  # one meaning for all calls of a method; functions are told apart by what goes in
            before = self._widened.get(place, {})
            names = {name: either(before.get(name, UNKNOWN), values) for name, values in names.items()}
            self._widened[place] = {name: _telling(values) for name, values in names.items()}
        key = (place, tuple((name, frozenset(keys_of(_telling(values)))) for name, values in names.items()))
        if key not in self._results:
            self._results[key] = UNKNOWN  # for recursion
            frame = Frame(function.module, dict(names), function, called_from)
            self._depth += 1
            self._run(function.node.body, frame)
            self._depth -= 1
            self._results[key] = frame.returned
        return self._results[key]

    def _bind(self, function: Function, arguments: Arguments) -> dict[str, Values]:
        """The parameters of a function with what they are given. `**config` gives each the key of its name."""
        spec = function.node.args
        parameters = [*spec.posonlyargs, *spec.args]
        defaults = defaults_of(spec)
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
                names[name] = either(*(self.trace.get(part, (Const(name),), default, place) for part in parts), default)
        if spec.kwarg:
            extra = {name: values for name, values in arguments.named.items() if name not in names}
            given = self._mappings.setdefault(spec.kwarg, Mapping())
            for name, values in extra.items():
                given.entries[name] = either(given.entries.get(name, UNKNOWN), values)
            names[spec.kwarg.arg] = either((given,) if extra else (), arguments.spread)
        return names


def _telling(values: Values) -> Values:
    """Those by which one call of a function is told from another: parts of the config, and constants that may name keys."""
    return tuple(value for value in values if isinstance(value, Const | Config | NameIn | Mapping) or touches_config((value,)))
