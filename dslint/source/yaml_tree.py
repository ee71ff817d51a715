"""YAML text to the same tree as JSON: values as `yaml.safe_load` makes them, every node with its place in the text.

PyYAML composes the nodes; nothing of a document is constructed but numbers, booleans, nulls and strings. Anchors, aliases and merge keys
are followed, and shared, not copied: an alias that would grow without bounds is a problem, not memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dslint.source.tree import Comment, Document, Key, Mapping, Member, Node, Path, Scalar, Sequence, Span, SyntaxProblem, Value

if TYPE_CHECKING:
    from dslint.source.tree import Places

MAX_NODES = 100_000
"""How many nodes a document may have when every alias is written out."""

MAX_MERGES = 1_000
"""How many merge keys a document may have."""

_COMMENT = re.compile(r"(?:^|(?<=[\s\ufeff]))#[^\r\n\x85\u2028\u2029]*")


class _TooMuch(Exception):
    """The aliases of a document lead into themselves, or to more than anybody means."""


def parse_yaml(text: str, places: Places | None = None) -> Document:
    """The tree of a YAML text; of several documents the first. Never raises.

    `problems` are what `yaml.safe_load` refuses: syntax, unknown tags and anchors, a second document.
    """
    import yaml

    problems: list[SyntaxProblem] = []
    comments: list[Comment] = []
    root: Node | None = None
    try:
        composed = _compose(text)
        if composed:
            reader = _Reader(text, problems)
            root = reader.read(composed[0])
            comments = _comments(text, reader.scalars)
        if len(composed) > 1:
            start = composed[1].start_mark.index
            problems.append(
                SyntaxProblem("several-documents", Span(start, start + 1), "a second document begins here; a config is a single one")
            )
    except yaml.MarkedYAMLError as error:
        problems.append(_problem(text, error))
    except yaml.reader.ReaderError as error:
        start = min(error.position, len(text))
        problems.append(SyntaxProblem("character", Span(start, min(start + 1, len(text))), "YAML does not allow this character"))
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        problems.append(SyntaxProblem("syntax", Span(0, min(1, len(text))), f"YAML cannot be read here: {error}"))
    except RecursionError:
        root, problems = None, [SyntaxProblem("too-deep", Span(0, min(1, len(text))), "the text is nested too deeply")]
    except _TooMuch as error:
        root, problems = None, [SyntaxProblem("alias", Span(0, min(1, len(text))), str(error))]
    return Document(text, root, comments=comments, problems=problems, language="yaml", places=places)


def _problem(text: str, error: Any) -> SyntaxProblem:
    mark = error.problem_mark or error.context_mark
    start = min(mark.index if mark else 0, len(text))
    end = min(start + 1, len(text))
    words = " ".join(str(part) for part in (error.context, error.problem) if part)
    if "'\\t'" in words:
        words = "a tab cannot indent YAML; write blanks"
    return SyntaxProblem("syntax", Span(start, end), f"YAML cannot be read here: {words}" if "tab" not in words[:5] else words)


class _Alias:
    """An alias where it stands: the node it names, and its own marks."""

    def __init__(self, node: Any, start_mark: Any, end_mark: Any) -> None:
        self.node = node
        self.start_mark = start_mark
        self.end_mark = end_mark


def _compose(text: str) -> list[Any]:
    """The first two documents of a text, as nodes."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()  # type: ignore[no-untyped-call]
            node = super().compose_node(parent, index)
            return _Alias(node, event.start_mark, event.end_mark) if isinstance(event, yaml.AliasEvent) else node

    loader = Loader(text)
    try:
        found: list[Any] = []
        while len(found) < 2 and loader.check_node():
            found.append(loader.get_node())
        return found
    finally:
        loader.dispose()


