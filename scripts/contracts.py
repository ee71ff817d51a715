"""List what libraries refuse with DeepSpeed, and compare it with the rows "contracts" of docs/coverage.tsv.

    python scripts/contracts.py show SITE_PACKAGES/accelerate [FOLDER ...]
    python scripts/contracts.py compare SITE_PACKAGES/accelerate [FOLDER ...]

FOLDER is the package of a release, installed or unpacked from a wheel (`pip download --no-deps accelerate`). It is read but never run.

A refusal is a `raise` of an error, an `assert`, an exit, or a warning. It is listed if one of these mentions DeepSpeed: its text, the
name of its module, class or function, or a condition that decides whether it is reached. Such a condition stands around it, or leaves the
function before it; it mentions DeepSpeed itself, or by a variable that was assigned from code that does. Tests are left out, and so is an
`assert` that only tells a type checker what a variable holds.

A line of the list is "FUNCTION ERROR: TEXT"; what an f-string fills in is {}.

`compare` prints added and removed refusals as Markdown; a changed text is one of each. The exit code is 0 if nothing differs, 1 if
something does.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
COVERAGE = ROOT / "docs" / "coverage.tsv"
SOURCE = "contracts"

NAMES_DEEPSPEED = re.compile(r"deep_?speed|zero_?(3|stage|optimization)|zero3|ds_config|ds_plugin", re.IGNORECASE)
WARNINGS = re.compile(r"(^|\.|_)(warn|warning|warning_once|warn_once|rank_zero_warn|deprecation)$")
TELLS_A_TYPE = re.compile(r"^isinstance\(|^hasattr\(| is not None$")
ENDS_PROGRAM = re.compile(r"^(sys\.)?exit$")
TESTS = frozenset({"test_utils", "tests", "test", "testing"})
LONGEST = 160
"""A longer text is cut: its beginning identifies it."""


class Scope(NamedTuple):
    """Where a statement stands."""

    name: str
    """The module, the classes and the function."""
    under: bool
    """Whether the name, or a condition that decides whether the statement is reached, mentions DeepSpeed."""
    variables: frozenset[str] = frozenset()
    """The variables of the function that were assigned from code that mentions DeepSpeed."""

    def decides(self, test: ast.AST) -> bool:
        """Whether a condition mentions DeepSpeed."""
        return mentions(ast.unparse(test)) or any(isinstance(node, ast.Name) and node.id in self.variables for node in ast.walk(test))


def refusals(package: Path) -> list[str]:
    """The refusals of a package, sorted, each once."""
    found: set[str] = set()
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        if not TESTS.isdisjoint(parts):
            continue
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
            tree = ast.parse(file.read_text(encoding="utf-8"))
        found.update(_of_body(tree.body, Scope(name, under=mentions(name))))
    return sorted(found)


def _of_body(body: list[ast.stmt], scope: Scope) -> Iterator[str]:
    for statement in body:
        yield from _of_statement(statement, scope)
        if isinstance(statement, ast.If) and _leaves(statement.body) and scope.decides(statement.test):
            scope = scope._replace(under=True)


def _of_statement(statement: ast.stmt, scope: Scope) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        variables = scope.variables | _variables(statement) if not isinstance(statement, ast.ClassDef) else scope.variables
        inner = Scope(f"{scope.name}.{statement.name}", scope.under or mentions(statement.name), variables)
        yield from _of_body(statement.body, inner)
        return
    if found := _refusal(statement):
        error, said = found
        if scope.under or mentions(said) or (isinstance(statement, ast.Assert) and scope.decides(statement.test)):
            yield f"{scope.name} {error}: {said}" if said else f"{scope.name} {error}"
        return
    tests = [getattr(statement, field) for field in ("test", "subject") if hasattr(statement, field)]
    under = scope._replace(under=scope.under or any(map(scope.decides, tests)))
    for field in ("body", "orelse", "finalbody"):
        yield from _of_body(getattr(statement, field, []), under)
    for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
        yield from _of_body(part.body, under)


def _leaves(body: list[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Return | ast.Continue)


def _variables(function: ast.AST) -> frozenset[str]:
    """The variables of a function that are only assigned from code that mentions DeepSpeed."""
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            targets = [target.id for target in node.targets if isinstance(target, ast.Name)]
            names[mentions(ast.unparse(node.value))].update(targets)
        elif isinstance(node, ast.arg):
            names[False].add(node.arg)
    return frozenset(names[True] - names[False])


def _refusal(statement: ast.stmt) -> tuple[str, str] | None:
    """The error that a statement raises and its text; None if it refuses nothing."""
    if isinstance(statement, ast.Assert):
        if statement.msg is None and TELLS_A_TYPE.search(ast.unparse(statement.test)):
            return None
        return "AssertionError", text(statement.msg or statement.test)
    if isinstance(statement, ast.Raise) and isinstance(statement.exc, ast.Name) and statement.exc.id[0].isupper():
        return statement.exc.id, ""
    if isinstance(statement, ast.Raise) and isinstance(statement.exc, ast.Call):
        return dotted(statement.exc.func).rpartition(".")[2], text(statement.exc.args[0]) if statement.exc.args else ""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if WARNINGS.search(dotted(call.func)) and call.args:
            return "warning", text(call.args[0])
        if ENDS_PROGRAM.search(dotted(call.func)) and call.args:
            return "SystemExit", text(call.args[0])
    return None


def text(node: ast.expr) -> str:
    """The text of a message: strings as they are, what is filled in as {}; other expressions as code."""
    return " ".join(_text(node).split())[:LONGEST].rstrip()


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(_text(value) for value in values)
        case ast.FormattedValue():
            return "{}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case ast.BinOp(left=left, op=ast.Mod()):
            return _text(left)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(value)), attr="format")):
            return value
    return ast.unparse(node)


def dotted(node: ast.expr) -> str:
    """A name such as warnings.warn."""
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def mentions(words: str) -> bool:
    """Whether a name or a text mentions DeepSpeed."""
    return NAMES_DEEPSPEED.search(words) is not None


def known(package: str) -> set[str]:
    """The refusals of a package in the coverage file."""
    rows = [line.split("\t") for line in COVERAGE.read_text(encoding="utf-8").splitlines()]
    return {row[1] for row in rows if row[0] == SOURCE and row[1].startswith(f"{package}.")}


def main(arguments: list[str] | None = None) -> int:
    """Show or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("show", "compare"))
    parser.add_argument("packages", type=Path, nargs="+", metavar="FOLDER")
    given = parser.parse_args(arguments)
    differs = False
    for package in given.packages:
        lines = set(refusals(package))
        if given.command == "show":
            print("\n".join(sorted(lines)))
            continue
        before = known(package.name)
        for title, changed in (("Added", lines - before), ("Removed", before - lines)):
            if changed:
                differs = True
                print(f"## {title}: {package.name}\n\n" + "\n".join(f"- {line}" for line in sorted(changed)) + "\n")
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
