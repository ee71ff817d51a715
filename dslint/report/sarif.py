"""SARIF 2.1.0, which GitHub code scanning, Azure DevOps and editors read.

A finding is a result; suppressed findings are results with a suppression. Rules with results are described in the tool component, with
their documentation. Unreadable files, notes about whole files and skipped rules are notifications of the invocation. Artifacts are
relative to `%SRCROOT%`, which is GITHUB_WORKSPACE or else the working directory; files outside have absolute `file:` URIs.

The log stays within GitHub's limits: 25,000 results per run (5,000 are shown), 1,000 locations per result (100 are shown), 10 tags per
rule, 1,024 characters per description, 10 MB compressed. If findings must be omitted, the most severe stay, and a notification has the
number of omitted ones.
https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeAlias
from urllib.parse import quote

from dslint import __version__, project
from dslint.diagnostics import Applicability, Diagnostic, Fix, Place, Range, Severity
from dslint.lint.results import FileResult, Results, Suppressed, SuppressedBy
from dslint.report.json_format import fingerprinted, portable
from dslint.report.paths import file_and_cell, from_root
from dslint.report.style import Style, clipped, visible, visible_lines
from dslint.report.words import consequence, count, inferred_facts, note_of, said, skipped_rules
from dslint.source.tree import Document

if TYPE_CHECKING:
    from dslint.rule import Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

RESULTS = 25_000
"""The most results that GitHub accepts in a run."""

COMPRESSED = 8_000_000
"""The most bytes of results, compressed: 10 MB less some room for rules, notifications and whitespace."""

LOCATIONS = 100
NOTIFICATIONS = 1_000
DESCRIPTION = 1_024
MESSAGE = 4_000
LINK = 200

LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}

Data: TypeAlias = dict[str, Any]


class SarifResult(NamedTuple):
    """A finding, and what its result is made from."""

    diagnostic: Diagnostic
    document: Document | None
    fingerprint: str
    suppressed: Suppressed | None = None


def write(results: Results, out: TextIO, style: Style) -> None:  # noqa: ARG001 - has neither colours nor a width
    """Write the results as a SARIF log."""
    json.dump(log(results), out, indent=2)
    out.write("\n")


def log(results: Results) -> Data:
    """The results as a SARIF log."""
    root = os.environ.get("GITHUB_WORKSPACE") or os.getcwd()  # noqa: PTH109 - pathlib is slow to import
    found = list(_found(results))
    kept, written = _fitting(found, root)
    first: dict[str, Diagnostic] = {}
    for one in kept:
        first.setdefault(one.diagnostic.code, one.diagnostic)
    indices = {code: index for index, code in enumerate(first)}
    for one, result in zip(kept, written, strict=True):
        result["ruleIndex"] = indices[one.diagnostic.code]
    known = {rule.code: rule for rule in results.rules}
    driver: Data = {
        "name": "dslint",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(diagnostic, known[code].load() if code in known else None) for code, diagnostic in first.items()],
    }
    if home := project.SITE or project.REPOSITORY:
        driver["informationUri"] = home
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(results, len(found) - len(kept), root)],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{**_without_nulls(run), "results": written}]}


def _without_nulls(data: Data) -> Data:
    plain = portable(data)
    assert isinstance(plain, dict)
    return plain


def _found(results: Results) -> Iterator[SarifResult]:
    shown, hidden = map(iter, fingerprinted(results))
    for file in results.files:
        yield from (SarifResult(diagnostic, file.document, next(shown)) for diagnostic in file.diagnostics)
        yield from (SarifResult(suppressed.diagnostic, file.document, next(hidden), suppressed) for suppressed in file.suppressed)


def _fitting(found: list[SarifResult], root: str) -> tuple[list[SarifResult], list[Data]]:
    """The findings that GitHub accepts, in their order, and their results. Suppressed and less severe ones are dropped first."""
    packer, size = zlib.compressobj(1), 0
    kept: dict[int, Data] = {}
    for index in sorted(range(len(found)), key=lambda index: (found[index].suppressed is not None, -found[index].diagnostic.severity.rank)):
        result = _without_nulls(_result(found[index], root))
        size += len(packer.compress(json.dumps(result).encode("ascii")))
        if len(kept) == RESULTS or size > COMPRESSED:
            break
        kept[index] = result
    order = sorted(kept)
    return [found[index] for index in order], [kept[index] for index in order]


def _result(one: SarifResult, root: str) -> Data:
    diagnostic, document, fingerprint, suppressed = one
    related = diagnostic.related[:LOCATIONS]
    parts = said(diagnostic) + ([f"fix: {diagnostic.fix.title}"] if diagnostic.fix else [])
    text = _text("\n".join(parts))
    if related:  # GitHub shows only related places that the message links to
        links = ", ".join(f"[{_link(other.message)}]({number})" for number, other in enumerate(related, 1))
        text += f"\nSee also: {links}"
    location = _location(diagnostic.path, diagnostic.range, root)
    location["physicalLocation"].setdefault("region", {"startLine": 1})  # GitHub hides results without a line
    result: Data = {
        "ruleId": diagnostic.code,
        "ruleIndex": -1,
        "level": LEVELS[diagnostic.severity],
        "message": {"text": text},
        "locations": [location],
        "partialFingerprints": {"dslint/v1": fingerprint},
        "properties": {
            "effect": diagnostic.effect.value,
            "phase": diagnostic.phase and diagnostic.phase.value,
            "pointer": diagnostic.pointer,
        },
    }
    if related:
        result["relatedLocations"] = [
            {"id": number, "message": {"text": _text(other.message)}, **_location(other.path, other.range, root)}
            for number, other in enumerate(related, 1)
        ]
    if diagnostic.fix and document and diagnostic.fix.edits and diagnostic.fix.applicability is not Applicability.DISPLAY:
        result["fixes"] = [_fix(diagnostic.fix, diagnostic.path, document, root)]
    if suppressed:
        why = {"justification": _text(suppressed.reason)} if suppressed.reason else {}
        result["suppressions"] = [
            {"kind": "inSource" if suppressed.by is SuppressedBy.COMMENT else "external", "status": "accepted", **why}
        ]
    return result


def _fix(fix: Fix, path: str, document: Document, root: str) -> Data:
    replacements = []
    for edit in fix.edits:
        start, end = (Place(*document.position(offset)) for offset in (edit.start, edit.end))
        replacements.append({"deletedRegion": _region(Range(start, end)), "insertedContent": {"text": edit.content}})
    return {
        "description": {"text": _text(fix.title)},
        "artifactChanges": [{"artifactLocation": artifact(path, root), "replacements": replacements}],
    }


def _location(path: str, of: Range | None, root: str) -> Data:
    file, cell = file_and_cell(path)
    place: Data = {"artifactLocation": artifact(file, root)}
    if cell:  # its lines are not those of the file
        name = f"{cell}, line {of.start.line}" if of is not None else cell
        return {"physicalLocation": place, "logicalLocations": [{"fullyQualifiedName": name}]}
    if of is not None:
        place["region"] = _region(of)
    return {"physicalLocation": place}


def _region(of: Range) -> Data:
    """A SARIF region: numbers start at 1, and the end is not before the start."""
    line, column = max(of.start.line, 1), max(of.start.column, 1)
    end_line, end_column = max((line, column), (of.end.line, of.end.column))
    return {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": max(end_column, 1)}


def artifact(path: str, root: str) -> dict[str, str]:
    """The location of a file: relative to the root of the repository if it is inside, else absolute."""
    inside = from_root(path, root)
    if inside is not None:
        return {"uri": _quoted(inside), "uriBaseId": "%SRCROOT%"}
    absolute = os.path.abspath(path).replace(os.sep, "/")  # noqa: PTH100 - pathlib is slow to import
    return {"uri": "file://" + ("" if absolute.startswith("/") else "/") + _quoted(absolute, keep="/:")}


def _quoted(path: str, keep: str = "/") -> str:
    """A path as part of a URI, with its bytes as on disk."""
    try:
        return quote(path, safe=keep, errors="surrogateescape")
    except UnicodeEncodeError:  # half a character, which no file name contains
        return quote(path, safe=keep, errors="backslashreplace")


def _rule(diagnostic: Diagnostic, rule: Rule | None) -> Data:
    """The description of a rule: its documentation, or its name if there is none."""
    summary = rule.summary if rule else diagnostic.name.replace("-", " ")
    paragraphs = _help(rule) if rule else [summary]
    effect, phase = (rule.effect, rule.phase) if rule else (diagnostic.effect, diagnostic.phase)
    level = LEVELS[rule.severity if rule else diagnostic.severity]
    described: Data = {
        "id": diagnostic.code,
        "name": clipped(diagnostic.name, 255),
        "shortDescription": {"text": clipped(_text(summary), DESCRIPTION) or diagnostic.code},
        "fullDescription": {"text": clipped(_text(_prose(rule) if rule else summary), DESCRIPTION) or diagnostic.code},
        "help": {"text": "\n\n".join(paragraphs) or diagnostic.code, "markdown": "\n\n".join(paragraphs) or diagnostic.code},
        "defaultConfiguration": {"level": level},
        "properties": {
            "tags": ["deepspeed", effect.value, *([phase.value] if phase else [])],
            "problem.severity": "recommendation" if level == "note" else level,
        },
    }
    if diagnostic.url and diagnostic.url.startswith("https://"):
        described["helpUri"] = quote(diagnostic.url, safe="/:?&=#%~+,;@", errors="replace")
    return described


def _prose(rule: Rule) -> str:
    """The documentation up to its second paragraph, the lines of each joined."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in rule.documentation.split("\n\n")[:2])


