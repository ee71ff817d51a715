"""Questions about syntax trees that need no evaluation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from dslint.record import Record


def is_literal(node: ast.expr) -> bool:
    """Whether a value is written out in full, so that a fix can replace it."""
    if isinstance(node, ast.UnaryOp):
        return is_literal(node.operand)
    if isinstance(node, ast.BinOp):
        return is_literal(node.left) and is_literal(node.right)
    return type(node) in _WRITTEN_OUT


_WRITTEN_OUT = frozenset((ast.Constant, ast.Dict, ast.List, ast.Tuple))


def is_dotted(node: ast.expr) -> bool:
    """Whether an expression is a name with attributes: `self.state.step`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def is_main(test: ast.expr) -> bool:
    """Whether a condition is `__name__ == "__main__"`."""
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


_LIST_TYPES = frozenset({"list", "List", "Sequence", "tuple", "Tuple"})


class Fields(Record):
    """The names with an annotation in the body of a class: all in order, without variables of the class itself; those whose annotation is
    a list, `List[str]` or `list[str] | None`; those whose annotation is `bool` or `Optional[bool]`, of which a parser requires none.
    """

    names: tuple[str, ...]
    lists: frozenset[str]
    switches: frozenset[str]


def fields_of(node: ast.ClassDef) -> Fields:
    """The annotated names of a class."""
    annotated = [(one.target.id, _named_in(one.annotation)) for one in node.body if _is_field(one)]  # type: ignore[attr-defined]
    return Fields(
        tuple(name for name, words in annotated if "ClassVar" not in words),
        frozenset(name for name, words in annotated if _LIST_TYPES & words),
        frozenset(name for name, words in annotated if "bool" in words),
    )


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def _named_in(annotation: ast.expr) -> set[str]:
    """The last names in an annotation, which may be written as a string: `bool` and `Optional` of `typing.Optional[bool]`."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return set(re.findall(r"\w+", annotation.value))
    return {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(annotation)}


def is_dataclass(node: ast.ClassDef) -> bool:
    """Whether a class is decorated as a dataclass."""
    names = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    return any((name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")) == "dataclass" for name in names)


def is_decorated(node: ast.AST, *names: str) -> bool:
    """Whether a function has a decorator of one of these names: `@property`, `@functools.cached_property`."""
    found = getattr(node, "decorator_list", ())
    return any((one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "")) in names for one in found)


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below a node, in order. `ast.iter_child_nodes` finds them through two generators, and takes twice as long."""
    found: list[ast.AST] = []
    for name in node._fields:
        inner = getattr(node, name, None)
        if isinstance(inner, ast.AST):
            found.append(inner)
        elif isinstance(inner, list):
            found += [one for one in inner if isinstance(one, ast.AST)]
    return found


def own_nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of statements, without those of functions and classes in them."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += children(node)


CHANGES_ROW = frozenset("append extend insert remove pop clear sort reverse".split())
"""Methods that change a list."""


def changes_value(node: ast.AST) -> bool:
    """Whether a node sets a name, an attribute or an item, or changes a list."""
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        return isinstance(node.ctx, ast.Store) or (isinstance(node, ast.Attribute) and node.attr in CHANGES_ROW)
    return isinstance(node, ast.AugAssign)


def leaves_loop(body: list[ast.stmt]) -> bool:
    """Whether a statement in the body of a loop may end the loop or a turn of it."""
    return any(isinstance(one, ast.Break | ast.Continue | ast.Return) for one in own_nodes(body))


class Names(Record):
    """The names that a tree binds anywhere, "*" for an import of all names; those that it uses, in order; whether it imports something.

    `size` is the number of nodes in the tree.
    """

    bound: frozenset[str]
    used: tuple[str, ...]
    imports: bool
    size: int = 0


def names_in(tree: ast.Module) -> Names:
    """The names of a program."""
    bound: set[str] = set()
    used: dict[str, tuple[int, int]] = {}
    imports = False
    size = 0
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        size += 1
        kind = type(node)
        if kind is ast.Constant:
            continue
        if kind is ast.Name:
            size += 1  # its context
            if isinstance(node.ctx, ast.Load):
                at = node.lineno, node.col_offset
                used[node.id] = min(at, used.get(node.id, at))
            else:
                bound.add(node.id)
            continue
        waiting += children(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports = True
            bound |= {one.asname or one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.Global | ast.Nonlocal):
            bound |= set(node.names)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, _NAMED) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add(node.rest)
    return Names(frozenset(bound), tuple(sorted(used, key=used.__getitem__)), imports, size)


_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
