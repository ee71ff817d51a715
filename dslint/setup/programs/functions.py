"""Follow calls of the project's own functions and classes into their bodies."""

from __future__ import annotations

import ast

from dslint.setup.programs.nodes import is_static
from dslint.setup.programs.sources import Source
from dslint.setup.programs.statements import Statements
from dslint.setup.programs.values import NONE, Class, Function, Object, Opaque, Scope, Value, member

_DEEPEST_CALL = 15


class Functions(Statements):
    """Follows functions."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.followed: set[ast.AST] = set()
        self._calls: list[ast.AST] = []
        self._made: dict[int, Object] = {}

    def enter(self, function: Function, arguments: list[Value], keywords: dict[str, Value], *, complete: bool = True) -> Value:
        """Follow a call of a function of the project. With `complete` False there are more arguments than are known."""
        node = function.node
        if node in self._calls or len(self._calls) >= _DEEPEST_CALL:
            return Opaque("a recursive function computes it")
        scope = Scope(self.journal.cells(), function.source, function.scope, [])
        self._bind(function, scope, arguments, keywords, complete=complete)
        self.followed.add(node)
        if isinstance(node, ast.Lambda):
            return self.value(node.body, scope)
        if any(isinstance(one, ast.Expr) and isinstance(one.value, ast.Yield | ast.YieldFrom) for one in node.body):
            return Opaque("a generator")
        self._calls.append(node)
        try:
            ends = self.block(node.body, scope)
        finally:
            self._calls.pop()
        assert scope.returns is not None
        values = [*scope.returns, NONE] if ends else scope.returns
        result = values[0] if values else NONE
        for value in values[1:]:
            result = self.journal.joined(result, value)
        return result

    def _bind(self, function: Function, scope: Scope, arguments: list[Value], keywords: dict[str, Value], *, complete: bool) -> None:
        given = function.node.args
        names = [one.arg for one in (*given.posonlyargs, *given.args)]
        if function.this is not None and names and not isinstance(function.this, Class) and not is_static(function.node):
            arguments = [function.this, *arguments]
        defaults = dict(zip(reversed(names), reversed(given.defaults), strict=False))
        defaults |= {one.arg: default for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default}
        for number, name in enumerate([*names, *(one.arg for one in given.kwonlyargs)]):
            if number < min(len(arguments), len(names)):
                value = arguments[number]
            elif name in keywords:
                value = keywords[name]
            elif name in defaults and complete:
                value = self.value(defaults[name], function.scope)
            else:
                value = Opaque(f"{name} is an argument of {getattr(function.node, 'name', 'a function')}")
            scope.cells[name] = value
        if given.vararg:
            scope.cells[given.vararg.arg] = Opaque(f"*{given.vararg.arg}")
        if given.kwarg:
            scope.cells[given.kwarg.arg] = Opaque(f"**{given.kwarg.arg}")

    def instance(self, made: Class, arguments: list[Value], keywords: dict[str, Value], *, complete: bool = True) -> Object:
        """A new object of a class of the project."""
        thing = Object(made.name, self.journal.cells(), made)
        if made.dataclass:
            for name, value in zip(made.fields, arguments, strict=False):
                thing.cells[name] = value
            thing.cells.update({name: value for name, value in keywords.items() if name in made.fields})
        start = member(made, "__init__")
        if isinstance(start, Function):
            self.enter(Function(start.node, start.source, start.scope, thing), arguments, keywords, complete=complete)
        then = member(made, "__post_init__")
        if isinstance(then, Function):
            self.enter(Function(then.node, then.source, then.scope, thing), [], {})
        return thing

    def follow_rest(self, source: Source) -> None:
        """Follow the functions of a file that no call in it reaches; their arguments are not known."""
        for function in list(self.functions):
            if function.source.shown != source.shown or function.node in self.followed:
                continue
            owner = function.this
            this: Value | None = owner
            if isinstance(owner, Class):
                this = self._made.get(id(owner))
                if this is None:
                    this = self._made[id(owner)] = self.instance(owner, [], {}, complete=False)
            if function.node not in self.followed:
                self.enter(Function(function.node, function.source, function.scope, this), [], {}, complete=False)
