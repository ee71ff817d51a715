"""Comments in a file that suppress findings.

    // dslint: ignore[offload-param-below-stage-3] the stage is raised later     at the end of a line: for that line
    // dslint: ignore[DS501, DS502] reason                                       on its own line: for the member below and everything in it
    // dslint: ignore-file[DS002] reason                                         anywhere: for the whole file

Rules must be named.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

from dslint.record import Record
from dslint.source.tree import Comment, Document, Mapping, Member, Node, Path, Scalar, Span

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


def ignores_of(document: Document) -> list[Ignore]:
    """The dslint comments of a file, in their order."""
    found: list[Ignore] = []
    sections: Sections = {}
    before = 0
    for comment in document.comments:
        match = re.fullmatch(MARK, comment.text)
        if match:
            rest = match["rest"].rstrip().removesuffix("*/").strip()
            found.append(_ignore(document, comment, rest, before, sections))
        before = comment.span.end
    return found


def _ignore(document: Document, comment: Comment, rest: str, before: int, sections: Sections) -> Ignore:
    """The comment, read. `before` is where the comment before it ends; `sections` is filled with what several comments need."""
    form = re.fullmatch(FORM, rest)
    if form is None:
        return Ignore(comment, nothing=True, problem=_misformed(rest))
    words = tuple(word.strip() for word in form["rules"].split(",") if word.strip())
    if not words:
        return Ignore(comment, nothing=True, problem=f'"{form["verb"]}[]" names no rule')
    reason = " ".join(form["reason"].split())
    if form["verb"] == "ignore-file":
        return Ignore(comment, words, reason)
    if not _is_on_own_line(document.text, comment.span, before):
        return Ignore(comment, words, reason, line=document.position(comment.span.start).line)
    path, node = _below(document, comment.span, sections)
    if node is None:
        return Ignore(comment, words, reason, nothing=True)
    return Ignore(comment, words, reason, path=path, inside=node.span)


def _misformed(rest: str) -> str:
    if re.match(r"ignore(-file)?\b", rest):
        return "no rules in brackets; dslint cannot ignore all rules at once"
    return f'unknown dslint directive "{rest.split(maxsplit=1)[0] if rest else ""}"'


_BLANKS = r"[ \t\ufeff]*"


def _is_on_own_line(text: str, span: Span, before: int) -> bool:
    """Whether the lines of a comment contain only comments. `before` is where the comment before it ends."""
    start = max(before, text.rfind("\n", before, span.start) + 1, text.rfind("\r", before, span.start) + 1)
    if re.compile(_BLANKS).fullmatch(text, start, span.start) is None:
        return False
    return re.compile(_BLANKS + r"(?:[\r\n]|$(?!\n)|//|#|/\*)").match(text, span.end) is not None


Sections: TypeAlias = dict[int, list[int]]
"""By the id of a section: for each of its members or items, the furthest end of it and those before it."""


def _below(document: Document, comment: Span, sections: Sections) -> tuple[Path, Member | Node | None]:
    """The first member or item after a comment, in the section of the comment."""
    path: Path = ()
    node = document.root
    if node is not None and comment.end <= node.span.start and document.text[node.span.start : node.span.start + 1] in "{[":
        return (), node
    while node is not None and not isinstance(node, Scalar):
        children: Sequence[Member | Node] = node.members if isinstance(node, Mapping) else node.items
        ends = sections.get(id(node))
        if ends is None:
            ends = sections[id(node)] = list(accumulate((child.span.end for child in children), max))
        index = bisect_right(ends, comment.start)
        if index == len(children):
            return path, None
        child = children[index]
        path = (*path, child.key.value if isinstance(child, Member) else index)
        if child.span.start >= comment.end:
            return path, child
        node = child.value if isinstance(child, Member) else child
    return path, None


class IgnoreUse(Record):
    """What became of an ignore comment: its words that suppressed nothing, and a sentence on a word that names no rule."""

    ignore: Ignore
    unused: tuple[str, ...] = ()
    unknown: str | None = None


class IgnoreComments(Record):
    """A file and its ignore comments: what a rule that watches "ignores" checks."""

    document: Document
    uses: tuple[IgnoreUse, ...]
