"""The machine knows no DeepSpeed key by name: the names stand in `schemas/` and in the rules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from dslint.schemas.key_table import KEYS

ROOT = Path(__file__).resolve().parent.parent / "dslint"

NAMES = {part for key in KEYS for part in key.replace("[]", "").split(".") if "_" in part}
NAME = re.compile(rf"\b(?:{'|'.join(sorted(map(re.escape, NAMES), key=len, reverse=True))})\b")

ABOUT_DEEPSPEED = {
    "memory": "replays a step of DeepSpeed's engine, key by key",
    "speed": "reads from a plan what decides the time of a step",
    "tune": "writes configs",
    "probe": "runs DeepSpeed's engine, and takes what writes files or needs other machines out of the config",
    "starter": "writes a config",
    "diagnose": "reads what DeepSpeed, launchers and libraries print, and computes what the engine holds",
    "evaluate": "reads what launchers, loaders and programs write: arguments and fields of theirs have the names of keys",
    "frameworks": "reads what launchers, loaders and programs write: arguments and fields of theirs have the names of keys",
    "job": "reads what launchers, loaders and programs write: arguments and fields of theirs have the names of keys",
    "setups": "reads what launchers, loaders and programs write: arguments and fields of theirs have the names of keys",
}
"""Packages that are about DeepSpeed itself, with the reason."""

ALLOWED = {
    "facts/known_models.py": {"model_type", "hidden_size", "num_layers"},
    "facts/model_config.py": {"hidden_size", "model_type", "num_layers"},  # keys of a model's config.json
    "cli/rule.py": {"zero_optimization", "offload_param"},  # an example in the help
    "mcp/tools.py": {"zero_optimization", "offload_param", "activation_checkpointing"},  # an example, and the option of this name
    "cli/probe.py": {"train_micro_batch_size_per_gpu", "zero_optimization"},  # the same
    "settings/kinds.py": {"zero_optimization", "offload_param"},  # the same
    "report/words.py": {"tensor_parallel"},  # the fact of this name
}


def strings(tree: ast.AST) -> Iterator[str]:
    """The strings of a module, but for its docstrings."""
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body and isinstance(node.body[0], ast.Expr)
    } | {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


MODULES = [
    file.relative_to(ROOT).as_posix()
    for file in sorted(ROOT.rglob("*.py"))
    if file.relative_to(ROOT).parts[0] not in ("rules", "schemas", *ABOUT_DEEPSPEED)
]


def test_no_key_is_named() -> None:
    found: dict[str, set[str]] = {}
    for module in MODULES:
        text = (ROOT / module).read_text(encoding="utf-8")
        if NAME.search(text):
            found[module] = {name for one in strings(ast.parse(text)) for name in NAME.findall(one)}
    assert {module: names for module, names in found.items() if names} == ALLOWED


def test_a_key_is_found() -> None:
    tree = ast.parse('"""About zero_optimization."""\nKEY = "zero_optimization.stage"\nOTHER = f"{KEY} and overlap_comm"')
    assert [name for text in strings(tree) for name in NAME.findall(text)] == ["zero_optimization", "overlap_comm"]
