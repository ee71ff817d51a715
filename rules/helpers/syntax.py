"""The syntax trees of the programs of a setup, for what the table of events does not hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from dslint.config import Config
from dslint.diagnostics import Place, Range, Related
from dslint.facts import Integration
from dslint.job.events import Event
from dslint.source.posted import tree_of_text
from dslint.source.searched import has
from dslint.source.store import store


def tree_of(config: Config, path: str) -> ast.Module | None:
    """The syntax tree of a file of the setup; None if it is not Python, or not all of it, as in the cell of a notebook."""
    document = config.setup.documents.get(path) if config.setup is not None else None
    if document is None or document.language != "python":
        return None
    return tree_of_text(document.text)


def is_in_a_file(pattern: re.Pattern[str], config: Config) -> bool:
    """Whether a pattern matches in a file of the setup. Each file is searched once a run."""
    texts = (one.text for one in config.setup.documents.values()) if config.setup is not None else ()
    return any(has(pattern, text) for text in texts)


def first_in_ranks(config: Config, find: Callable[[ast.Module], _Node | None]) -> tuple[str, _Node] | None:
    """The first place, with its file, that a search finds in a program which several ranks may run with an engine. Each file is searched
    once a run.
    """
    setup, loaders = config.setup, (Integration.DEEPSPEED, Integration.ACCELERATE)
    if setup is None or setup.program is None or config.facts.world_size == 1 or config.facts.integration not in loaders:
        return None
    for path in setup.documents:
        tree = tree_of(config, path)
        found = store().parsed((find, tree), partial(find, tree)) if tree is not None else None
        if found is not None:
            return path, found
    return None


_Node = TypeVar("_Node", bound=ast.AST)


def classes_in(tree: ast.Module) -> tuple[ast.ClassDef, ...]:
    """The classes in a file. Like all that is found in a whole tree, they are found once a run: a project has many configs for a program."""
    return store().parsed(("classes", tree), lambda: tuple(one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)))


def names_called_in(tree: ast.Module) -> frozenset[str]:
    """The names of functions and classes that a file calls without anything before them."""
    return store().parsed(("names called", tree), lambda: frozenset(_names_called(tree)))


def _names_called(tree: ast.Module) -> Iterator[str]:
    return (one.func.id for one in ast.walk(tree) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name))


def related_to(config: Config, path: str, node: ast.expr) -> Related:
    """Where an expression stands in a file of the setup. Python counts the columns in bytes."""
    lines = config.setup.documents[path].text.splitlines(keepends=True) if config.setup is not None else []

    def at(line: int, column: int) -> Place:
        before = len(lines[line - 1].encode()[:column].decode(errors="replace"))
        return Place(line, before + 1, sum(map(len, lines[: line - 1])) + before)

    end = at(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
    return Related(path, "", None, Range(at(node.lineno, node.col_offset), end))


def statements_around(tree: ast.Module | None, event: Event) -> list[ast.stmt]:
    """The statements in whose lines a call stands, from the outermost; none if the tree or the place is not known."""
    if tree is None or event.at.range is None:
        return []
    line = event.at.range.start.line
    return store().parsed(
        ("around", tree, line),
        lambda: [one for one in _statements_in(tree) if one.lineno <= line <= (one.end_lineno or one.lineno)],
    )


def _statements_in(tree: ast.Module) -> tuple[ast.stmt, ...]:
    return store().parsed(("statements", tree), lambda: tuple(one for one in ast.walk(tree) if isinstance(one, ast.stmt)))
