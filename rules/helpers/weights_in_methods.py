"""Methods of a project's own models that read a weight, by the syntax trees of the files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.record import Record
from dslint.rules.helpers.syntax import classes_in, tree_of
from dslint.source.store import store

_IN_FORWARD = frozenset({"forward", "__init__", "__call__", "_init_weights", "init_weights", "reset_parameters", "tie_weights"})
"""The engine's forward pass gathers what `forward` reads, and the others make the weights."""
_SIZES = frozenset(
    {"shape", "size", "dtype", "device", "requires_grad", "requires_grad_", "dim", "ndim", "numel", "type", "is_cuda", "is_meta", "layout"}
)
"""What is the same for a weight that is divided, or says its size, which `partitioned_weight_used` reports where it matters."""
_SMALL = re.compile(r"norm|\bln|bn\d*\b|scale|gate\b|bias", re.IGNORECASE)
"""Modules whose weights are vectors: they stay below `stage3_param_persistence_threshold`."""
_KNOWS = re.compile(r"Gathered|\bds_|zero3|deepspeed", re.IGNORECASE)


class WeightRead(Record):
    """A read of `self.embed.weight` in a method of a model."""

    path: str
    line: int
    written: str


def weights_read_in_methods(config: Config) -> dict[str, WeightRead]:
    """The first read of a weight by the name of its method. A name that several models have is left out: which one is called is not known."""
    documents = config.setup.documents if config.setup is not None else {}
    found: dict[str, WeightRead | None] = {}
    for path in documents:
        tree = tree_of(config, path)
        for name, line, written in _reads_in(tree) if tree is not None else ():
            found[name] = None if name in found or line is None else WeightRead(path, line, written)
    return {name: one for name, one in found.items() if one is not None}


def _reads_in(tree: ast.Module) -> tuple[tuple[str, int | None, str], ...]:
    return store().parsed(("weights in methods", tree), lambda: tuple(_found_in(tree)))


def _found_in(tree: ast.Module) -> Iterator[tuple[str, int | None, str]]:
    """Each method of the models in a file: its name, and the line and the text of the first read, None and "" without one."""
    for owner in classes_in(tree):
        if not any(re.search(r"(Module|Model\w*|For[A-Z]\w+)$", ast.unparse(base)) for base in owner.bases):
            continue
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name not in _IN_FORWARD:
                read = _first_read(method)
                yield method.name, (read.lineno if read is not None else None), (ast.unparse(read) if read is not None else "")


def _first_read(method: ast.FunctionDef) -> ast.Attribute | None:
    if any(isinstance(one, ast.Attribute | ast.Name | ast.arg) and _KNOWS.search(_named(one)) for one in ast.walk(method)):
        return None
    parents = {inner: one for one in ast.walk(method) for inner in ast.iter_child_nodes(one)}
    reads = [
        one
        for one in ast.walk(method)
        if isinstance(one, ast.Attribute)
        and one.attr == "weight"
        and isinstance(one.ctx, ast.Load)
        and re.fullmatch(r"self(\.\w+|\[\w+\])+\.weight", text := ast.unparse(one))
        and not _SMALL.search(text)
        and not _asks_size(one, parents)
    ]
    return min(reads, key=lambda one: (one.lineno, one.col_offset), default=None)


def _asks_size(read: ast.Attribute, parents: dict[ast.AST, ast.AST]) -> bool:
    above = parents.get(read)
    if isinstance(above, ast.Attribute) and above.attr == "data":
        above = parents.get(above)
    return isinstance(above, ast.Attribute) and above.attr in _SIZES


def _named(node: ast.Attribute | ast.Name | ast.arg) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else node.arg
