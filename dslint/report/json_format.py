"""The format for programs: a stable contract, described here and in `docs/output.schema.json`.

    {
      "version": 1,               what a program must check; it changes only when something here is removed or changes its meaning
      "dslint": "0.1.0",          the release that wrote this
      "facts": {...},             what was given beside the files, by the names of the options; null is unknown
      "files": [{
        "path", "kind",           the path as it was given or found, with forward slashes; "ds_config", "inference", "template", ...
        "error", "note",          why it could not be read; a sentence about it as a whole
        "inferred": [{"fact", "value", "evidence"}]
      }],
      "diagnostics": [{
        "path", "code", "name",
        "severity",               "error", "warning", "info"
        "effect",                 "crash", "silent", "ignored", "memory", "slow", "advice"
        "phase",                  "load", "parse", "initialize", "step", "save", "resume" if the effect is "crash", else null
        "message", "help", "url",
        "pointer",                RFC 6901: "/zero_optimization/offload_param"
        "range": {"start": {"line", "column", "offset"}, "end": {...}},
        "related": [{"path", "message", "pointer", "range"}],
        "fix": {"title", "applicability": "safe" | "unsafe" | "display", "edits": [{"range", "content"}]}
      }],
      "skipped": [{"code", "needs"}],       rules that were not asked about some file, and the fact each would need
      "summary": {"error", "warning", "info", "files", "judged", "unreadable"}
    }

Every key is always there. What is not known or does not apply is null: `error`, `note`, `phase`, `help`, `url`, `pointer`, `range`, `fix`.
Lines and columns start at 1 and offsets at 0, all in code points of the file's text; a range ends before its `end`. Diagnostics stand in
the order of the files, and by place within each. Later releases may add keys.

The output is ASCII. A lone surrogate (half of a character, or a byte of a file name that is no text) becomes a backslash, `u` and its
number *as text*, because many JSON readers refuse the escape itself.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TextIO

from dslint import __version__
from dslint.diagnostics import Diagnostic, Edit, Fix, Place, Range, Related, Severity
from dslint.facts import Facts
from dslint.report.style import Style
from dslint.report.words import is_judged
from dslint.results import FileResult, Results
from dslint.source.tree import Document

VERSION = 1


def write(results: Results, out: TextIO, style: Style) -> None:  # noqa: ARG001 - programs see neither colours nor widths
    """Write the results as one JSON object."""
    json.dump(_portable(payload(results)), out, indent=2)
    out.write("\n")


def payload(results: Results) -> dict[str, object]:
    """The results as plain data."""
    return {
        "version": VERSION,
        "dslint": __version__,
        "facts": {field.name: _fact(results.facts, field.name) for field in fields(Facts) if field.name != "inferred"},
        "files": [_file(file) for file in results.files],
        "diagnostics": [_diagnostic(diagnostic, file.document) for file in results.files for diagnostic in file.diagnostics],
        "skipped": [{"code": code, "needs": needs} for needs, codes in sorted(results.skipped.items()) for code in sorted(codes)],
        "summary": {
            **{severity.value: results.count(severity) for severity in Severity},
            "files": len(results.files),
            "judged": sum(is_judged(file) for file in results.files),
            "unreadable": sum(file.error is not None for file in results.files),
        },
    }


def _fact(facts: Facts, name: str) -> object:
    value = getattr(facts, name)
    return value if value is None or isinstance(value, int | float) else str(value)


def _file(file: FileResult) -> dict[str, object]:
    inferred = [{"fact": fact, "value": _fact(file.facts, fact), "evidence": evidence} for fact, evidence in file.facts.inferred]
    return {"path": file.path, "kind": str(file.kind), "error": file.error, "note": file.note, "inferred": inferred}


def _diagnostic(diagnostic: Diagnostic, document: Document | None) -> dict[str, object]:
    return {
        "path": diagnostic.path,
        "code": diagnostic.code,
        "name": diagnostic.name,
        "severity": diagnostic.severity.value,
        "effect": diagnostic.effect.value,
        "phase": diagnostic.phase.value if diagnostic.phase else None,
        "message": diagnostic.message,
        "help": diagnostic.help,
        "url": diagnostic.url,
        "pointer": diagnostic.pointer,
        "range": _range(diagnostic.range),
        "related": [_related(related) for related in diagnostic.related],
        "fix": _fix(diagnostic.fix, document) if diagnostic.fix else None,
    }


def _related(related: Related) -> dict[str, object]:
    return {"path": related.path, "message": related.message, "pointer": related.pointer, "range": _range(related.range)}


def _range(of: Range | None) -> dict[str, object] | None:
    return {"start": _place(of.start), "end": _place(of.end)} if of else None


def _place(place: Place) -> dict[str, int]:
    return {"line": place.line, "column": place.column, "offset": place.offset}


def _fix(fix: Fix, document: Document | None) -> dict[str, object]:
    return {"title": fix.title, "applicability": fix.applicability.value, "edits": [_edit(edit, document) for edit in fix.edits]}


def _edit(edit: Edit, document: Document | None) -> dict[str, object]:
    ends = [Place(*document.position(offset)) for offset in (edit.start, edit.end)] if document else None
    return {"range": _range(Range(*ends)) if ends else None, "content": edit.content}


def _portable(value: object) -> object:
    """The data with lone surrogates spelt out."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [_portable(item) for item in value]
    if isinstance(value, dict):
        return {key: _portable(item) for key, item in value.items()}
    return value
