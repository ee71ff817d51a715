"""Follow the statements of a program in their order. Where a condition is not known both branches are followed, and then joined."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from dslint.setup.programs.expressions import Expressions
from dslint.setup.programs.journal import Changes
from dslint.setup.programs.nodes import annotated_names, is_dataclass, is_literal, is_main
from dslint.setup.programs.values import (
    Class,
    Entry,
    Flag,
    Function,
    Library,
    Module,
    Object,
    Opaque,
    Plain,
    Row,
    Scope,
    Table,
    Value,
    is_soft,
    truth,
)
from dslint.source.tree import Span

_Functions = ast.FunctionDef | ast.AsyncFunctionDef


class Statements(Expressions):
    """Follows statements. `block` returns False once the rest of the block is not reached."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.functions: list[Function] = []
        self.written: dict[str, Table] = {}
        self.undecided = 0
        """How many conditions that only the run knows are around the statement."""
        self.flags: dict[str, Flag] = {}
        """The flags that the program is launched with, by the names of their arguments."""
        self.parsed: list[Value] = []
        """The classes that the program parses the command line into."""

    def lookup_import(self, name: str, level: int, scope: Scope) -> Value:
        """The module that an import names."""
        raise NotImplementedError

    def json_file(self, path: str, *, as_json: bool = True) -> Value:
        """The dict in a JSON file of the project. `written` are those that the program writes itself."""
        raise NotImplementedError

    def json_text(self, text: str, written: Span) -> Value:
        """The dict in a JSON text that is written at a place."""
        raise NotImplementedError

    def block(self, body: Sequence[ast.stmt], scope: Scope) -> bool:
        """Follow statements."""
        return all(self.statement(one, scope) for one in body)

    def statement(self, node: ast.stmt, scope: Scope) -> bool:
        """Follow a statement. Returns whether the next one is reached."""
        if isinstance(node, ast.Return | ast.Raise | ast.Break | ast.Continue):
            self.leave(node, scope)
            return False
        follow = _BY_TYPE.get(type(node))
        return follow is None or follow(self, node, scope) is not False

    def leave(self, node: ast.Return | ast.Raise | ast.Break | ast.Continue, scope: Scope) -> None:
        """A statement behind which the block does not go on."""
        if isinstance(node, ast.Return):
            value = self.value(node.value, scope)
            if scope.returns is not None:
                scope.returns.append(value)
        elif isinstance(node, ast.Raise):
            self.value(node.exc, scope)

    def expression(self, node: ast.Expr, scope: Scope) -> None:
        """An expression as a statement."""
        self.value(node.value, scope)

    def assignment(self, node: ast.Assign | ast.AnnAssign, scope: Scope) -> None:
        """`a = b = value`, `a: int = value`."""
        if node.value is None:
            return
        value = self.value(node.value, scope)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self.assign(target, value, node.value, scope)

    def augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        """`a += value`, `a |= value`."""
        before = self.value(node.target, scope)
        right = self.value(node.value, scope)
        if isinstance(before, Table) and isinstance(node.op, ast.BitOr):
            self.merge(before, right)
        else:
            self.assign(node.target, self.operate(node.op, before, right), node.value, scope)

    def within(self, node: ast.With | ast.AsyncWith, scope: Scope) -> bool:
        """A `with`."""
        for item in node.items:
            value = self.value(item.context_expr, scope)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, item.context_expr, scope)
        return self.block(node.body, scope)

    def match(self, node: ast.Match, scope: Scope) -> None:
        """A `match`: one of its cases, or none."""
        self.value(node.subject, scope)
        self.branches([case.body for case in node.cases] + [[]], scope)

    # ------------------------------------------------------------------ assigning

    def assign(self, target: ast.expr, value: Value, written: ast.expr, scope: Scope) -> None:
        """Assign a value to a name, an attribute or an item."""
        if isinstance(target, ast.Name):
            self.journal.write(scope.cells, target.id, value)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value, scope)
            if isinstance(owner, Object | Class):
                self.journal.write(owner.cells, target.attr, value)
        elif isinstance(target, ast.Subscript):
            self.assign_item(target, value, written, scope)
        elif isinstance(target, ast.Tuple | ast.List):
            parts = [one.value for one in value.items] if isinstance(value, Row) and len(value.items) == len(target.elts) else None
            for number, one in enumerate(target.elts):
                self.assign(one, parts[number] if parts else Opaque("it is computed"), written, scope)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, Opaque("it is computed"), written, scope)

    def assign_item(self, target: ast.Subscript, value: Value, written: ast.expr, scope: Scope) -> None:
        """`owner[key] = value`."""
        owner, key = self.opened(target.value, scope), self.value(target.slice, scope)
        if isinstance(owner, Object) and isinstance(key, Plain) and isinstance(key.value, str):
            self.journal.write(owner.cells, key.value, value)
        if isinstance(owner, Row):
            owner.items = [Entry(Opaque("it is computed"), one.key_span, one.span) for one in owner.items]
        if not isinstance(owner, Table):
            return
        if not isinstance(key, Plain) or not isinstance(key.value, str):
            self.merge(owner, Opaque())
            return
        spans = scope.source.span(target.slice), scope.source.span(written)
        self.changed(owner)
        self.journal.write(owner.cells, key.value, Entry(value, *spans, is_literal(written)))

    def opened(self, node: ast.expr, scope: Scope) -> Value:
        """The value of an expression that the program treats as a dict. One that is not known becomes a dict with more keys."""
        owner = self.value(node, scope)
        if not isinstance(owner, Opaque) or not isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            return owner
        made = self.table(scope.source.span(node))
        made.open["more"] = True
        made.open["why"] = owner.why
        self.assign(node, made, node, scope)
        return made

    def delete(self, node: ast.Delete, scope: Scope) -> None:
        """`del owner[key]`."""
        for target in (one for one in node.targets if isinstance(one, ast.Subscript)):
            owner, key = self.value(target.value, scope), self.value(target.slice, scope)
            if not isinstance(owner, Table):
                continue
            self.changed(owner)
            if isinstance(key, Plain) and isinstance(key.value, str):
                self.journal.erase(owner.cells, key.value)
            else:
                self.merge(owner, Opaque())

    # ------------------------------------------------------------------ branches

    def choose(self, node: ast.If, scope: Scope) -> bool:
        """An `if`. Where a flag of the command line decides, both branches are followed, and the one of the flag's default counts."""
        test = self.value(node.test, scope)
        holds = True if is_main(node.test) else truth(test)
        if holds is not None and not is_soft(test):
            return self.block(node.body if holds else node.orelse, scope)
        self.undecided += 1
        try:
            return self.branches([node.body, node.orelse], scope) if holds is None else self.by_default(node, scope, holds=holds)
        finally:
            self.undecided -= 1

    def by_default(self, node: ast.If, scope: Scope, *, holds: bool) -> bool:
        """An `if` that a flag of the command line decides; `holds` is what the flag's default decides."""
        chosen, other = (node.body, node.orelse) if holds else (node.orelse, node.body)
        mark = self.journal.mark
        reached_other = self.block(other, scope)
        left_by_other = self.journal.undo(mark)
        if self.block(chosen, scope):
            return True
        if reached_other:
            self.journal.undo(mark)
            self.journal.redo(left_by_other)
        return reached_other

    def branches(self, bodies: Sequence[Sequence[ast.stmt]], scope: Scope) -> bool:
        """Follow branches of which one is taken."""
        mark = self.journal.mark
        reached: list[Changes] = []
        left: list[Changes] = []
        for body in bodies:
            goes_on = self.block(body, scope)
            (reached if goes_on else left).append(self.journal.undo(mark))
        states = reached or left
        if not states:
            return True
        joined = states[0]
        for state in states[1:]:
            self.journal.join(joined, state)
            joined = self.journal.undo(mark)
        self.journal.redo(joined)
        return bool(reached)

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, scope: Scope) -> None:
        """A loop: its body is followed once."""
        if isinstance(node, ast.While):
            self.value(node.test, scope)
        else:
            self.value(node.iter, scope)
            self.assign(node.target, Opaque("a loop sets it"), node.iter, scope)
        mark = self.journal.mark
        self.block(node.body, scope)
        after = self.journal.undo(mark)
        self.journal.join(after, {})
        self.block(node.orelse, scope)

    def attempt(self, node: ast.Try | ast.TryStar, scope: Scope) -> bool:
        """A `try`: the program is taken to go on behind its body; the handlers are followed for the calls in them."""
        goes_on = self.block(node.body, scope) and self.block(node.orelse, scope)
        mark = self.journal.mark
        handled = False
        for handler in node.handlers:
            if handler.name:
                self.journal.write(scope.cells, handler.name, Opaque("an exception"))
            handled = self.block(handler.body, scope) or handled
            self.journal.undo(mark)
        return self.block(node.finalbody, scope) and (goes_on or handled)

    # ------------------------------------------------------------------ definitions

    def define(self, node: _Functions | ast.ClassDef, scope: Scope) -> None:
        """A function or a class."""
        for decorator in node.decorator_list:
            self.value(decorator, scope)
        if not isinstance(node, ast.ClassDef):
            function = Function(node, scope.source, scope)
            self.functions.append(function)
            self.journal.write(scope.cells, node.name, function)
            return
        bases = [self.value(base, scope) for base in node.bases]
        inside = Scope(self.journal.cells(), scope.source, scope)
        made = Class(node.name, inside.cells, bases, annotated_names(node), is_dataclass(node))
        made.fields[:0] = [name for base in bases if isinstance(base, Class) for name in base.fields]
        made.dataclass = made.dataclass or any(isinstance(base, Class) and base.dataclass for base in bases)
        self.journal.write(scope.cells, node.name, made)
        first = len(self.functions)
        self.block(node.body, inside)
        for function in self.functions[first:]:
            function.scope = scope
            function.this = made

    def imports(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        """An import: modules of the project are read when a name of them is needed."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                found = self.lookup_import(alias.name, 0, scope)
                if alias.asname or "." not in alias.name or isinstance(found, Library):
                    name = alias.asname or alias.name.partition(".")[0]
                    plain = Library(name) if isinstance(found, Library) and not alias.asname else found
                    self.journal.write(scope.cells, name, plain)
            return
        for alias in node.names:
            owner = self.lookup_import(node.module or "", node.level, scope)
            if alias.name == "*":
                if isinstance(owner, Module):
                    for name, value in owner.scope.cells.items():
                        self.journal.write(scope.cells, name, value)
                continue
            self.journal.write(scope.cells, alias.asname or alias.name, self.imported(owner, alias.name, node, scope))

    def imported(self, owner: Value, name: str, node: ast.ImportFrom, scope: Scope) -> Value:
        """`from owner import name`."""
        if isinstance(owner, Module) and name not in owner.scope.cells:
            inner = self.lookup_import(f"{node.module}.{name}" if node.module else name, node.level, scope)
            return inner if isinstance(inner, Module) else Opaque(f"{name} is not defined in {owner.source.shown}")
        return self.attribute_of(owner, name)


_BY_TYPE: dict[type[ast.stmt], Callable[[Any, Any, Scope], bool | None]] = {
    ast.Expr: Statements.expression,
    ast.Assign: Statements.assignment,
    ast.AnnAssign: Statements.assignment,
    ast.AugAssign: Statements.augmented,
    ast.If: Statements.choose,
    ast.For: Statements.loop,
    ast.AsyncFor: Statements.loop,
    ast.While: Statements.loop,
    ast.Try: Statements.attempt,
    ast.TryStar: Statements.attempt,
    ast.With: Statements.within,
    ast.AsyncWith: Statements.within,
    ast.Match: Statements.match,
    ast.Delete: Statements.delete,
    ast.FunctionDef: Statements.define,
    ast.AsyncFunctionDef: Statements.define,
    ast.ClassDef: Statements.define,
    ast.Import: Statements.imports,
    ast.ImportFrom: Statements.imports,
}
