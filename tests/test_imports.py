"""Imports go one way, and a plain check pays for none of the heavy ones."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dslint.config import resolve
from dslint.config.infer import infer
from dslint.facts import NEWEST, Facts
from dslint.lint.run import by_needs
from dslint.registry.rules import default_rules
from dslint.registry.watches import can_run, signals_of
from dslint.source.parse import parse

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"pydantic", "jsonschema", "yaml", "rich", "torch", "deepspeed", "hjson", "asyncio", "hypothesis"}
SLOW = {"pathlib", "dataclasses", "json", "base64", "shutil", "difflib", "tomllib", "urllib", "multiprocessing"}
"""Modules of the standard library that take longer to import than a file takes to check."""


def modules() -> Iterator[tuple[str, Path]]:
    for folder, package in (("dslint", "dslint"), ("rules", "dslint.rules"), ("schemas", "dslint.schemas")):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if folder == "dslint" and file.relative_to(ROOT / folder).parts[0] in ("rules", "schemas"):
                continue
            yield ".".join([package, *file.relative_to(ROOT / folder).with_suffix("").parts]).removesuffix(".__init__"), file


@cache
def imports(file: Path) -> set[str]:
    """All modules that a file imports, inside functions and for type checkers, too."""
    return read(file)[0]


@cache
def read(file: Path) -> tuple[set[str], list[str]]:
    """The modules that a file imports, and the classes at its top. Only statements are searched: of the nodes nine in ten are expressions."""
    found: set[str] = set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, ())
            waiting += inner if isinstance(inner, list) else ()
    return found, [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


FILES = dict(modules())


@cache
def outside() -> dict[str, set[str]]:
    """The modules that each module imports, but for those of dslint."""
    return {name: {used for used in imports(file) if used.split(".")[0] != "dslint"} for name, file in FILES.items()}


def inside(name: str, file: Path) -> set[str]:
    """The modules of dslint that a module imports, with the packages that Python imports on the way."""
    found: set[str] = set()
    for used in imports(file):
        module = used if used in FILES else used.rpartition(".")[0]
        parts = module.split(".")
        above = {".".join(parts[:length]) for length in range(2, len(parts))}
        found |= {module} | {package for package in above if not name.startswith(package + ".")}
    return {module for module in found if module in FILES and module != name}


@cache
def graph() -> dict[str, set[str]]:
    """The modules of dslint that each module imports. Every process of the suite imports this file, and one needs the graph."""
    return {name: inside(name, file) for name, file in FILES.items()}


LAYERS = (
    ("dslint.record", "dslint.diagnostics", "dslint.not_judged", "dslint.errors", "dslint.project"),
    ("dslint.source",),
    ("dslint.facts",),
    ("dslint.schemas",),
    ("dslint.job",),
    ("dslint.config",),
    ("dslint.evaluate",),
    ("dslint.frameworks",),
    ("dslint.setups",),
    ("dslint.rule", "dslint.memory"),
    ("dslint.speed",),
    ("dslint.rules",),
    ("dslint.registry",),
    ("dslint.settings",),
    ("dslint.lint", "dslint.suppress", "dslint.fixes"),
    ("dslint.api", "dslint.diagnose", "dslint.probe", "dslint.starter", "dslint.tune", "dslint.callbacks", "dslint"),
    ("dslint.report",),
    ("dslint.cli", "dslint.server", "dslint.mcp", "dslint.__main__"),
)
"""Packages and modules from the bottom to the top: a module imports from its own layer and those below it. The longest name counts."""


def layer(module: str) -> int:
    named = ((len(name), number) for number, names in enumerate(LAYERS) for name in names if f"{module}.".startswith(f"{name}."))
    return max(named)[1]


def test_imports_go_one_way() -> None:
    assert [(name, used) for name in FILES for used in graph()[name] if layer(used) > layer(name)] == []


@pytest.mark.parametrize(
    ("package", "only"),
    [
        ("torch", ("dslint.probe.child.",)),
        ("deepspeed", ("dslint.probe.child.",)),
        ("click", ("dslint.cli",)),
        ("pydantic", ("dslint.schemas", "dslint.api")),
    ],
)
def test_a_package_is_imported_in_one_place(package: str, only: tuple[str, ...]) -> None:
    elsewhere = {name: used for name, used in outside().items() if not name.startswith(only)}
    assert [(name, one) for name, used in elsewhere.items() for one in used if one.split(".")[0] == package] == []


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
    assert circles(graph()) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}, {"b", "c"}]


def imported_by(program: str) -> set[str]:
    """The modules that a program imports, without those that the environment imports at every start of Python."""
    packages = (path for path in sys.path if path.endswith("site-packages"))  # an environment may extend another one
    paths = os.pathsep.join((str(ROOT), *packages))
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys\n{program}\nprint(*sys.modules, file=sys.stderr)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": paths, "PATH": os.environ["PATH"]},
    )
    return set(done.stderr.split())


@cache
def imported_by_check(path: str) -> set[str]:
    """What a plain check of a config imports that click does not."""
    options = ["check", path, "--isolated", "--deepspeed", str(NEWEST)]
    program = f"import dslint.cli\ntry:\n    dslint.cli.cli({options})\nexcept SystemExit:\n    pass"
    return imported_by(program) - imported_by("import click")


CLEAN, WITH_A_FIX = "examples/zero3.json", "examples/ds_config.json"


@pytest.mark.parametrize(("path", "needed"), [(CLEAN, set()), (WITH_A_FIX, {"json"})])
def test_a_plain_check_imports_nothing_heavy(tmp_path: Path, path: str, needed: set[str]) -> None:
    alone = tmp_path / "ds_config.json"  # no file near it speaks of it
    alone.write_text((ROOT / path).read_text(encoding="utf-8"), encoding="utf-8")
    imported = imported_by_check(str(alone))
    assert "dslint.report.full" in imported
    assert (HEAVY | SLOW) & {name.split(".")[0] for name in imported} == needed
    assert not [name for name in imported if name.startswith(("dslint.memory", "dslint.job.model", "dslint.facts.model_config"))]


@pytest.mark.parametrize("path", [CLEAN, WITH_A_FIX])
def test_a_plain_check_imports_only_rules_that_can_run(tmp_path: Path, path: str) -> None:
    alone = tmp_path / "ds_config.json"
    alone.write_text((ROOT / path).read_text(encoding="utf-8"), encoding="utf-8")
    imported = imported_by_check(str(alone))
    context = infer(document := parse((ROOT / path).read_text(encoding="utf-8")), Facts())
    able, _ = by_needs(default_rules(), context)
    signals = signals_of(resolve(document, context))
    running = {rule.module for rule in able if can_run(rule.watches, signals)}
    assert {name for name in imported if re.fullmatch(r"dslint\.rules\.ds\d_\w+\.\w+", name)} == running
    assert len(running) < len({rule.module for rule in default_rules()}) / 2


def test_importing_dslint_is_cheap() -> None:
    assert not (HEAVY | SLOW | {"click"}) & imported_by("import dslint")


def test_every_package_is_installed() -> None:
    """setuptools installs only the packages that pyproject.toml names."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    assert set(named) == {name for name, file in FILES.items() if file.name == "__init__.py"}


def test_a_class_has_a_name_of_its_own() -> None:
    """Whoever reads or searches a name finds one thing."""
    homes: dict[str, list[str]] = {}
    for file in (ROOT / "dslint").rglob("*.py"):
        for name in read(file)[1]:
            homes.setdefault(name, []).append(file.relative_to(ROOT).as_posix())
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
