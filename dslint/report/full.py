"""The default format: each finding with its lines, what DeepSpeed does and what to write instead; a summary at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from dslint.diagnostics import Applicability, Diagnostic, Range, Severity
from dslint.lint.group import same_in_many
from dslint.lint.results import FileResult, Results
from dslint.report.excerpt import Mark, bar, draw, line_of, sections
from dslint.report.style import Style, paragraphs, printable, visible, wrap
from dslint.report.words import (
    COLORS,
    by_text,
    consequence_of,
    count,
    first_reasons,
    fixable,
    hidden,
    in_short,
    inferred_facts,
    listed,
    location,
    more,
    note_of,
    page_of,
    reasons,
    skipped_rules,
    verdict,
)
from dslint.source.tree import Document

PLACES = 3
"""How many of the other places of a finding in many files are named."""

DRAWN = 20
"""How many of the related places of a finding are drawn."""

_FIXES = {Applicability.SAFE: " (--fix)", Applicability.UNSAFE: " (--unsafe-fixes)", Applicability.DISPLAY: ""}


def write(results: Results, out: TextIO, style: Style) -> None:
    """Write findings and summary; only the findings if the run is quiet."""
    documents = {file.path: file.document for file in results.files if file.document is not None}
    same = same_in_many(results.printed) if results.group else {}
    shown_before = {other for others in same.values() for other in others}
    blocks: list[list[str]] = []
    if not results.quiet and (notes := _notes(results, style)):
        blocks.append(notes)
    for file in results.printed:
        blocks += _unreadable(file, style)
        blocks += [_diagnostic(d, documents, same.get(d, ()), style) for d in file.diagnostics if d not in shown_before]
    if not results.quiet:
        blocks.append(list(_summary(results, style)))
    out.write(printable("\n".join("\n".join(block) + "\n" for block in blocks), color=style.color))


def _unreadable(file: FileResult, style: Style) -> Iterator[list[str]]:
    """Why a file could not be read."""
    if file.error is not None:
        head, *rest = paragraphs(f"error: {visible(file.path)}: {file.error}", style.width)
        yield [style.paint("error", COLORS[Severity.ERROR], "bold") + head.removeprefix("error"), *rest]


def _notes(results: Results, style: Style) -> list[str]:
    """What is said of files as a whole, one text for all files that it is said of. It does not look like a finding; why a file was not
    checked stands in the summary.
    """
    said = [(file.path, note) for file in results.printed if (note := note_of(file))]
    if not results.verbose and sum(file.note is not None for file in results.files) > 1:
        return []
    return [line for note, paths in by_text(said).items() for line in paragraphs(visible(f"{', '.join(paths)}: {note}"), style.width)]


def _diagnostic(diagnostic: Diagnostic, documents: dict[str, Document], others: tuple[Diagnostic, ...], style: Style) -> list[str]:
    color = COLORS[diagnostic.severity]
    head = style.link(style.paint(f"{diagnostic.severity.value}[{diagnostic.code}]", color, "bold"), page_of(diagnostic))
    lines = [f"{head} {style.paint(visible(diagnostic.name), 'bold')}", *paragraphs(diagnostic.message, style.width)]
    gutter, excerpt = excerpts(diagnostic, documents, style)
    lines += excerpt
    for label, text in remarks(diagnostic, documents):
        lines += _remark(label, text, gutter, style)
    if others:
        lines += _remark("also", _in_others(diagnostic, others), gutter, style)
    return lines


def excerpts(diagnostic: Diagnostic, documents: dict[str, Document], style: Style) -> tuple[int, list[str]]:
    """The lines of a finding and of its related places, underlined, below the name of their file; and the columns of the line numbers."""
    marks = _marks(diagnostic, documents)
    gutter = max((len(str(line_of(documents[path], mark))) for path, of_file in marks.items() for mark in of_file), default=1)
    lines = [_arrow("-->", diagnostic.path, diagnostic.range, gutter, style)]
    for path, of_file in marks.items():
        document = documents[path]
        if path != diagnostic.path:
            lines.append(_arrow(":::", path, of_file[0].range, gutter, style))
        lines.append(bar(gutter, style))
        lines += draw(document, of_file, _context(document, diagnostic, of_file), gutter, style)
    if marks:
        lines.append(bar(gutter, style))
    return gutter, lines


def _in_others(diagnostic: Diagnostic, others: tuple[Diagnostic, ...]) -> str:
    """In how many files a finding stands, or at how many places of one, and where else; or how often at its place."""
    if all((other.path, other.range) == (diagnostic.path, diagnostic.range) for other in others):
        return f"{count(len(others), 'more finding')} here, with other numbers or names (--no-group shows all)"
    files = len({diagnostic.path, *(other.path for other in others)})
    places = [one for one in dict.fromkeys(map(location, others)) if one != location(diagnostic)]
    more = len(places) - PLACES
    named = listed([*places[:PLACES], *([f"{count(more, 'more place')} (--no-group shows all)"] if more > 0 else [])])
    return f"{diagnostic.code} {f'in {files} files' if files > 1 else f'at {len(places) + 1} places'}: {named}"


def _arrow(sign: str, path: str, place: Range | None, gutter: int, style: Style) -> str:
    return f"{'':>{gutter}}{style.paint(sign, 'blue', 'bold')} {visible(path)}{_line_and_column(place)}"


def _line_and_column(of: Range | None) -> str:
    return f":{of.start.line}:{of.start.column}" if of else ""


def _marks(diagnostic: Diagnostic, documents: dict[str, Document]) -> dict[str, list[Mark]]:
    """What is underlined in which file: the finding's own first, then the related places."""
    marks: dict[str, list[Mark]] = {}
    if diagnostic.range is not None and diagnostic.path in documents:
        marks[diagnostic.path] = [Mark(diagnostic.range, "", COLORS[diagnostic.severity], primary=True)]
    for related in diagnostic.related[:DRAWN]:
        if related.range is not None and related.path in documents:
            marks.setdefault(related.path, []).append(Mark(related.range, related.message, "blue"))
    return marks


