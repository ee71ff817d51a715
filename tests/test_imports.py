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
    """All modules that a file imports, inside functions and for type checkers, too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


FILES = dict(modules())
OUTSIDE = {name: {used for used in imports(file) if used.split(".")[0] != "dslint"} for name, file in FILES.items()}


def inside(name: str, file: Path) -> set[str]:
    """The modules of dslint that a module imports, with the packages that Python imports on the way."""
    found: set[str] = set()
    for used in imports(file):
        module = used if used in FILES else used.rpartition(".")[0]
        parts = module.split(".")
        above = {".".join(parts[:length]) for length in range(2, len(parts))}
        found |= {module} | {package for package in above if not name.startswith(package + ".")}
    return {module for module in found if module in FILES and module != name}


GRAPH = {name: inside(name, file) for name, file in FILES.items()}

LAYERS = (
    ("dslint.record", "dslint.diagnostics", "dslint.errors", "dslint.moved"),
    ("dslint.source",),
    ("dslint.facts",),
    ("dslint.schemas",),
    ("dslint.setup",),
    ("dslint.config",),
    ("dslint.setup.gather", "dslint.setup.jobs", "dslint.setup.programs.gather", "dslint.setup.read", "dslint.setup.scripts"),
    ("dslint.rule", "dslint.memory"),
    ("dslint.rules",),
    ("dslint.registry",),
    ("dslint.settings",),
    ("dslint.lint", "dslint.suppress", "dslint.fixes"),
    ("dslint.api", "dslint.diagnose", "dslint.probe", "dslint.starter", "dslint"),
    ("dslint.report",),
    ("dslint.cli", "dslint.lsp", "dslint.__main__"),
)
"""Packages and modules from the bottom to the top: a module imports from its own layer and those below it. The longest name counts."""


def layer(module: str) -> int:
    named = ((len(name), number) for number, names in enumerate(LAYERS) for name in names if f"{module}.".startswith(f"{name}."))
    return max(named)[1]


@pytest.mark.parametrize("name", FILES)
def test_imports_go_one_way(name: str) -> None:
    assert not [used for used in GRAPH[name] if layer(used) > layer(name)]
    if not name.startswith("dslint.probe.child."):
        assert not [used for used in OUTSIDE[name] if used.split(".")[0] in ("torch", "deepspeed")]
    if not name.startswith("dslint.cli"):
        assert not [used for used in OUTSIDE[name] if used.split(".")[0] == "click"]
    if not name.startswith(("dslint.schemas", "dslint.api")):
        assert not [used for used in OUTSIDE[name] if used.split(".")[0] == "pydantic"]


def test_every_module_has_a_layer() -> None:
    top = {name for names in LAYERS for name in names} - {"dslint"}
    assert {name for name in FILES if not name.startswith(tuple(top))} == {"dslint"}


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules that import each other, by way of others or not."""
    left = {name: set(used) for name, used in graph.items()}
    while free := {name for name, used in left.items() if not used & left.keys()}:
        left = {name: used for name, used in left.items() if name not in free}
    reached = {name: _reached(name, left) for name in left}
    return [group for name in left if (group := {other for other in reached[name] if name in reached[other]})]


def _reached(name: str, graph: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        more = (graph[waiting.pop()] & graph.keys()) - found
        found |= more
        waiting += more
    return found


def test_no_modules_import_each_other() -> None:
    assert circles(GRAPH) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}, {"b", "c"}]


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
