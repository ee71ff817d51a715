"""YAML text to the same tree as JSON: values as read by `yaml.safe_load`, every node with its place in the text.

PyYAML composes the nodes; only numbers, booleans, nulls and strings are constructed. Anchors, aliases and merge keys are followed and
shared, not copied: an alias that would grow without bounds is reported as a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dslint.source.store import store
from dslint.source.tree import Comment, Document, Key, Mapping, Member, Node, Path, Scalar, Sequence, Span, SyntaxProblem, Value

if TYPE_CHECKING:
    from dslint.source.tree import Places

MAX_NODES = 100_000
"""The most nodes of a document with all aliases expanded."""

MAX_MERGES = 1_000
"""The most merge keys of a document."""

MAX_DEPTH = 200
"""The deepest node. PyYAML looks at all open brackets for each token."""

_COMMENT = re.compile(r"(?:^|(?<=[\s\ufeff]))#[^\r\n\x85\u2028\u2029]*")


class _TooMuch(Exception):
    """The aliases of a document are recursive, or expand to too many nodes."""


def parse_yaml(text: str, places: Places | None = None) -> Document:
    """The tree of the first document of a YAML text, which all readers of a run share. Never raises.

    `problems` are what `yaml.safe_load` rejects: syntax, unknown tags and anchors, a second document.
    """
    if places is not None:
        return _document(text, places)
    return store().parsed(("yaml", text), lambda: _document(text, None))


def _document(text: str, places: Places | None) -> Document:
    import yaml

    problems: list[SyntaxProblem] = []
    comments: list[Comment] = []
    root: Node | None = None
    try:
        composed = _compose(text)
        if composed:
            reader = _NodeReader(text, problems)
            root = reader.read(composed[0])
            comments = _comments(text, reader.scalars)
        if len(composed) > 1:
            start = composed[1].start_mark.index
            problems.append(
                SyntaxProblem(
                    "several-documents", Span(start, start + 1), "a second document begins here; a config must be a single document"
                )
            )
    except yaml.MarkedYAMLError as error:
        problems.append(_problem(text, error))
    except yaml.reader.ReaderError as error:
        start = min(error.position, len(text))
        problems.append(SyntaxProblem("character", Span(start, min(start + 1, len(text))), "YAML does not allow this character"))
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        problems.append(SyntaxProblem("syntax", Span(0, min(1, len(text))), f"invalid YAML: {error}"))
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
        words = "a tab cannot indent YAML; use spaces"
    return SyntaxProblem("syntax", Span(start, end), f"invalid YAML: {words}" if "tab" not in words[:5] else words)


class _Alias:
    """An alias: the node that it refers to, and its own place."""

    def __init__(self, node: Any, start_mark: Any, end_mark: Any) -> None:
        self.node = node
        self.start_mark = start_mark
        self.end_mark = end_mark


def _compose(text: str) -> list[Any]:
    """The first two documents of a text, as nodes."""
    import yaml

    class Loader(yaml.SafeLoader):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise RecursionError
            event = self.peek_event()  # type: ignore[no-untyped-call]
            node = super().compose_node(parent, index)
            self.depth -= 1
            return _Alias(node, event.start_mark, event.end_mark) if isinstance(event, yaml.AliasEvent) else node

    loader = Loader(text)
    try:
        found: list[Any] = []
        while len(found) < 2 and loader.check_node():
            found.append(loader.get_node())
        return found
    finally:
        loader.dispose()


class _NodeReader:
    """Builds the tree from composed nodes. `scalars` are the spans of all scalars in the text."""

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
            raise _TooMuch(f"with all aliases expanded the text has more than {MAX_NODES:,} nodes")
        return node

    def _node(self, composed: Any) -> tuple[Node, int]:
        """A node, and its number of nodes with aliases expanded."""
        if isinstance(composed, _Alias):
            return self._alias(composed)
        known = self._known.get(id(composed))
        if known is not None:
            return known
        if id(composed) in self._open:
            raise _TooMuch("recursive alias")
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
            # For PyYAML, a block ends where the next token begins.
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
                raise _TooMuch(f"with all aliases expanded the text has more than {MAX_NODES:,} nodes")
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
        """The members that a merge key includes; of a list of mappings the first one wins."""
        self._merges += 1
        if self._merges > MAX_MERGES:
            raise _TooMuch(f"the text has more than {MAX_MERGES:,} merge keys")
        sources = node.items if isinstance(node, Sequence) else [node]
        if not all(isinstance(source, Mapping) for source in sources):
            self.problems.append(SyntaxProblem("merge", Span(key.start_mark.index, key.end_mark.index), "a merge key requires a mapping"))
        return [member for source in reversed(sources) if isinstance(source, Mapping) for member in source.members]

    def _value(self, composed: Any) -> Value:
        """The value of a scalar as read by `yaml.safe_load`; a date stays text."""
        kind = composed.tag.removeprefix("tag:yaml.org,2002:")
        text: str = composed.value
        if kind in ("bool", "int", "float", "null"):
            try:
                value = self._constructor.construct_object(composed)
            except (ValueError, KeyError, IndexError, self._yaml.YAMLError):
                span = Span(composed.start_mark.index, composed.end_mark.index)
                self.problems.append(SyntaxProblem("scalar", span, f"this is not a valid {kind}"))
                return text
            return value if isinstance(value, bool | int | float) or value is None else text
        if kind not in ("str", "timestamp", "binary", "merge", "value"):
            self._tag(composed)
        return text

    def _tag(self, composed: Any) -> None:
        start = composed.start_mark.index
        message = f"unknown tag {composed.tag} for a safe loader"
        self.problems.append(SyntaxProblem("tag", Span(start, max(composed.end_mark.index, start)), message))


def _name(value: Value) -> str:
    """A key as in JSON."""
    return value if isinstance(value, str) else "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _comments(text: str, scalars: list[Span]) -> list[Comment]:
    """The comments: text after a number sign outside of scalars."""
    found: list[Comment] = []
    position = 0
    for start, end in [*sorted(scalars), Span(len(text), len(text))]:
        if start > position:
            for match in _COMMENT.finditer(text, position, start):
                found.append(Comment(Span(*match.span()), match[0].rstrip()))  # noqa: PERF401 - a comprehension over two loops reads worse
        position = max(position, end)
    return [Comment(Span(c.span.start, c.span.start + len(c.text)), c.text) for c in found]


def below(document: Document, path: Path) -> Document | None:
    """The mapping at a path as a separate document, with places in the same text; None if there is none.

    It has the comments, problems and language of the file. `Document.places` maps its paths to those of the file.
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
        whole=document.whole or document,
    )
