"""What a value of a program is made of, by the names in one function: an approximation in the order of the lines, for calls on engines."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dslint.record import Record
from dslint.source.python import parse_python

_CUTS = frozenset(
    {"detach", "item", "tolist", "numpy", "no_grad", "inference_mode", "data", "argmax", "shape", "size"}
    | {"sample", "multinomial", "generate", "long", "int", "bool"}
)
"""Methods and attributes of a tensor, and contexts, behind which no gradient flows."""

_DEEPEST = 30
"""How many assignments lie between a loss and the calls that it is made of. In the GANs of DeepSpeedExamples and 5 public ones at most 6 do."""


class _Assigned(Record):
    """A statement that gives names a value, where no gradient is stopped."""

    line: int
    names: frozenset[str]
    value: ast.expr


class Flow:
    """The assignments of the function that a line of a program is in. Each of them is followed once."""

    def __init__(self, tree: ast.Module, line: int) -> None:
        body = _function_around(tree, line)
        self._assigned = sorted(_assignments(body), key=lambda one: one.line)
        self._line = line
        self._seen: set[int] = set()

    def called_in(self, written: str) -> Iterator[str]:
        """What is called for the value of an expression in the line, as it is written: functions, models, engines.

        Raises:
            SyntaxError: the expression is cut short.
        """
        yield from self._calls(parse_python(written, mode="eval").body, self._line, 0)

    def _calls(self, node: ast.expr, line: int, depth: int) -> Iterator[str]:
        if depth > _DEEPEST:
            return
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in _CUTS:
                return
            yield ast.unparse(node.func).removesuffix(".forward")
        if isinstance(node, ast.Compare) or (isinstance(node, ast.Attribute) and node.attr in _CUTS):
            return
        if isinstance(node, ast.Name | ast.Attribute):
            name = ast.unparse(node)
            before = [one for one in self._assigned if one.line < line and name in one.names]
            if before:
                if id(before[-1]) not in self._seen:
                    self._seen.add(id(before[-1]))
                    yield from self._calls(before[-1].value, before[-1].line, depth + 1)
                return
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.keyword):
                yield from self._calls(inner.value, line, depth)
            elif isinstance(inner, ast.expr):
                yield from self._calls(inner, line, depth)


def names_set(tree: ast.Module, line: int) -> list[str]:
    """The names that the statement of a line sets: `engine, optimizer, _, _ = deepspeed.initialize(...)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and node.lineno <= line <= (node.end_lineno or node.lineno):
            target = node.targets[0]
            return [ast.unparse(one) for one in target.elts] if isinstance(target, ast.Tuple | ast.List) else [ast.unparse(target)]
    return []


def _function_around(tree: ast.Module, line: int) -> Sequence[ast.stmt]:
    found: Sequence[ast.stmt] = tree.body
    for node in ast.walk(tree):  # from the outermost
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or node.lineno):
            found = node.body
    return found


def _assignments(body: Sequence[ast.stmt]) -> Iterator[_Assigned]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(node, ast.With) and any(cut in ast.unparse(one.context_expr) for one in node.items for cut in _CUTS):
            inside = [one for one in ast.walk(node) if isinstance(one, ast.Assign)]
            yield from (one._replace(value=ast.Constant(None)) for each in inside for one in _of(each))
            continue
        yield from _of(node)
        for name in ("body", "orelse", "finalbody"):
            yield from _assignments(getattr(node, name, []))
        for handler in getattr(node, "handlers", []):
            yield from _assignments(handler.body)


def _of(node: ast.stmt) -> Iterator[_Assigned]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield _Assigned(node.lineno, _elements(target), node.value)
    elif isinstance(node, ast.For):
        yield _Assigned(node.lineno, _elements(node.target), node.iter)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield _Assigned(node.lineno, frozenset({ast.unparse(node.target)}), node.value)
    elif isinstance(node, ast.AugAssign):
        both = ast.BinOp(node.target, node.op, node.value)  # `loss += other`
        yield _Assigned(node.lineno, frozenset({ast.unparse(node.target)}), both)


def _elements(target: ast.expr) -> frozenset[str]:
    """The names that an assignment sets: `first, second = ...`."""
    return frozenset(map(ast.unparse, target.elts if isinstance(target, ast.Tuple | ast.List) else [target]))
