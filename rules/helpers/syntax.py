"""The syntax trees of the programs of a setup, for what the table of events does not hold."""

from __future__ import annotations

import ast

from dslint.config import Config
from dslint.job.events import Event
from dslint.source.posted import tree_of_text


def tree_of(config: Config, path: str) -> ast.Module | None:
    """The syntax tree of a file of the setup; None if it is not Python, or not all of it, as in the cell of a notebook."""
    document = config.setup.documents.get(path) if config.setup is not None else None
    if document is None or document.language != "python":
        return None
    return tree_of_text(document.text)


def statements_around(tree: ast.Module | None, event: Event) -> list[ast.stmt]:
    """The statements in whose lines a call stands, from the outermost; none if the tree or the place is not known."""
    if tree is None or event.at.range is None:
        return []
    line = event.at.range.start.line
    return [one for one in ast.walk(tree) if isinstance(one, ast.stmt) and one.lineno <= line <= (one.end_lineno or one.lineno)]