class _Reader:
    """Makes the tree of composed nodes. `scalars` are the spans of all scalars in the text."""

    def __init__(self, text: str, problems: list[SyntaxProblem]) -> None:
        import yaml

        self.text = text
        self.problems = problems
        self.scalars: list[Span] = []
        self._known: dict[int, tuple[Node, int]] = {}
        self._open: set[int] = set()
        self._constructor = yaml.constructor.SafeConstructor()
        self._yaml = yaml
        self._merges = 0

    def read(self, composed: Any) -> Node:
        """The tree below a node."""
        node, size = self._node(composed)
        if size > MAX_NODES:
            raise _TooMuch(f"with every alias written out the text has more than {MAX_NODES:,} nodes")
        return node

    def _node(self, composed: Any) -> tuple[Node, int]:
        """A node, and how many it stands for."""
        if isinstance(composed, _Alias):
            return self._alias(composed)
        known = self._known.get(id(composed))
        if known is not None:
            return known
        if id(composed) in self._open:
            raise _TooMuch("an alias leads into itself")
        self._open.add(id(composed))
        made = self._known[id(composed)] = self._make(composed)
        self._open.discard(id(composed))
        return made

    def _alias(self, alias: _Alias) -> tuple[Node, int]:
        node, size = self._node(alias.node)
        span = Span(alias.start_mark.index, alias.end_mark.index)
        if isinstance(node, Mapping):
            return Mapping(span, node.members), size
        if isinstance(node, Sequence):
            return Sequence(span, node.items), size
        return Scalar(span, node.value, self.text[slice(*span)], "yaml"), size

    def _make(self, composed: Any) -> tuple[Node, int]:
        start, end = composed.start_mark.index, composed.end_mark.index
        if isinstance(composed, self._yaml.ScalarNode):
            span = Span(start, end)
            self.scalars.append(span)
            return Scalar(span, self._value(composed), self.text[start:end], "yaml"), 1
        if not composed.tag.startswith("tag:yaml.org,2002:"):
            self._tag(composed)
        if isinstance(composed, self._yaml.SequenceNode):
            read = [self._node(item) for item in composed.value]
            items = [node for node, _ in read]
            # A block ends, for PyYAML, where the next token begins.
            end = end if composed.flow_style else max([start, *(item.span.end for item in items)])
            return Sequence(Span(start, end), items), 1 + sum(size for _, size in read)
        members, size = self._members(composed)
        end = end if composed.flow_style else max([start, *(member.value.span.end for member in members if member.key.span.start >= start)])
        return Mapping(Span(start, end), members), 1 + size

    def _members(self, composed: Any) -> tuple[list[Member], int]:
        own: list[Member] = []
        merged: list[Member] = []
        total = 0
        for key, value in composed.value:
            named = key.node if isinstance(key, _Alias) else key
            node, size = self._node(value)
            total += size + 1
            if total > MAX_NODES:
                raise _TooMuch(f"with every alias written out the text has more than {MAX_NODES:,} nodes")
            if isinstance(named, self._yaml.ScalarNode) and named.tag == "tag:yaml.org,2002:merge":
                self.scalars.append(Span(key.start_mark.index, key.end_mark.index))
                merged = [*self._merged(node, key), *merged]
                continue
            read, _ = self._node(key)
            if not isinstance(read, Scalar):
                span = Span(key.start_mark.index, key.end_mark.index)
                self.problems.append(SyntaxProblem("key", span, "a list or a mapping cannot be a key"))
                continue
            own.append(Member(Key(read.span, _name(read.value), read.raw), node))
        written = {member.key.value for member in own}
        last = {member.key.value: member for member in merged}
        return [*(member for name, member in last.items() if name not in written), *own], total

    def _merged(self, node: Node, key: Any) -> Iterable[Member]:
        """The members that a merge key brings; of a list of mappings the first counts most."""
        self._merges += 1
        if self._merges > MAX_MERGES:
            raise _TooMuch(f"the text has more than {MAX_MERGES:,} merge keys")
        sources = node.items if isinstance(node, Sequence) else [node]
        if not all(isinstance(source, Mapping) for source in sources):
            self.problems.append(SyntaxProblem("merge", Span(key.start_mark.index, key.end_mark.index), "a merge key wants a mapping"))
        return [member for source in reversed(sources) if isinstance(source, Mapping) for member in source.members]

    def _value(self, composed: Any) -> Value:
        """The value of a scalar as `yaml.safe_load` makes it; a date stays the text that it is written as."""
        kind = composed.tag.removeprefix("tag:yaml.org,2002:")
        text: str = composed.value
        if kind in ("bool", "int", "float", "null"):
            try:
                value = self._constructor.construct_object(composed)
            except (ValueError, KeyError, IndexError, self._yaml.YAMLError):
                span = Span(composed.start_mark.index, composed.end_mark.index)
                self.problems.append(SyntaxProblem("scalar", span, f"this is no {kind}"))
                return text
            return value if isinstance(value, bool | int | float) or value is None else text
        if kind not in ("str", "timestamp", "binary", "merge", "value"):
            self._tag(composed)
        return text

    def _tag(self, composed: Any) -> None:
        start = composed.start_mark.index
        message = f"the tag {composed.tag} is not one that a safe loader knows"
        self.problems.append(SyntaxProblem("tag", Span(start, max(composed.end_mark.index, start)), message))


def _name(value: Value) -> str:
    """A key as JSON would have it."""
    return value if isinstance(value, str) else "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _comments(text: str, scalars: list[Span]) -> list[Comment]:
    """The comments, which are what stands behind a number sign outside of all scalars."""
    found: list[Comment] = []
    position = 0
    for start, end in [*sorted(scalars), Span(len(text), len(text))]:
        if start > position:
            for match in _COMMENT.finditer(text, position, start):
                found.append(Comment(Span(*match.span()), match[0].rstrip()))  # noqa: PERF401 - a comprehension over two loops reads worse
        position = max(position, end)
    return [Comment(Span(c.span.start, c.span.start + len(c.text)), c.text) for c in found]


def below(document: Document, path: Path) -> Document | None:
    """The mapping at a path as a document of its own, with its places in the same text; None where there is none.

    Comments and problems come along, and so does the language. `Document.places` says where in the file a path of it is.
    """
    found = document.lookup(path)
    node = found.value if isinstance(found, Member) else found
    if not isinstance(node, Mapping):
        return None
    return Document(
        document.text,
        node,
        comments=document.comments,
        problems=document.problems,
        language=document.language,
        places={(): document.in_file(path)},
        whole=document,
    )
