"""The syntax tree that every parser builds, and in which places of findings are looked up.

All offsets are in code points of `Document.text`, half open: `text[span.start:span.end]` is the text of a node. The classes are plain and
slotted because a config has hundreds of nodes, and construction must be cheap.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from dslint.record import Record
from dslint.source.unknown import UnknownInConfig

Path: TypeAlias = tuple[str | int, ...]
"""Keys and list indices from the root to a node: `("zero_optimization", "stage")`."""


Where: TypeAlias = str | Path
"""A config path: dotted (`"zero_optimization.stage"`), or a tuple if a key contains a dot or a step is an index. `""` is the root."""


def path_of(where: Where) -> Path:
    """The tuple form of a config path."""
    return where if isinstance(where, tuple) else _steps(where)


@lru_cache(maxsize=1024)  # rules ask for the same paths of every config
def _steps(text: str) -> Path:
    return tuple(text.split(".")) if text else ()


def dotted(path: Path) -> str:
    """A config path as text: `zero_optimization.stage`."""
    return ".".join(map(str, path))


def pointer(path: Path) -> str:
    """A path as an RFC 6901 JSON pointer: `/zero_optimization/offload_param`."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


Value: TypeAlias = str | int | float | bool | UnknownInConfig | None
"""The value of a scalar; `UNKNOWN` if a program computes it."""


class Span(NamedTuple):
    """A half-open range of code-point offsets."""

    start: int
    end: int


class Position(NamedTuple):
    """A position: line and column start at 1, both in code points; `offset` starts at 0."""

    line: int
    column: int
    offset: int


class Scalar:
    """A string, number, boolean or null.

    `value` is what DeepSpeed's loader (hjson) reads; `raw` is the literal as written (`5e8`, `"auto"`), quotes included.
    `style` is one of "json" (strict JSON literal), "single" ('quoted'), "multiline" ('''quoted'''), "bare" (an HJSON unquoted
    string, which extends to the end of its line), "yaml", "computed" (by a program), "default" (what builds
    the config writes it where no argument sets it).
    """

    __slots__ = ("raw", "span", "style", "value")

    def __init__(self, span: Span, value: Value, raw: str, style: str = "json") -> None:
        self.span = span
        self.value = value
        self.raw = raw
        self.style = style


class Key:
    """The name of a member: `value` unquoted, `raw` as written, `span` with its quotes."""

    __slots__ = ("raw", "span", "value")

    def __init__(self, span: Span, value: str, raw: str) -> None:
        self.span = span
        self.value = value
        self.raw = raw


class Member:
    """One `key: value` of a mapping; `span` runs from the key's start to the value's end, without the comma."""

    __slots__ = ("key", "value")

    def __init__(self, key: Key, value: Node) -> None:
        self.key = key
        self.value = value

    @property
    def span(self) -> Span:
        return Span(self.key.span.start, self.value.span.end)


class ConditionalMember(Member):
    """A member that a program writes only under a condition which the run decides."""

    __slots__ = ()


class Mapping:
    """An object. `members` keeps every member in the order of the file, duplicates included.

    `span` includes the braces, if there are any: an HJSON root may have none. One that a program builds may have more members than
    are known.
    """

    __slots__ = ("_by_name", "_indexed", "may_have_more", "members", "span")

    def __init__(self, span: Span, members: list[Member], *, may_have_more: bool = False) -> None:
        self.span = span
        self.members = members
        self.may_have_more = may_have_more
        self._by_name: dict[str, Member] = {}
        self._indexed = 0

    def get(self, name: str) -> Member | None:
        """The effective member for `name`: the last one, as in `json` and `dict`."""
        for member in self.members[self._indexed :]:  # members are only ever added
            self._by_name[member.key.value] = member
        self._indexed = len(self.members)
        return self._by_name.get(name)


class Sequence:
    """A list."""

    __slots__ = ("items", "span")

    def __init__(self, span: Span, items: list[Node]) -> None:
        self.span = span
        self.items = items


Node: TypeAlias = Scalar | Mapping | Sequence


class Comment(Record):
    """A comment with its marks (`//`, `#`, `/* */`)."""

    span: Span
    text: str


class SyntaxProblem(Record):
    """A syntax error for DeepSpeed's loader. `kind` is a stable name, `message` says what was found and what was expected."""

    kind: str
    span: Span
    message: str


class Departure(Record):
    """Syntax that DeepSpeed's loader (hjson) accepts and strict JSON (Python's `json`) rejects or reads differently.

    `kind` is one of: "comment", "trailing-comma", "missing-comma", "bare-key", "bare-string", "single-quoted", "multiline-string",
    "no-root-braces", "bom", "empty", "not-a-number" (NaN and Infinity: a string to hjson, a float to json), "odd-literal" (an escape, a
    digit or a blank that json does not know).
    """

    kind: str
    span: Span


Places: TypeAlias = dict[Path, Path]
"""For a config inside a file, or built from it: paths of the config with their paths in the file."""


class BuiltFrom(Record):
    """The key of a file that corresponds to a key of the config built from it; `optional`: neither exists without the other."""

    path: Path
    optional: bool


class TextPart(Record):
    """One file of a joined text, or one cell of a notebook: the offset at which it begins, and its name."""

    start: int
    shown: str
    is_cell: bool = False


