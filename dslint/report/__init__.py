"""Output formats, a module each.

A writer is a function `write(results, out, style)`. Its module is imported when its format is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

from dslint.report.style import Style

if TYPE_CHECKING:
    from dslint.lint.results import Results

MODULES = {"json": "json_format", "html": "html_page"}
"""The modules of this package that do not have the name of their format."""


def write(results: Results, output_format: str, out: TextIO, *, color: bool, width: int) -> None:
    """Write the results of a run.

    Args:
        results: what was found.
        output_format: a name in `dslint.settings.table.FORMATS`.
        out: where to write; text formats may contain non-ASCII characters, "json" is ASCII only.
        color: whether to use ANSI colours. Machine-readable formats have none.
        width: the columns of the terminal.
    """
    writer: Callable[[Results, TextIO, Style], None] = import_module(f"{__name__}.{MODULES.get(output_format, output_format)}").write
    writer(results, out, Style(color=color, width=width))
