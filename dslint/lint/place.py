"""Findings speak in config paths; here they get the lines and columns of a text, and their fixes become edits."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from collections.abc import Mapping as Table
from itertools import accumulate

from dslint.diagnostics import Applicability, Diagnostic, Edit, Effect, Fix, Range, Related, severity_of
from dslint.project import rule_url
from dslint.rule import Finding, FixPlan, RuleInfo
from dslint.source.change import Replace
from dslint.source.ranges import range_of
from dslint.source.tree import ConditionalMember, Document, Mapping, Member, Node, Path, Span, path_of, pointer


def place(
    rule: RuleInfo,
    finding: Finding,
    document: Document,
    shown: str,
    others: Table[str, Document] | None = None,
    order: int | None = None,
) -> Diagnostic:
    """Place a finding in the text: that of the config, or of another file of its setup."""
    path = path_of(finding.at)
    effect = finding.effect or rule.effect
    span = finding.span or locate(document, path, finding.on)
    certain = finding.certain and not (document.language == "python" and _is_conditional(document, path))
    of_finding = document if finding.elsewhere is None else (others or {}).get(finding.elsewhere.path)
    elsewhere = finding.elsewhere or Related(_file(document, span, shown), "", pointer(document.in_file(path)), _range(document, span))
    return Diagnostic(
        elsewhere.path,
        rule.code,
        rule.name,
        severity_of(effect, certain=certain, costly=finding.costly),
        effect,
        (finding.phase or rule.phase) if effect is Effect.CRASH else None,
        finding.message,
        finding.help,
        url=rule_url(rule.code) if rule.is_builtin else None,
        pointer=elsewhere.pointer,
        range=elsewhere.range,
        related=tuple(one if isinstance(one, Related) else _related(*one, document, shown) for one in finding.related),
        fix=_fix(finding.fix, of_finding) if finding.fix and of_finding is not None else None,
        certain=certain,
        cause=finding.cause,
        pedantic=finding.pedantic,
        order=order,
        rests_on_config=finding.rests_on_config,
        harms_with_config=finding.harms_with_config,
    )


def _is_conditional(document: Document, path: Path) -> bool:
    """Whether a program writes the key at a path, or a section around it, only under a condition that the run decides."""
    return any(isinstance(document.lookup(path[:length]), ConditionalMember) for length in range(1, len(path) + 1))


def _fix(repair: FixPlan, document: Document) -> Fix | None:
    """The edits that make a repair; None where they cannot be made to this text."""
    from dslint.source.edit import CannotChange, edits_for

    if document.problems and not all(isinstance(change, Replace) for change in repair.changes):
        return None  # the tree is a guess; only the text itself can be corrected
    title, changes = repair.title, repair.changes
    try:
        if document.whole is not None:
            from dslint.source.whole import title_of, to_whole

            changes = tuple(to_whole(document, changes))
            title = title if document.sources is None else ", ".join(title_of(change) for change in changes)
        edits = edits_for(document.whole or document, changes)
    except CannotChange:
        return None
    if document.parts and not all(_can_edit(document, offset) for start, end, _ in edits for offset in (start, end)):
        return None
    applicability = repair.applicability
    if applicability is Applicability.SAFE and _drops_comment(document.whole or document, edits):
        applicability = Applicability.UNSAFE
    return Fix(title, applicability, tuple(Edit(*edit) for edit in _with_line_ends_of((document.whole or document).text, edits)))


def _drops_comment(document: Document, edits: list[tuple[int, int, str]]) -> bool:
    """Whether a comment is in the text that edits replace, and in none of the texts that they write.

    HJSON reads `0 None // note` as one string; for its writer the end of it is a comment.
    """
    written = [content for _, _, content in edits]
    for start, end, _ in edits:
        if any(mark[0].strip() not in "".join(written) for mark in _MARKS.finditer(document.text, start, end) if mark["comment"]):
            return True
        for comment in document.comments[bisect_left(document.comments, start, key=lambda comment: comment.span.end) :]:
            if comment.span.start >= end:
                break
            if comment.span.end > start and not any(comment.text in content for content in written):
                return True
    return False


_MARKS = re.compile(r"""(?P<comment>(?://|/\*|\#)[^\r\n]*)|"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*'""")
"""What looks like a comment, and what may contain something that looks like one."""


def _with_line_ends_of(text: str, edits: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """The edits with the line ends of the text, if all of it has Windows' line ends."""
    if "\r\n" not in text or text.count("\n") != text.count("\r\n"):
        return edits
    return [(start, end, content.replace("\r\n", "\n").replace("\n", "\r\n")) for start, end, content in edits]


def _can_edit(document: Document, offset: int) -> bool:
    """Whether a text of several files may be edited at an offset: only the program itself, and no notebook."""
    part = document.part(offset)
    return part is not None and part == document.parts[0] and not part.is_cell


def _related(where: str | Path | Span, message: str, document: Document, shown: str) -> Related:
    if isinstance(where, Span):
        return Related(_file(document, where, shown), message, range=range_of(document, where))
    path = path_of(where)
    span = locate(document, path, "member")
    return Related(_file(document, span, shown), message, pointer(document.in_file(path)), _range(document, span))


def _file(document: Document, span: Span | None, shown: str) -> str:
    """The file that a stretch of a document is in: one of the files of a program, or else the file of the document."""
    part = document.part(span.start) if span is not None else None
    return part.shown if part is not None else shown


def locate(document: Document, path: Path, on: str) -> Span | None:
    """The stretch of text to underline for a path, or for its nearest ancestor that is in the file. None in an empty document."""
    found: Member | Node | None = None
    while (found := document.lookup(path)) is None and path:
        path = path[:-1]
        on = "member"
    if found is None:
        return None
    if not isinstance(found, Member):
        return _opening(found)
    if on == "key" or (on == "member" and not _is_flat(found.value)):
        return found.key.span
    return found.span if on == "member" else _opening(found.value)


def _is_flat(node: Node) -> bool:
    return not isinstance(node, Mapping) and "\n" not in getattr(node, "raw", "")


def _opening(node: Node) -> Span:
    """The node's own span; of a section only the brace that opens it."""
    return Span(node.span.start, min(node.span.start + 1, node.span.end)) if isinstance(node, Mapping) else node.span


def _range(document: Document, span: Span | None) -> Range | None:
    return None if span is None else range_of(document, span)


def by_place(diagnostic: Diagnostic) -> tuple[int, int, str]:
    """The order of findings in a file: by place, at one place the most severe first."""
    return (diagnostic.range.start.offset, -diagnostic.severity.rank, diagnostic.code) if diagnostic.range else (-1, 0, diagnostic.code)


def outside_broken_text(diagnostics: Iterable[Diagnostic], document: Document, shown: str) -> list[Diagnostic]:
    """The diagnostics without those that overlap a syntax error of their file `shown`: one cause gives one finding."""
    if not document.problems:
        return list(diagnostics)
    spans = sorted({problem.span for problem in document.problems})
    ends = list(accumulate((span.end for span in spans), max))

    def is_broken(diagnostic: Diagnostic) -> bool:
        if diagnostic.range is None or diagnostic.path != shown:
            return False
        start, end = diagnostic.range.start.offset, diagnostic.range.end.offset
        before = bisect_left(spans, (end,))  # the errors that begin before it ends
        exact = bisect_left(spans, (start, end))
        is_error = exact < len(spans) and spans[exact] == (start, end)
        return not is_error and before > 0 and ends[before - 1] > start

    return [diagnostic for diagnostic in diagnostics if not is_broken(diagnostic)]
