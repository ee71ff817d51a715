"""What the functions of the API return: lists and objects with a short `repr`, and a table in notebooks."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dslint.diagnostics import Diagnostic, Severity
from dslint.not_judged import NotJudged
from dslint.record import Record

if TYPE_CHECKING:
    from dslint.lint.results import FileResult

SHOWN = 8
"""How many findings a `repr` lists."""


class ConfigError(ValueError):
    """DeepSpeed would reject the config. `diagnostics` has the reasons; the text lists them, a line each."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(f"{d.code} {d.message}" for d in self.diagnostics))


class Findings(list[Diagnostic]):
    """The findings of a check, by file and place. `files` are the results for the files, `not_judged` what was not checked, and why."""

    def __init__(self, files: Iterable[FileResult] = ()) -> None:
        self.files = tuple(files)
        super().__init__(diagnostic for file in self.files for diagnostic in file.diagnostics)

    @property
    def not_judged(self) -> tuple[NotJudged, ...]:
        """What was not checked."""
        return tuple(one for file in self.files for one in file.not_judged)

    @property
    def errors(self) -> list[Diagnostic]:
        """The findings with the severity "error"."""
        return [diagnostic for diagnostic in self if diagnostic.severity is Severity.ERROR]

    def __repr__(self) -> str:
        lines = [_counts(self), *map(_line, self[:SHOWN])]
        if len(self) > SHOWN:
            lines.append(f"... and {len(self) - SHOWN} more")
        return "\n".join([*lines, *(f"not judged: {one.reason}" for one in self.not_judged)])

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(_counts(self))}</p>{_table(self)}" + "".join(
            f"<p>not judged: {html.escape(one.reason)}</p>" for one in self.not_judged
        )


class FixedConfig(Record):
    """What came of fixing a config: its text, what was fixed, and the findings that are left, by place in the fixed text."""

    text: str
    fixed: tuple[Diagnostic, ...]
    left: tuple[Diagnostic, ...]

    @property
    def config(self) -> Any:
        """The fixed config as plain data, as DeepSpeed reads the text.

        Raises:
            ValueError: the text has syntax errors.
        """
        from dslint.source.parse import parse
        from dslint.source.tree import plain

        document = parse(self.text)
        if document.problems or document.root is None:
            raise ValueError("the config has syntax errors; `left` names them")
        return plain(document.root)

    def __repr__(self) -> str:
        lines = [f"{len(self.fixed)} fixed, {len(self.left)} left", *(f"fixed: {_line(one)}" for one in self.fixed)]
        return "\n".join([*lines, *(f"left: {_line(one)}" for one in self.left)])

    def _repr_html_(self) -> str:
        parts = ((f"{len(self.fixed)} fixed", self.fixed), (f"{len(self.left)} left", self.left))
        return "".join(f"<p>{title}</p>{_table(found)}" for title, found in parts)


def _counts(found: Iterable[Diagnostic]) -> str:
    counts = Counter(diagnostic.severity for diagnostic in found)
    words = [f"{counts[one]} {one.value}{'s' if counts[one] > 1 and one.value != 'info' else ''}" for one in Severity if counts[one]]
    return ", ".join(words) or "no findings"


def _place(found: Diagnostic) -> str:
    return f"{found.path}:{found.range.start.line}:{found.range.start.column}" if found.range else found.path


def _line(found: Diagnostic) -> str:
    return f"{_place(found)}: {found.severity.value} {found.code} {found.message}"


def _table(found: Iterable[Diagnostic]) -> str:
    cells = ((one.severity.value, f"{one.code} {one.name}", _place(one), one.message, one.help or "") for one in found)
    rows = "".join("<tr>" + "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
    return f"<table>{rows}</table>" if rows else ""