def _help(rule: Rule) -> list[str]:
    happens = consequence(rule.effect, rule.phase, code=rule.code)
    parts = [rule.documentation, happens and f"{happens}."]
    if rule.references:
        parts.append("References:\n\n" + "\n".join(f"- {reference}" for reference in rule.references))
    return [*(part for part in parts if part), f"Run `dslint rule {rule.code}` for examples."]


def _invocation(results: Results, left_out: int, root: str) -> Data:
    notifications: list[Data] = []
    if left_out:
        notifications.append(_notification("warning", "left-out", f"{count(left_out, 'finding')} omitted: GitHub accepts no more."))
    notifications += [notification for file in results.files for notification in _about_file(file, root)]
    if len(notifications) > NOTIFICATIONS:
        more = count(len(notifications) - NOTIFICATIONS + 1, "more notification")
        notifications[NOTIFICATIONS - 1 :] = [_notification("warning", "left-out", f"{more} omitted.")]
    configuration = [_notification("note", "skipped-rules", sentence) for sentence in skipped_rules(results)]
    configuration += [_notification("note", "inferred", sentence) for sentence in inferred_facts(results)]
    return {
        "executionSuccessful": all(file.error is None for file in results.files),
        "toolExecutionNotifications": notifications,
        "toolConfigurationNotifications": configuration,
    }


def _about_file(file: FileResult, root: str) -> Iterator[Data]:
    where = {"locations": [_location(file.path, None, root)]}
    if file.error is not None:
        yield _notification("error", "unreadable", file.error) | where
    if (note := note_of(file)) is not None:
        yield _notification("note", file.kind, note) | where
    for one in file.not_judged:
        yield _notification("warning", "not-judged", one.reason) | {"locations": [_location(one.path or file.path, one.range, root)]}


def _notification(level: str, kind: str, text: str) -> Data:
    return {"level": level, "descriptor": {"id": kind}, "message": {"text": _text(text)}}


def _text(text: str) -> str:
    """A text without links and without invisible characters."""
    return clipped(visible_lines(text).replace("](", "] ("), MESSAGE)


def _link(text: str) -> str:
    """A text, escaped for use as link text."""
    shown = clipped(visible(text), LINK) or "here"
    return "".join("\\" + letter if letter in "\\[]" else letter for letter in shown)
