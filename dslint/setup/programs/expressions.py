"""Evaluate expressions of a program, as far as they are static. Nothing is executed."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Callable
from typing import Any

from dslint.setup.programs.journal import Journal
from dslint.setup.programs.nodes import is_literal
from dslint.setup.programs.operators import LONGEST, compared, operated
from dslint.setup.programs.values import (
    NONE,
    Cells,
    Class,
    Entry,
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
    member,
    truth,
)
from dslint.source.tree import Mapping, Node, Sequence, Span, plain


class Exhausted(Exception):
    """The program is too large to be followed to its end."""


class Expressions:
    """Evaluates expressions in a scope. Calls are evaluated by the subclass."""

    def __init__(self, steps: int) -> None:
        self.journal = Journal()
        self.steps = steps

    def call(self, node: ast.Call, scope: Scope) -> Value:
        """The value of a call."""
        raise NotImplementedError

    def load(self, value: Value) -> Value:
        """A value that was imported, read when it is first needed."""
        return value

    # ------------------------------------------------------------------ names

    def value(self, node: ast.expr | None, scope: Scope) -> Value:
        """The value of an expression.

        Raises:
            Exhausted: the program is too large.
        """
        self.steps -= 1
        if self.steps < 0:
            raise Exhausted
        if node is None:
            return NONE
        evaluate = _BY_TYPE.get(type(node))
        if evaluate is not None:
            return evaluate(self, node, scope)
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.expr):
                self.value(inner, scope)
        return Opaque("it is computed")

    def constant(self, node: ast.Constant, _: Scope) -> Value:
        """A literal."""
        value = node.value
        return Plain(value) if isinstance(value, str | int | float) or value is None else Opaque("it is computed")

    def name(self, node: ast.Name, scope: Scope) -> Value:
        """A variable."""
        return self.variable(node.id, scope)

    def variable(self, name: str, scope: Scope) -> Value:
        """The value of a variable in a scope or around it."""
        here: Scope | None = scope
        while here is not None:
            if name in here.cells:
                return self.load(here.cells[name])
            here = here.above
        return Library(name)

    def attribute(self, node: ast.Attribute, scope: Scope) -> Value:
        """An attribute of a value."""
        return self.attribute_of(self.value(node.value, scope), node.attr)

    def attribute_of(self, owner: Value, name: str) -> Value:
        """The attribute of a value that was evaluated."""
        if isinstance(owner, Library):
            return Library(f"{owner.name}.{name}")
        if isinstance(owner, Module):
            found = owner.scope.cells.get(name)
            return Opaque(f"{name} is not defined in {owner.source.shown}") if found is None else self.load(found)
        if isinstance(owner, Object):
            if name in owner.cells:
                return self.load(owner.cells[name])
            method = member(owner.type, name)
            if isinstance(method, Function):
                return Function(method.node, method.source, method.scope, owner)
            if method is not None:
                return method
            return Opaque(f"{owner.kind}.{name}")
        if isinstance(owner, Class):
            return member(owner, name) or Opaque(f"{owner.name}.{name}")
        if isinstance(owner, Table) and name in owner.cells:
            return self.entry(owner, name).value
        if isinstance(owner, Plain) and isinstance(owner.value, str) and name == "parent":
            return Plain(posixpath.dirname(owner.value) or ".", owner.soft)
        return Opaque(owner.why if isinstance(owner, Opaque) and owner.why else f".{name}")

    # ------------------------------------------------------------------ containers

    def dict(self, node: ast.Dict, scope: Scope) -> Value:
        """A dict literal."""
        made = self.table(scope.source.span(node))
        for key, value in zip(node.keys, node.values, strict=True):
            found = self.value(value, scope)
            if key is None:
                self.merge(made, found)
                continue
            name = self.value(key, scope)
            if isinstance(name, Plain) and isinstance(name.value, str):
                made.cells[name.value] = Entry(found, scope.source.span(key), scope.source.span(value), is_literal(value))
            else:
                made.open["more"] = True
        return made

    def table(self, span: Span) -> Table:
        """A new dict."""
        return Table(self.journal.cells(optional=True), span, open=self.journal.cells())

    def row(self, node: ast.List | ast.Tuple | ast.Set, scope: Scope) -> Value:
        """A list, a tuple or a set."""
        items = [Entry(self.value(one, scope), Span(0, 0), scope.source.span(one), is_literal(one)) for one in node.elts]
        starred = any(isinstance(one, ast.Starred) for one in node.elts)
        return Opaque("it is computed") if starred or isinstance(node, ast.Set) else Row(items, scope.source.span(node))

    def merge(self, table: Table, other: Value) -> None:
        """Take over the keys of another dict, as `update` and `|` do."""
        self.changed(table)
        if not isinstance(other, Table):
            self.journal.write(table.open, "more", value=True)
            for name, entry in list(table.cells.items()):
                self.journal.write(table.cells, name, Entry(Opaque("an unknown dict is merged into it"), entry.key_span, entry.span))
            return
        for name, entry in list(other.cells.items()):
            self.journal.write(table.cells, name, entry)
        if other.open:
            self.journal.write(table.open, "more", value=True)

    def copied(self, table: Table, file: Cells | None = None, depth: int = 0) -> Table:
        """A copy of a dict and of the dicts in it."""
        self.steps -= 1 + len(table.cells)
        if self.steps < 0:
            raise Exhausted
        made = self.table(table.span)
        made.file = file
        if file is None and table.file is not None:
            made.file = self.journal.cells()
            made.file.update(table.file)
        made.open.update(table.open)
        for name, entry in table.cells.items():
            inner = isinstance(entry.value, Table) and depth < 20
            value = self.copied(entry.value, made.file, depth + 1) if inner else entry.value
            made.cells[name] = Entry(value, entry.key_span, entry.span, entry.literal)
        return made

    def entry(self, table: Table, name: str) -> Entry:
        """The entry of a key."""
        found: Entry = table.cells[name]
        return found

    def changed(self, table: Table) -> None:
        """Note that a dict is no longer what its file says."""
        if table.file is not None:
            self.journal.write(table.file, "changed", value=True)

    def of_tree(self, node: Node, file: Cells | None = None, *, as_json: bool = True) -> Value:
        """A tree of JSON as a value; without `as_json` it is read with hjson."""
        if isinstance(node, Mapping):
            table = self.table(node.span)
            table.file = file
            for one in node.members:
                value = self.of_tree(one.value, file, as_json=as_json)
                table.cells[one.key.value] = Entry(value, one.key.span, one.value.span, literal=True)
            return table
        if isinstance(node, Sequence):
            values = [(self.of_tree(item, file, as_json=as_json), item.span) for item in node.items]
            return Row([Entry(value, Span(0, 0), span, literal=True) for value, span in values], node.span)
        number = plain(node, as_json=as_json)
        return Plain(number) if isinstance(number, str | int | float) or number is None else Opaque("it is computed")

    def subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        """An item of a dict or a list."""
        owner, index = self.value(node.value, scope), self.value(node.slice, scope)
        return self.item(owner, index)

    def item(self, owner: Value, index: Value) -> Value:
        """An item of a value that was evaluated."""
        if isinstance(owner, Table) and isinstance(index, Plain) and isinstance(index.value, str):
            return self.entry(owner, index.value).value if index.value in owner.cells else Opaque(f'["{index.value}"]')
        if isinstance(owner, Row) and isinstance(index, Plain) and isinstance(index.value, int):
            return owner.items[index.value].value if -len(owner.items) <= index.value < len(owner.items) else Opaque()
        if isinstance(owner, Object) and isinstance(index, Plain) and isinstance(index.value, str):
            return self.attribute_of(owner, index.value)
        return Opaque(owner.why if isinstance(owner, Opaque) else "it is computed")

    # ------------------------------------------------------------------ operators

    def condition(self, node: ast.IfExp, scope: Scope) -> Value:
        """`a if c else b`: the one that the condition selects, or both joined."""
        test = self.value(node.test, scope)
        holds = truth(test)
        left, right = self.value(node.body, scope), self.value(node.orelse, scope)
        if holds is None:
            return self.journal.joined(left, right)
        chosen = left if holds else right
        return _tinted(chosen, soft=is_soft(test))

    def unary(self, node: ast.UnaryOp, scope: Scope) -> Value:
        """`-x`, `not x`."""
        value = self.value(node.operand, scope)
        if isinstance(node.op, ast.Not):
            holds = truth(value)
            return Opaque("it is computed") if holds is None else Plain(not holds, is_soft(value))
        if isinstance(node.op, ast.USub) and isinstance(value, Plain) and isinstance(value.value, int | float):
            return Plain(-value.value, value.soft)
        return Opaque("it is computed")

    def binary(self, node: ast.BinOp, scope: Scope) -> Value:
        """Arithmetic, joined strings and paths, and `|` of dicts."""
        return self.operate(node.op, self.value(node.left, scope), self.value(node.right, scope))

    def operate(self, op: ast.operator, left: Value, right: Value) -> Value:
        """The result of an operator on two values."""
        if isinstance(op, ast.BitOr) and isinstance(left, Table):
            made = self.copied(left)
            self.merge(made, right)
            return made
        if not isinstance(left, Plain) or not isinstance(right, Plain):
            known = next((one for one in (left, right) if isinstance(one, Opaque) and one.why), None)
            return Opaque(known.why if known else "it is computed")
        result = operated(op, left.value, right.value)
        return Opaque("it is computed") if result is None else Plain(result, left.soft or right.soft)

    def boolean(self, node: ast.BoolOp, scope: Scope) -> Value:
        """`a and b`, `a or b`."""
        result: Value = Plain(isinstance(node.op, ast.And))
        soft = False
        candidates: list[Value] = []
        for part in node.values:
            result = self.value(part, scope)
            holds = truth(result)
            soft = soft or is_soft(result)
            if holds is None:
                candidates.append(result)
            elif holds is isinstance(node.op, ast.Or):
                break
        for value in candidates:
            result = self.journal.joined(result, value)
        return _tinted(result, soft=soft)

    def compare(self, node: ast.Compare, scope: Scope) -> Value:
        """A comparison of two values."""
        values = [self.value(one, scope) for one in (node.left, *node.comparators)]
        if len(values) != 2:
            return Opaque("it is computed")
        return compared(node.ops[0], *values)

    def text(self, node: ast.JoinedStr, scope: Scope) -> Value:
        """An f-string of known parts."""
        parts: list[str] = []
        soft = False
        for part in node.values:
            value = self.value(part.value if isinstance(part, ast.FormattedValue) else part, scope)
            if not isinstance(value, Plain) or (isinstance(part, ast.FormattedValue) and (part.format_spec or part.conversion != -1)):
                return Opaque(value.why if isinstance(value, Opaque) and value.why else "it is computed")
            parts.append(str(value.value))
            soft = soft or value.soft
        text = "".join(parts)
        return Plain(text, soft) if len(text) < LONGEST else Opaque("it is computed")

    def named(self, node: ast.NamedExpr, scope: Scope) -> Value:
        """`(x := value)`."""
        value = self.value(node.value, scope)
        self.journal.write(scope.cells, node.target.id, value)
        return value

    def function(self, node: ast.Lambda, scope: Scope) -> Value:
        """A lambda."""
        return Function(node, scope.source, scope)


def _tinted(value: Value, *, soft: bool) -> Value:
    return Plain(value.value, soft=True) if soft and isinstance(value, Plain) else value


_BY_TYPE: dict[type[ast.expr], Callable[[Any, Any, Scope], Value]] = {
    ast.Constant: Expressions.constant,
    ast.Name: Expressions.name,
    ast.Attribute: Expressions.attribute,
    ast.Dict: Expressions.dict,
    ast.List: Expressions.row,
    ast.Tuple: Expressions.row,
    ast.Set: Expressions.row,
    ast.Subscript: Expressions.subscript,
    ast.IfExp: Expressions.condition,
    ast.UnaryOp: Expressions.unary,
    ast.BinOp: Expressions.binary,
    ast.BoolOp: Expressions.boolean,
    ast.Compare: Expressions.compare,
    ast.JoinedStr: Expressions.text,
    ast.NamedExpr: Expressions.named,
    ast.Lambda: Expressions.function,
    ast.Call: lambda self, node, scope: self.call(node, scope),
}
