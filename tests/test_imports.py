"""Imports go one way, and a plain check pays for none of the heavy ones."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"pydantic", "jsonschema", "yaml", "rich", "torch", "deepspeed", "hjson", "asyncio", "hypothesis"}


def modules() -> Iterator[tuple[str, Path]]:
    for folder, package in (("dslint", "dslint"), ("rules", "dslint.rules"), ("schemas", "dslint.schemas")):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if folder == "dslint" and file.relative_to(ROOT / folder).parts[0] in ("rules", "schemas"):
                continue
            yield ".".join([package, *file.relative_to(ROOT / folder).with_suffix("").parts]).removesuffix(".__init__"), file


def imports(file: Path) -> set[str]:
    """All modules that a file imports, inside functions too, but not for type checkers alone."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(file.read_text(encoding="utf-8")))
    return found


FORBIDDEN = [
    (
        "dslint.source",
        (
            "dslint.diagnostics",
            "dslint.rule",
            "dslint.config",
            "dslint.facts",
            "dslint.lint.document",
            "dslint.schemas",
            "dslint.rules",
            "dslint.cli",
            "dslint.report",
        ),
    ),
    ("dslint.diagnostics", ("dslint.",)),
    ("dslint.rules", ("dslint.cli", "dslint.lint.document", "dslint.report", "click")),
    ("dslint.report", ("dslint.rules", "dslint.cli", "dslint.lint.document", "click")),
    ("dslint.schemas", ("dslint.rules", "dslint.cli", "dslint.lint.document", "dslint.report", "click")),
    ("dslint.config", ("dslint.rules.", "dslint.cli", "dslint.lint.document", "dslint.report", "click")),
    ("dslint.lint.document", ("dslint.cli", "dslint.report", "click")),
]


@pytest.mark.parametrize(("name", "file"), list(modules()), ids=lambda value: value if isinstance(value, str) else "")
def test_imports_go_one_way(name: str, file: Path) -> None:
    used = imports(file)
    for place, forbidden in FORBIDDEN:
        if name == place or name.startswith(place + "."):
            assert not [module for module in used for word in forbidden if module == word or module.startswith(word)], name
    if not name.startswith("dslint.probe.child."):
        assert not used & {"torch", "deepspeed"}
    if not name.startswith("dslint.cli"):
        assert not [module for module in used if module.split(".")[0] == "click"]
    if not name.startswith(("dslint.schemas", "dslint.api")):
        assert not [module for module in used if module.split(".")[0] == "pydantic"]


def test_a_plain_check_imports_nothing_heavy() -> None:
    program = (
        "import sys, dslint.cli\n"
        "try:\n    dslint.cli.cli(['check', 'examples/ds_config.json'])\nexcept SystemExit:\n    pass\n"
        "print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert "DS501" in done.stdout
    assert not HEAVY & set(done.stderr.split())


def test_importing_dslint_is_cheap() -> None:
    program = "import sys, dslint; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert not (HEAVY | {"click", "dataclasses"}) & set(done.stdout.split())
