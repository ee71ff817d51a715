"""Comments in a file that suppress findings.

    // dslint: ignore[offload-param-below-stage-3] the stage is raised later     at the end of a line: for that line
    // dslint: ignore[DS501, DS502] reason                                       on its own line: for the member below and everything in it
    // dslint: ignore-file[DS002] reason                                         anywhere: for the whole file

Rules must be named.
"""

from __future__ import annotations

import re

from dslint.diagnostics import Diagnostic
from dslint.record import Record
from dslint.source.tree import Comment, Document, Mapping, Member, Node, Path, Scalar, Span, pointer

MARK = r"(?s)(?://|#|/\*)[\s*]*+dslint\s*+:(?P<rest>.*)"
FORM = r"(?s)(?P<verb>ignore|ignore-file)\s*\[(?P<rules>[^\[\]]*+)\](?P<reason>.*)"


class Ignore(Record):
    """A suppression comment, well-formed or not.

    `words` are codes and names of rules. The comment covers findings on `line`, or else at and below `path`, or else (both None) in the
    whole file; with `nothing`, it covers nothing because there is no member below. `problem` describes a malformed comment.
    """

    comment: Comment
    words: tuple[str, ...] = ()
    reason: str = ""
    line: int | None = None
    path: Path | None = None
    inside: Span | None = None
    nothing: bool = False
    problem: str | None = None

    def covers(self, diagnostic: Diagnostic) -> bool:
        """Whether the comment covers the place of a finding."""
        where = diagnostic.range
        if self.line is not None:
            return where is not None and where.start.line <= self.line <= where.end.line
        if self.path is None:
            return not self.nothing
        above = pointer(self.path)
        if diagnostic.pointer and (diagnostic.pointer + "/").startswith(above + "/"):
            return True
        return where is not None and self.inside is not None and self.inside.start <= where.start.offset < self.inside.end


def ignores_of(document: Document) -> list[Ignore]:
    """The dslint comments of a file, in their order."""
    found = ((comment, re.fullmatch(MARK, comment.text)) for comment in document.comments)
    return [_ignore(document, comment, match["rest"].rstrip().removesuffix("*/").strip()) for comment, match in found if match]


def _ignore(document: Document, comment: Comment, rest: str) -> Ignore:
    form = re.fullmatch(FORM, rest)
    if form is None:
        return Ignore(comment, nothing=True, problem=_misformed(rest))
    words = tuple(word.strip() for word in form["rules"].split(",") if word.strip())
    if not words:
        return Ignore(comment, nothing=True, problem=f'"{form["verb"]}[]" names no rule')
    reason = " ".join(form["reason"].split())
    if form["verb"] == "ignore-file":
        return Ignore(comment, words, reason)
    if not _is_on_own_line(document, comment.span):
        return Ignore(comment, words, reason, line=document.position(comment.span.start).line)
    path, node = _below(document, comment.span)
    if node is None:
        return Ignore(comment, words, reason, nothing=True)
    return Ignore(comment, words, reason, path=path, inside=node.span)


def _misformed(rest: str) -> str:
    if re.match(r"ignore(-file)?\b", rest):
        return "no rules in brackets; dslint cannot ignore all rules at once"
    return f'unknown dslint directive "{rest.split(maxsplit=1)[0] if rest else ""}"'


def _is_on_own_line(document: Document, span: Span) -> bool:
    """Whether the lines of a comment contain only comments."""
    others = [comment.span for comment in document.comments]
    before = document.text[: span.start].rpartition("\n")[2].rpartition("\r")[2]
    after = re.match(r"[^\r\n]*", document.text[span.end :])
    assert after is not None
    blank = "\ufeff \t"
    behind_another = any(other.end <= span.start and not document.text[other.end : span.start].strip(blank) for other in others)
    return (behind_another or not before.strip(blank)) and (not after[0].strip(blank) or after[0].lstrip().startswith(("//", "#", "/*")))


def _below(document: Document, comment: Span) -> tuple[Path, Member | Node | None]:
    """The first member or item after a comment, in the section of the comment."""
    path: Path = ()
    node = document.root
    if node is not None and comment.end <= node.span.start and document.text[node.span.start : node.span.start + 1] in "{[":
        return (), node
    while node is not None and not isinstance(node, Scalar):
        children = ((m.key.value, m) for m in node.members) if isinstance(node, Mapping) else enumerate(node.items)
        after = next(((step, child) for step, child in children if child.span.end > comment.start), None)
        if after is None:
            return path, None
        step, child = after
        path = (*path, step)
        if child.span.start >= comment.end:
            return path, child
        node = child.value if isinstance(child, Member) else child
    return path, None


class IgnoreUse(Record):
    """What became of an ignore comment: its words that suppressed nothing, and a sentence on a word that names no rule.

    `renamed` are its words that are former names, each with the name that the rule has now.
    """

    ignore: Ignore
    unused: tuple[str, ...] = ()
    unknown: str | None = None
    renamed: tuple[tuple[str, str], ...] = ()


class IgnoreComments(Record):
    """A file and its ignore comments: what a rule that watches "ignores" checks."""

    document: Document
    uses: tuple[IgnoreUse, ...]
