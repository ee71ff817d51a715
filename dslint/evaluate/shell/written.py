"""Configs that a script writes, such as by a here-document: their tree, with places in the script."""

from __future__ import annotations

from bisect import bisect_right

from dslint.evaluate.shell.pieces import ShellSource, Text
from dslint.source.parse import parse
from dslint.source.tree import Document, Key, Mapping, Member, Node, Scalar, Sequence, Span, SyntaxProblem
from dslint.source.unknown import UNKNOWN
from dslint.source.yaml_tree import parse_yaml

_NUMBER = "719719719"
"""Stands for an unknown number while the text is parsed."""

_WORD = "\ue001"
"""Stands for an unknown part of a string while the text is parsed."""


def written_config(text: Text) -> tuple[ShellSource, Document] | None:
    """The document of a config written in a file, and the file that its places refer to. None for a text that is not a JSON object."""
    if not text:
        return None
    source = _main(text)
    parts: list[str] = []
    starts: list[int] = []
    length = 0
    quoted = False
    for piece in text:
        part = piece.text if piece.text is not None else _WORD if quoted else _NUMBER
        if piece.text is not None:
            quoted ^= part.replace('\\"', "").count('"') % 2 == 1
        starts.append(length)
        parts.append(part)
        length += len(part)
    parsed = parse("".join(parts))
    if not isinstance(parsed.root, Mapping):
        return None
    places = _Places(text, starts, source)
    problems = [SyntaxProblem(problem.kind, places.span(problem.span), problem.message) for problem in parsed.problems]
    document = in_script(source.document, _moved(parsed.root, places), problems)
    return source, document


def written_yaml(text: Text) -> tuple[ShellSource, Document] | None:
    """The tree of a YAML file that a script writes, with places in the script, and the file that its places refer to.

    None for a text that is not a mapping. What the shell fills in is unknown.
    """
    if not text:
        return None
    source = _main(text)
    parts = [piece.text if piece.text is not None else _WORD for piece in text]
    starts = [sum(map(len, parts[:index])) for index in range(len(parts))]
    parsed = parse_yaml("".join(parts))
    if parsed.problems or not isinstance(parsed.root, Mapping):
        return None
    return source, in_script(source.document, _moved(parsed.root, _Places(text, starts, source)))


def in_script(script: Document, root: Node, problems: list[SyntaxProblem] | None = None) -> Document:
    """A config that a script makes, with places in the script. It has no fixes: what stands at a place is not always JSON."""
    return Document(script.text, root, comments=script.comments, problems=problems, language="text", places={}, whole=script, sources={})


def _main(text: Text) -> ShellSource:
    """The file that most of a text is written in."""
    lengths: dict[str, int] = {}
    for piece in text:
        lengths[piece.source.shown] = lengths.get(piece.source.shown, 0) + len(piece.text or "")
    name = max(lengths, key=lambda shown: lengths[shown])
    return next(piece.source for piece in text if piece.source.shown == name)


class _Places:
    """Where the characters of a text are in the file."""

    def __init__(self, text: Text, starts: list[int], source: ShellSource) -> None:
        self.text = text
        self.starts = starts
        self.source = source

    def span(self, span: Span) -> Span:
        start = self._at(span.start, end=False)
        return Span(start, max(self._at(max(span.end - 1, span.start), end=True), start))

    def _at(self, offset: int, *, end: bool) -> int:
        index = max(bisect_right(self.starts, offset) - 1, 0)
        piece = self.text[index]
        if piece.source is not self.source:  # a value from another file: its place is where it is used
            while index and self.text[index].source is not self.source:
                index -= 1
            return self.text[index].span.end
        if not piece.exact:
            return piece.span.end if end else piece.span.start
        return piece.span.start + offset - self.starts[index] + (1 if end else 0)


def _moved(node: Node, places: _Places) -> Node:
    span = places.span(node.span)
    if isinstance(node, Mapping):
        members = []
        for member in node.members:
            key = Key(places.span(member.key.span), member.key.value, member.key.raw)
            members.append(Member(key, _moved(member.value, places)))
        return Mapping(span, members)
    if isinstance(node, Sequence):
        return Sequence(span, [_moved(item, places) for item in node.items])
    unknown = _NUMBER in node.raw or _WORD in node.raw
    return Scalar(span, UNKNOWN if unknown else node.value, node.raw, node.style)
