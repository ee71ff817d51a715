"""What was found, written out: a module per output format.

A writer is a function `write(results, out, style)`. Its module is imported when its format is chosen, so that nobody pays for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

from dslint.report.style import Style

if TYPE_CHECKING:
    from dslint.lint.results import Results

MODULES = {"json": "json_format"}
"""The modules of this package that do not have the name of their format."""


def write(results: Results, output_format: str, out: TextIO, *, color: bool, width: int) -> None:
    """Write the results of a run.

    Args:
        results: what was found.
        output_format: a name in `dslint.settings.table.FORMATS`.
        out: where to write; the formats for people hold non-ASCII text, "json" is ASCII alone.
        color: whether to use ANSI colours. Formats for programs have none.
        width: how many columns there are.
    """
    writer: Callable[[Results, TextIO, Style], None] = import_module(f"{__name__}.{MODULES.get(output_format, output_format)}").write
    writer(results, out, Style(color=color, width=width))
