"""The default format: each finding with its lines, what DeepSpeed does and what to write instead; a summary at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from dslint.diagnostics import Applicability, Diagnostic, Range, Severity
from dslint.lint.results import FileResult, Results
from dslint.report.excerpt import Mark, bar, draw, line_of, sections
from dslint.report.style import Style, paragraphs, visible, wrap
from dslint.report.words import (
    COLORS,
    consequence_of,
    fixable,
    hidden,
    inferred_facts,
    inferred_facts_in_short,
    reasons,
    skipped_rules,
    verdict,
)
from dslint.source.tree import Document

_FIXES = {Applicability.SAFE: " (--fix)", Applicability.UNSAFE: " (--unsafe-fixes)", Applicability.DISPLAY: ""}


def write(results: Results, out: TextIO, style: Style) -> None:
    """Write findings and summary; only the findings if the run is quiet."""
    documents = {file.path: file.document for file in results.files if file.document is not None}
    blocks = [block for file in results.files for block in _file(file, documents, style)]
    if not results.quiet:
        blocks.append(list(_summary(results, style)))
    out.write("\n".join("\n".join(block) + "\n" for block in blocks))


def _file(file: FileResult, documents: dict[str, Document], style: Style) -> Iterator[list[str]]:
    if file.error is not None:
        yield _about_file(file.path, file.error, Severity.ERROR, style)
    if file.note is not None:
        yield _about_file(file.path, file.note, Severity.INFO, style)
    for diagnostic in file.diagnostics:
        yield _diagnostic(diagnostic, documents, style)


def _about_file(path: str, sentence: str, severity: Severity, style: Style) -> list[str]:
    head, *rest = paragraphs(f"{severity.value}: {visible(path)}: {sentence}", style.width)
    return [style.paint(head[: len(severity.value)], COLORS[severity], "bold") + head[len(severity.value) :], *rest]


def _diagnostic(diagnostic: Diagnostic, documents: dict[str, Document], style: Style) -> list[str]:
    color = COLORS[diagnostic.severity]
    head = style.paint(f"{diagnostic.severity.value}[{diagnostic.code}]", color, "bold")
    lines = [f"{head} {style.paint(visible(diagnostic.name), 'bold')}", *paragraphs(diagnostic.message, style.width)]
    marks = _marks(diagnostic, documents)
    gutter = max((len(str(line_of(documents[path], mark))) for path, of_file in marks.items() for mark in of_file), default=1)
    lines.append(_arrow("-->", diagnostic.path, diagnostic.range, gutter, style))
    for path, of_file in marks.items():
        document = documents[path]
        if path != diagnostic.path:
            lines.append(_arrow(":::", path, of_file[0].range, gutter, style))
        lines.append(bar(gutter, style))
        lines += draw(document, of_file, _context(document, diagnostic, of_file), gutter, style)
    if marks:
        lines.append(bar(gutter, style))
    for label, text in _remarks(diagnostic, marks):
        lines += _remark(label, text, gutter, style)
    return lines


def _arrow(sign: str, path: str, place: Range | None, gutter: int, style: Style) -> str:
    return f"{'':>{gutter}}{style.paint(sign, 'blue', 'bold')} {visible(path)}{_place(place)}"


def _place(of: Range | None) -> str:
    return f":{of.start.line}:{of.start.column}" if of else ""


def _marks(diagnostic: Diagnostic, documents: dict[str, Document]) -> dict[str, list[Mark]]:
    """What is underlined in which file: the finding's own first, then the related places."""
    marks: dict[str, list[Mark]] = {}
    if diagnostic.range is not None and diagnostic.path in documents:
        marks[diagnostic.path] = [Mark(diagnostic.range, "", COLORS[diagnostic.severity], primary=True)]
    for related in diagnostic.related:
        if related.range is not None and related.path in documents:
            marks.setdefault(related.path, []).append(Mark(related.range, related.message, "blue"))
    return marks


def _context(document: Document, diagnostic: Diagnostic, marks: list[Mark]) -> Iterator[int]:
    """Extra lines of context: where the sections of the marks open; for a syntax error the line before it."""
    for mark in marks:
        yield from sections(document, mark.range.start.offset)
    if marks[0].primary and not diagnostic.pointer:
        yield line_of(document, marks[0]) - 1


def _remarks(diagnostic: Diagnostic, marks: dict[str, list[Mark]]) -> Iterator[tuple[str, str]]:
    for related in diagnostic.related:
        if related.range is None or related.path not in marks:
            elsewhere = related.range is not None or related.path != diagnostic.path
            yield "note", (f"{related.path}{_place(related.range)}: " if elsewhere else "") + related.message
    consequence = consequence_of(diagnostic)
    if consequence:
        yield "effect", consequence
    if diagnostic.help:
        yield "help", diagnostic.help
    if diagnostic.fix:
        yield "fix", diagnostic.fix.title + _FIXES[diagnostic.fix.applicability]
    if diagnostic.url:
        yield "see", diagnostic.url


def _remark(label: str, text: str, gutter: int, style: Style) -> list[str]:
    indent = gutter + 3
    head, *rest = paragraphs(f"{label}: {text}", max(style.width - indent, 20))
    sign = f"{'':>{gutter}} {style.paint('=', 'blue', 'bold')} "
    named = style.paint(head[: len(label) + 1], "bold") + head[len(label) + 1 :]
    return [sign + named, *(" " * indent + part for part in rest)]


def _summary(results: Results, style: Style) -> Iterator[str]:
    yield from (style.paint(line, "bold") for line in wrap(verdict(results), style.width))
    for sentence in (fixable(results), hidden(results)):
        yield from wrap(sentence, style.width) if sentence else ()
    explained = next((diagnostic.code for diagnostic in results.diagnostics if diagnostic.name != "internal-error"), None)
    if explained:
        yield f"To explain a finding: dslint rule {explained}"
    for sentence in reasons(results) if results.verbose else ():
        yield from paragraphs(visible(sentence), style.width)
    inferred = inferred_facts(results) if results.verbose else inferred_facts_in_short(results)
    for sentence in (*inferred, *skipped_rules(results)):
        yield from paragraphs(sentence, style.width)
