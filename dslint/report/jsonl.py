"""JSON Lines: an object per line, and its kind in `type`.

    {"type": "file", ...}          a file; its findings follow
    {"type": "diagnostic", ...}    a finding
    {"type": "suppressed", ...}    a suppressed finding
    {"type": "summary", ...}       the last line: `version`, `dslint`, `facts`, `skipped` and the counts of `summary`

The objects are those of the format "json" (see `json_format`, which states what may change, and
`docs/output.schema.json`). A report without a last line of type "summary" is truncated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TextIO

from dslint import __version__
from dslint.lint.results import Results
from dslint.report.json_format import VERSION, facts_of, of_files, portable, skipped_of, summary_of
from dslint.report.style import Style


def write(results: Results, out: TextIO, style: Style) -> None:  # noqa: ARG001 - has neither colours nor a width
    """Write the results as lines of JSON."""
    out.writelines(json.dumps(portable(line)) + "\n" for line in _lines(results))


def _lines(results: Results) -> Iterator[dict[str, object]]:
    for part in of_files(results):
        yield {"type": "file", **part.file}
        yield from ({"type": "diagnostic", **diagnostic} for diagnostic in part.diagnostics)
        yield from ({"type": "suppressed", **suppressed} for suppressed in part.suppressed)
    about = {"version": VERSION, "dslint": __version__, "facts": facts_of(results), "skipped": skipped_of(results)}
    yield {"type": "summary", **about, **summary_of(results)}