def _context(document: Document, diagnostic: Diagnostic, marks: list[Mark]) -> Iterator[int]:
    """Extra lines of context: where the sections of the marks open; for a syntax error the line before it."""
    for mark in marks:
        yield from sections(document, mark.range.start.offset)
    if marks[0].primary and not diagnostic.pointer:
        yield line_of(document, marks[0]) - 1


def remarks(diagnostic: Diagnostic, documents: dict[str, Document]) -> Iterator[tuple[str, str]]:
    """What is said of a finding below its excerpt: a label and a text each."""
    marks = _marks(diagnostic, documents)
    for related in diagnostic.related[:DRAWN]:
        if related.range is None or related.path not in marks:
            elsewhere = related.range is not None or related.path != diagnostic.path
            yield "note", (f"{related.path}{_line_and_column(related.range)}: " if elsewhere else "") + related.message
    if len(diagnostic.related) > DRAWN:
        yield "note", f"{len(diagnostic.related) - DRAWN:,} more places are not shown here; --output-format json lists all"
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
    short = "" if results.verbose or not any(file.is_judged for file in results.files) else in_short(results)
    short = more(results, short or None)
    clean = not results.diagnostics
    first = f"{verdict(results)} {short}" if clean and short else verdict(results)
    yield from (style.paint(line, "bold") for line in wrap(first, style.width))
    for sentence in (fixable(results), hidden(results)):
        yield from wrap(sentence, style.width) if sentence else ()
    worst = max((d for d in results.diagnostics if d.name != "internal-error"), key=lambda d: d.severity.rank, default=None)
    if worst is not None:
        yield f"To explain a finding: dslint rule {worst.code}"
    if short and not clean:
        yield from wrap(short, style.width)
    for sentence in reasons(results) if results.verbose else first_reasons(results):
        yield from paragraphs(visible(sentence), style.width)
    if results.verbose:
        for sentence in (*inferred_facts(results), *skipped_rules(results)):
            yield from paragraphs(sentence, style.width)
