"""Where a program that passes no config to a known call still has to do with one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.evaluate.python.sources import SourceFile
from dslint.source.store import store

_NAMES = re.compile(r"^(ds|deepspeed)_(config|cfg|json)|^(config_params|DeepSpeedPlugin|DeepSpeedStrategy|deepspeed_plugin)$")
_COMMAND = re.compile(
    r"(^|\s)(deepspeed|accelerate launch|torchrun)\s+\S*-|deepspeed[\w/.-]*\.(json|ya?ml)\b"
    r"|((?<![A-Za-z])(ds)?zero|zero[_-]?[0-3])[\w-]*\.json\b|^deepspeed_stage_\d"
)
"""What a string contains that is a command, the name of a config, or the name of a strategy of Lightning."""


def first_mention(source: SourceFile) -> ast.expr | None:
    """The first expression that names a config of DeepSpeed or a command with it; None if the program only mentions DeepSpeed.

    Each file is searched once a run: launches of a program share its modules.
    """
    tree = source.parsed.tree
    return store().parsed(("mention", source.shown, source.text), lambda: _first(tree)) if tree is not None else None


def _first(tree: ast.Module) -> ast.expr | None:
    return min(_mentions(tree), key=lambda node: (node.lineno, node.col_offset), default=None)


def _mentions(tree: ast.Module) -> Iterator[ast.expr]:
    nodes = list(ast.walk(tree))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Call):
            yield from _in_call(node)
        elif isinstance(node, ast.Name | ast.Attribute):
            if _NAMES.search(node.id if isinstance(node, ast.Name) else node.attr):
                yield node
        elif isinstance(node, ast.Dict):
            yield from (key for key, value in zip(node.keys, node.values, strict=True) if key is not None and _is_config(key, value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose and _COMMAND.search(node.value):
            yield node


def _is_config(key: ast.expr, value: ast.expr) -> bool:
    """Whether an entry of a dict is a config: a dict under the name of one."""
    return isinstance(key, ast.Constant) and isinstance(value, ast.Dict) and bool(_NAMES.search(str(key.value)))


def _in_call(node: ast.Call) -> Iterator[ast.expr]:
    if isinstance(node.func, ast.Attribute) and node.func.attr == "initialize" and _is_deepspeed(node.func.value):
        yield node
    for keyword in node.keywords:
        is_none = isinstance(keyword.value, ast.Constant) and keyword.value.value in (None, "", False)
        if keyword.arg in ("deepspeed", "deepspeed_config", "ds_config") and not is_none:
            yield keyword.value


def _is_deepspeed(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and "deepspeed" in node.id.lower()
