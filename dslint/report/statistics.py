"""The number of findings of each rule, the most frequent rule first."""

from __future__ import annotations

from collections import Counter
from typing import TextIO

from dslint.lint.results import Results
from dslint.report.style import Style, visible
from dslint.report.words import COLORS, count


def write(results: Results, out: TextIO, *, color: bool) -> None:
    """Write for each rule with findings: their number, the severity, the code, the name, and the number of files."""
    style = Style(color=color, width=80)
    found = Counter((d.code, d.name, d.severity) for d in results.diagnostics)
    files = {key: len({d.path for d in results.diagnostics if (d.code, d.name, d.severity) == key}) for key in found}
    for (code, name, severity), number in sorted(found.items(), key=lambda item: (-item[1], item[0][0])):
        word = style.paint(f"{severity.value:<7}", COLORS[severity], "bold")
        out.write(f"{number:>6,}  {word}  {style.paint(code, 'bold')}  {visible(name)} ({count(files[code, name, severity], 'file')})\n")
    out.write(f"{found.total():>6,}  in {count(len(results.files), 'file')}\n")
