"""The JSON format: a stable contract, described here and in `docs/output.schema.json`.

    {
      "version": 1,               check this; it changes only when something here is removed or changes its meaning
      "dslint": "0.1.0",          the release that wrote this
      "facts": {...},             the facts that were given, by the names of the options; null is unknown
      "files": [{
        "path", "kind",           the path as it was given or found, with forward slashes; "ds_config", "inference", "template", ...
        "error", "note",          why it could not be read; a sentence about the whole file
        "inferred": [{"fact", "value", "evidence"}],
        "not_judged": [{"reason", "range"}]   what was not judged: the whole file if range is null, else the part at range
      }],
      "diagnostics": [{
        "path", "code", "name",
        "severity",               "error", "warning", "info"
        "effect",                 "crash", "silent", "ignored", "memory", "slow", "advice", "policy"
        "certain",                whether files and facts prove that this happens; false: it may
        "phase",                  "load", "parse", "initialize", "step", "later", "save", "resume" if the effect is "crash", else null
        "order",                  a number: of several crashes a job meets the one with the lowest first; null if it is not a crash
        "message", "help", "url",
        "pointer",                RFC 6901: "/zero_optimization/offload_param"
        "range": {"start": {"line", "column", "offset"}, "end": {...}},
        "related": [{"path", "message", "pointer", "range"}],
        "fix": {"title", "applicability": "safe" | "unsafe" | "display", "edits": [{"range", "content"}]},
        "fingerprint"             stable between runs while the file keeps its path and the finding its key
      }],
      "suppressed": [{            suppressed findings, like those above; not counted above
        ...,
        "suppression": {"by": "comment" | "settings" | "baseline", "reason"}
      }],
      "skipped": [{"code", "needs"}],       rules that were skipped for some file, and the fact that each needs
      "summary": {"error", "warning", "info", "files", "judged", "not_judged", "unreadable", "suppressed"}
    }

Every key is always present. What is unknown or does not apply is null: `error`, `note`, `phase`, `order`, `help`, `url`, `pointer`,
`range`, `fix`, `reason`. Lines and columns start at 1 and offsets at 0, all in code points of the file's text; a range ends before its
`end`. Diagnostics are sorted by file, and by place within each file. Later releases may add keys.

The output is ASCII. A lone surrogate (half of a character, or a byte of a file name that is not text) becomes a backslash, `u` and its
number *as text*, because many JSON readers reject the escape itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TextIO

from dslint import __version__
from dslint.config.context import Context
from dslint.diagnostics import Diagnostic, Edit, Fix, Place, Range, Related, Severity
from dslint.facts import NOT_NEEDED, Facts
from dslint.lint.results import FileResult, Results
from dslint.record import Record
from dslint.report.style import Style
from dslint.source.tree import Document
from dslint.suppress.fingerprints import fingerprints

VERSION = 1


def write(results: Results, out: TextIO, style: Style) -> None:  # noqa: ARG001 - has neither colours nor a width
    """Write the results as one JSON object."""
    json.dump(portable(payload(results)), out, indent=2)
    out.write("\n")


def payload(results: Results) -> dict[str, object]:
    """The results as plain data."""
    parts = list(of_files(results))
    return {
        "version": VERSION,
        "dslint": __version__,
        "facts": facts_of(results),
        "files": [part.file for part in parts],
        "diagnostics": [diagnostic for part in parts for diagnostic in part.diagnostics],
        "suppressed": [suppressed for part in parts for suppressed in part.suppressed],
        "skipped": skipped_of(results),
        "summary": summary_of(results),
    }


class FileOutput(Record):
    """The output for one file."""

    file: dict[str, object]
    diagnostics: list[dict[str, object]]
    suppressed: list[dict[str, object]]


def of_files(results: Results) -> Iterator[FileOutput]:
    """The files and their findings, as plain data."""
    shown, hidden = map(iter, fingerprinted(results))
    for file in results.files:
        yield FileOutput(
            _file(file),
            [_diagnostic(diagnostic, file.document, next(shown)) for diagnostic in file.diagnostics],
            [
                {
                    **_diagnostic(suppressed.diagnostic, file.document, next(hidden)),
                    "suppression": {"by": suppressed.by.value, "reason": suppressed.reason},
                }
                for suppressed in file.suppressed
            ],
        )


def fingerprinted(results: Results) -> tuple[list[str], list[str]]:
    """The fingerprints of the reported findings, and of the suppressed ones, in their order."""
    shown = results.diagnostics
    prints = fingerprints([*shown, *(suppressed.diagnostic for suppressed in results.suppressed)])
    return prints[: len(shown)], prints[len(shown) :]


def facts_of(results: Results) -> dict[str, object]:
    """The facts that were given."""
    names = (*(name for name in Facts._fields if name not in NOT_NEEDED), "policy", "checkpoint")
    return {name: _fact(results.context, name) for name in names}


def skipped_of(results: Results) -> list[dict[str, str]]:
    """The rules that were skipped for some file."""
    return [{"code": code, "needs": needs} for needs, codes in sorted(results.skipped.items()) for code in sorted(codes)]


def summary_of(results: Results) -> dict[str, int]:
    """The counts."""
    return {
        **{severity.value: results.count(severity) for severity in Severity},
        "files": len(results.files),
        "judged": sum(file.is_judged for file in results.files),
        "not_judged": sum(bool(file.not_judged) for file in results.files),
        "unreadable": sum(file.error is not None for file in results.files),
        "suppressed": len(results.suppressed),
    }


def _fact(context: Context, name: str) -> object:
    value = context.get(name)
    return value if value is None or isinstance(value, int | float) else str(value)


def _file(file: FileResult) -> dict[str, object]:
    inferred = [{"fact": fact, "value": _fact(file.context, fact), "evidence": evidence} for fact, evidence in file.context.evidence]
    not_judged = [{"reason": one.reason, "range": _range(None if one.path else one.range)} for one in file.not_judged]
    about = {"path": file.path, "kind": str(file.kind), "error": file.error, "note": file.note}
    return {**about, "inferred": inferred, "not_judged": not_judged}


def _diagnostic(diagnostic: Diagnostic, document: Document | None, fingerprint: str) -> dict[str, object]:
    return {
        "path": diagnostic.path,
        "code": diagnostic.code,
        "name": diagnostic.name,
        "severity": diagnostic.severity.value,
        "effect": diagnostic.effect.value,
        "certain": diagnostic.certain,
        "phase": diagnostic.phase.value if diagnostic.phase else None,
        "order": diagnostic.order,
        "message": diagnostic.message,
        "help": diagnostic.help,
        "url": diagnostic.url,
        "pointer": diagnostic.pointer,
        "range": _range(diagnostic.range),
        "related": [_related(related) for related in diagnostic.related],
        "fix": _fix(diagnostic.fix, document) if diagnostic.fix else None,
        "fingerprint": fingerprint,
    }


def _related(related: Related) -> dict[str, object]:
    return {"path": related.path, "message": related.message, "pointer": related.pointer, "range": _range(related.range)}


def _range(of: Range | None) -> dict[str, object] | None:
    return {"start": _as_data(of.start), "end": _as_data(of.end)} if of else None


def _as_data(place: Place) -> dict[str, int]:
    return {"line": place.line, "column": place.column, "offset": place.offset}


def _fix(fix: Fix, document: Document | None) -> dict[str, object]:
    return {"title": fix.title, "applicability": fix.applicability.value, "edits": [_edit(edit, document) for edit in fix.edits]}


def _edit(edit: Edit, document: Document | None) -> dict[str, object]:
    ends = [Place(*document.position(offset)) for offset in (edit.start, edit.end)] if document else None
    return {"range": _range(Range(*ends)) if ends else None, "content": edit.content}


def portable(value: object) -> object:
    """The data with lone surrogates written as text."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [portable(item) for item in value]
    if isinstance(value, dict):
        return {key: portable(item) for key, item in value.items()}
    return value
