"""Which ignore comments cover which findings. A file may have thousands of both, so none is compared with all of the others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from dslint.diagnostics import Diagnostic
from dslint.source.ignores import Ignore
from dslint.source.tree import Span, pointer


class CoveringComments:
    """The comments with one word for one place: the first of their reasons, its number in the file, and whether a finding is there."""

    __slots__ = ("number", "reason", "used")

    def __init__(self) -> None:
        self.number: int | None = None
        self.reason: str | None = None
        self.used = False


class Cover:
    """The ignore comments of a file, by the rule that they name and the place that they cover."""

    def __init__(self, ignores: Iterable[Ignore]) -> None:
        self._of_words: dict[str, _OfWord] = {}
        self._scopes: dict[tuple[Ignore, str], CoveringComments] = {}
        for number, ignore in enumerate(ignores):
            for word in ignore.words:
                of_word = self._of_words.setdefault(word.lower(), _OfWord())
                scope = self._scopes[ignore, word] = of_word.scope_for(ignore)
                if ignore.reason and scope.number is None:
                    scope.number, scope.reason = number, ignore.reason

    def use(self, diagnostic: Diagnostic) -> tuple[bool, str | None]:
        """Whether a comment covers a finding, and the first reason that one gives. The comments that cover it are used now."""
        words = {diagnostic.code.lower(), diagnostic.name.lower()}
        covering = [scope for word in words if word in self._of_words for scope in self._of_words[word].covering(diagnostic)]
        for scope in covering:
            scope.used = True
        reasons = [(scope.number, scope.reason) for scope in covering if scope.number is not None]
        return bool(covering), min(reasons)[1] if reasons else None

    def is_used(self, ignore: Ignore, word: str) -> bool:
        """Whether a word of a comment suppressed a finding so far."""
        return self._scopes[ignore, word].used


class _OfWord:
    """The comments with one word, by place: the whole file, a line, or a part of the tree. `None` is for a comment without a place."""

    def __init__(self) -> None:
        self._file: CoveringComments | None = None
        self._lines: dict[int, CoveringComments] = {}
        self._pointers: dict[str, CoveringComments] = {}
        self._spans: dict[Span, CoveringComments] = {}
        self._sorted: tuple[list[int], _Spans] | None = None

    def scope_for(self, ignore: Ignore) -> CoveringComments:
        """The scope of a comment. It is not used where nothing is below the comment."""
        self._sorted = None
        if ignore.line is not None:
            return self._lines.setdefault(ignore.line, CoveringComments())
        if ignore.path is not None:
            scope = self._pointers.setdefault(pointer(ignore.path), CoveringComments())
            if ignore.inside is not None:
                self._spans.setdefault(ignore.inside, scope)
            return scope
        if ignore.nothing:
            return CoveringComments()
        self._file = self._file or CoveringComments()
        return self._file

    def covering(self, diagnostic: Diagnostic) -> Iterator[CoveringComments]:
        """The scopes that a finding is in."""
        if self._sorted is None:
            self._sorted = sorted(self._lines), _Spans(self._spans)
        lines, spans = self._sorted
        if self._file is not None:
            yield self._file
        if self._pointers and diagnostic.pointer is not None:
            yield from (self._pointers[above] for above in _upwards(diagnostic.pointer) if above in self._pointers)
        where = diagnostic.range
        if where is not None:
            within = lines[bisect_left(lines, where.start.line) : bisect_right(lines, where.end.line)]
            yield from (self._lines[line] for line in within)
            yield from (self._spans[span] for span in spans.around(where.start.offset))


def _upwards(pointer: str) -> Iterator[str]:
    """A JSON pointer and those above it. That of the whole document is above all but itself: a finding there has no place of its own."""
    while pointer:
        yield pointer
        pointer = pointer.rpartition("/")[0]
        if not pointer:
            yield ""


class _Spans:
    """Spans of a tree, each inside of another one or apart from it."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans = sorted(spans, key=lambda span: (span.start, -span.end))
        self._starts = [span.start for span in self._spans]
        self._outer: list[int | None] = []
        open_ones: list[int] = []
        for index, span in enumerate(self._spans):
            while open_ones and self._spans[open_ones[-1]].end <= span.start:
                open_ones.pop()
            self._outer.append(open_ones[-1] if open_ones else None)
            open_ones.append(index)

    def around(self, offset: int) -> Iterator[Span]:
        """The spans that an offset is in."""
        index: int | None = bisect_right(self._starts, offset) - 1
        while index is not None and index >= 0:
            if offset < self._spans[index].end:
                yield self._spans[index]
            index = self._outer[index]
