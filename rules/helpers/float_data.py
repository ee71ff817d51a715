"""Calls of an engine with a tensor that is certainly of the type float32, as a program writes them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from dslint.record import Record
from dslint.source.store import store

_FLOAT = frozenset({"torch.float32", "torch.float"})
_FLOAT_UNLESS_SAID = frozenset({"randn", "rand", "zeros", "ones", "full", "linspace", "empty"})
"""What makes a tensor of the default type, float32, without the argument `dtype`. `full` of an integer makes integers."""
_SAME_TYPE = frozenset(
    {"to", "cuda", "cpu", "contiguous", "clone", "detach", "view", "reshape", "squeeze", "unsqueeze", "flatten", "permute", "transpose"}
    | {"requires_grad_", "repeat", "expand"}
)
"""Methods of a tensor whose result has its type, where the program casts nothing."""
_IS_IMAGE = re.compile(r"imag|img|pixel|frame|video|wave|audio|spectro", re.IGNORECASE)
_IS_TARGET = re.compile(r"label|target|mask|token|text|caption|prompt|sentence|(^|_)(ids?|idx|index|y|ys|len|lengths?)$", re.IGNORECASE)
_DEEPEST = 20


class FloatCall(Record):
    """A call of an engine with a tensor of float32: its line, the text of the tensor, and what makes it float32."""

    line: int
    tensor: str
    why: str


def float_calls(tree: ast.Module, engine: str) -> tuple[FloatCall, ...]:
    """The calls of a name with such a tensor as its first argument, or as one that is named after images or sound. They are found once a
    run: a project has many configs for a program.
    """
    return store().parsed(("float calls", tree, engine), lambda: tuple(_float_calls(tree, engine)))


def _float_calls(tree: ast.Module, engine: str) -> Iterator[FloatCall]:
    for body in _bodies(tree):
        for node in _own_nodes(body):
            if not isinstance(node, ast.Call) or ast.unparse(node.func).removesuffix(".forward") != engine:
                continue
            for given in (*node.args[:1], *(one.value for one in node.keywords if _IS_IMAGE.search(one.arg or ""))):
                why = _Tracer(tree, body).why(given, node.lineno)
                if why:
                    yield FloatCall(node.lineno, ast.unparse(given), why)


def _bodies(tree: ast.Module) -> Iterator[Sequence[ast.stmt]]:
    yield tree.body
    yield from (node.body for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _own_nodes(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions in it."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node
            waiting += ast.iter_child_nodes(node)


class _Tracer:
    """Finds what makes a tensor float32, by the assignments of a function before a line."""

    def __init__(self, tree: ast.Module, body: Sequence[ast.stmt]) -> None:
        self._tree = tree
        self._nodes = list(_own_nodes(body))

    def why(self, node: ast.expr, line: int, item: int | None = None, depth: int = 0) -> str:
        """What makes the value of an expression float32, "" if that is not seen. `item` is the element of it that counts."""
        if depth > _DEEPEST:
            return ""
        if isinstance(node, ast.Call):
            return self._of_call(node, line, item, depth)
        if isinstance(node, ast.BinOp):
            return self.why(node.left, line, item, depth + 1) or self.why(node.right, line, item, depth + 1)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            key = node.slice.value
            if isinstance(key, str):
                return self.why(node.value, line, 0, depth + 1) if _IS_IMAGE.search(key) else ""
            return self.why(node.value, line, key, depth + 1) if isinstance(key, int) and item is None else ""
        if isinstance(node, ast.Tuple | ast.List) and item is not None and 0 <= item < len(node.elts):
            return self.why(node.elts[item], line, None, depth + 1)
        if isinstance(node, ast.DictComp):
            moved_of = _items_moved(node)
            return self.why(moved_of, line, item, depth + 1) if moved_of is not None else ""
        return self._of_name(node.id, line, item, depth) if isinstance(node, ast.Name) else ""

    def _of_call(self, node: ast.Call, line: int, item: int | None, depth: int) -> str:
        name = ast.unparse(node.func)
        types = [ast.unparse(one.value) for one in node.keywords if one.arg == "dtype"]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "float" and not node.args:
            return ast.unparse(node)
        if re.fullmatch(r"torch\.\w+", name) and item is None:
            short = name.removeprefix("torch.")
            if types and set(types) <= _FLOAT:
                return ast.unparse(node)
            if not types and short in _FLOAT_UNLESS_SAID and not (short == "full" and _is_integer(node.args[1:2])):
                return ast.unparse(node)
            return self.why(node.args[0], line, None, depth + 1) if short in ("randn_like", "rand_like") and node.args else ""
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SAME_TYPE and (node.func.attr != "to" or _only_moves(node)):
            return self.why(node.func.value, line, item, depth + 1)
        return self._of_data(item) if name == "next" else ""

    def _of_name(self, name: str, line: int, item: int | None, depth: int) -> str:
        if _IS_TARGET.search(name):
            return ""
        found: tuple[int, ast.expr | None, int | None] | None = None
        for node in self._nodes:
            for at, target, value in _sets(node):
                place = _place(target, name)
                if place is not None and at < line and (found is None or at > found[0]):
                    found = at, value, place[-1] if place else None
        if found is None:
            return ""
        at, value, place_in = found
        which = item if place_in is None else place_in
        return self._of_data(which) if value is None else self.why(value, at, which, depth + 1)

    def _of_data(self, item: int | None) -> str:
        """Why the first element of what a data loader gives is float32: the program makes tensors of images, or of numbers."""
        if item != 0:
            return ""
        for body in _bodies(self._tree):
            for node in _own_nodes(body):
                name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if name.rpartition(".")[2] == "ToTensor":
                    return f"{name}()"
                if isinstance(node, ast.Call) and name.rpartition(".")[2] == "TensorDataset" and node.args:
                    return _Tracer(self._tree, body).why(node.args[0], node.lineno)
        return ""


def _items_moved(node: ast.DictComp) -> ast.expr | None:
    """The dict whose items a comprehension moves to a device: `batch` in `{k: v.to(device) for k, v in batch.items()}`."""
    of, value = node.generators[0].iter, node.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _SAME_TYPE:
        value = value.func.value
    if isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute) and of.func.attr == "items" and isinstance(value, ast.Name):
        return of.func.value
    return None


_IS_DEVICE = re.compile(r"device|cuda|cpu|gpu|rank", re.IGNORECASE)


def _only_moves(node: ast.Call) -> bool:
    """Whether a call of `to` names a device only, and neither a type nor a tensor, whose type the result has."""
    return all(_IS_DEVICE.search(ast.unparse(one)) for one in node.args) and all(
        one.arg in ("device", "non_blocking") for one in node.keywords
    )


def _is_integer(nodes: Sequence[ast.expr]) -> bool:
    return any(not isinstance(one, ast.Constant) or isinstance(one.value, int) for one in nodes)


def _sets(node: ast.AST) -> Iterator[tuple[int, ast.expr, ast.expr | None]]:
    """The line, the target and the value of an assignment; no value for a turn of a loop over data."""
    if isinstance(node, ast.Assign):
        yield from ((node.lineno, target, node.value) for target in node.targets)
    elif isinstance(node, ast.For | ast.AsyncFor):
        numbered = isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "enumerate"
        target = node.target
        if numbered and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            target = target.elts[1]
        yield node.lineno, target, None


def _place(target: ast.expr, name: str) -> list[int] | None:
    """Where a name is in a target: no number for the target itself; None if it is not in it."""
    if isinstance(target, ast.Name):
        return [] if target.id == name else None
    if isinstance(target, ast.Tuple | ast.List):
        return next(([at] for at, one in enumerate(target.elts) if isinstance(one, ast.Name) and one.id == name), None)
    return None