class Document:
    """A parsed file: the text, its tree, and what the parser noticed.

    `root` is None if no tree could be built. `problems` are what DeepSpeed's loader rejects,
    `departures` what only strict JSON loaders reject. The tree is complete if `problems` is empty.
    `language` is "json", "hjson", "yaml", "python", or "text" for a file without a tree. `places` is None if the root is that of the
    file; otherwise the document is a part of `whole` or was built from it, and `sources` are the corresponding keys of the file.
    `parts` are the files that the text is joined of, if there are several: positions are those in the file.
    """

    __slots__ = ("_line_starts", "comments", "departures", "language", "parts", "places", "problems", "root", "sources", "text", "whole")

    def __init__(
        self,
        text: str,
        root: Node | None,
        *,
        comments: list[Comment] | None = None,
        problems: list[SyntaxProblem] | None = None,
        departures: list[Departure] | None = None,
        language: str = "json",
        places: Places | None = None,
        whole: Document | None = None,
        sources: dict[Path, BuiltFrom] | None = None,
        parts: tuple[TextPart, ...] = (),
    ) -> None:
        self.text = text
        self.root = root
        self.comments = comments or []
        self.problems = problems or []
        self.departures = departures or []
        self.language = language
        self.places = places
        self.whole = whole
        self.sources = sources
        self.parts = parts
        self._line_starts: list[int] | None = None

    def with_root(self, root: Node) -> Document:
        """The same with another tree, such as one in which values are known that the file leaves open."""
        return Document(
            self.text,
            root,
            comments=self.comments,
            problems=self.problems,
            departures=self.departures,
            language=self.language,
            places=self.places,
            whole=self.whole,
            sources=self.sources,
            parts=self.parts,
        )

    def in_file(self, path: Path) -> Path:
        """The path in the file: it differs only if the document is a part of the file or was built from it (`places`)."""
        if self.places is None:
            return path
        for length in range(len(path), -1, -1):
            if path[:length] in self.places:
                return (*self.places[path[:length]], *path[length:])
        return path

    def position(self, offset: int) -> Position:
        """The line and column of an offset. LF, CRLF and a lone CR end a line; `offset` may equal `len(text)`."""
        starts = self._starts()
        line = bisect_right(starts, offset)
        part = self.part(offset)
        first = bisect_right(starts, part.start) if part else 1
        return Position(line - first + 1, offset - starts[line - 1] + 1, offset - (part.start if part else 0))

    def part(self, offset: int) -> TextPart | None:
        """The file of a joined text that an offset is in; None if the text is one file."""
        return next((part for part in reversed(self.parts) if part.start <= offset), None)

    def line(self, number: int) -> str:
        """The text of a line, 1-based, without its line end."""
        starts = self._starts()
        end = starts[number] if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r\n")

    def line_start(self, number: int) -> int:
        """The offset at which a line begins, 1-based."""
        return self._starts()[number - 1]

    @property
    def line_count(self) -> int:
        return len(self._starts())

    def _starts(self) -> list[int]:
        if self._line_starts is None:
            text = self.text
            starts = [0]
            index = 0
            for line in text.replace("\r\n", "\n\n").replace("\r", "\n").split("\n")[:-1]:
                index += len(line) + 1
                starts.append(index)
            # A CRLF became two line feeds: drop the empty line between them.
            self._line_starts = [s for s in starts if not (0 < s < len(text) and text[s] == "\n" and text[s - 1] == "\r")]
        return self._line_starts

    def lookup(self, path: Path) -> Member | Node | None:
        """The member (for a key) or node (for an index or the root) at `path`, or None."""
        here: Member | Node | None = self.root
        for step in path:
            node = here.value if isinstance(here, Member) else here
            if isinstance(step, str):
                here = node.get(step) if isinstance(node, Mapping) else None
            else:
                here = node.items[step] if isinstance(node, Sequence) and step < len(node.items) else None
            if here is None:
                return None
        return here


def plain(node: Node, *, as_json: bool = False) -> object:
    """The node as Python data; of duplicate keys the last one wins, as in DeepSpeed.

    With `as_json`, numbers are what Python's `json` reads: `1e3` is a float, which hjson reads as an integer.
    """
    if isinstance(node, Mapping):
        return {member.key.value: plain(member.value, as_json=as_json) for member in node.members}
    if isinstance(node, Sequence):
        return [plain(item, as_json=as_json) for item in node.items]
    return float(node.raw) if as_json and is_float_literal(node) else node.value


def is_float_literal(node: Node) -> bool:
    """Whether a node is a JSON literal like `1e3` or `2.0`, an integer to hjson and a float to Python's `json`."""
    return isinstance(node, Scalar) and node.style == "json" and type(node.value) is int and not node.raw.lstrip("-").isdigit()


def moved(node: Node, by: int) -> Node:
    """A tree with its places further behind."""
    span = Span(node.span.start + by, node.span.end + by)
    if isinstance(node, Mapping):
        return Mapping(span, [Member(_moved_key(member.key, by), moved(member.value, by)) for member in node.members])
    if isinstance(node, Sequence):
        return Sequence(span, [moved(item, by) for item in node.items])
    return Scalar(span, node.value, node.raw, node.style)


def _moved_key(key: Key, by: int) -> Key:
    return Key(Span(key.span.start + by, key.span.end + by), key.value, key.raw)
