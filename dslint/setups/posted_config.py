"""Configs in a text that people post: in a block of Markdown, or between the lines of a question.

Nothing moves: places are those in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config.context import Context
from dslint.config.detect import FileKind, detect_kind
from dslint.job.model import Setup
from dslint.not_judged import NotJudged, Why
from dslint.setups.gather import LoadedSetup, Read, settle
from dslint.source.parse import parse
from dslint.source.ranges import range_of
from dslint.source.tree import Document, Mapping, Node, Span

_LONGEST_POST = 65_536
"""Characters. GitHub takes no longer text."""

_OPENS = re.compile(r"^[ \t]*\{", re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_CLOSES = re.compile(r"^[ \t]*[}\],]+[ \t]*$", re.MULTILINE)
"""A line with nothing but closing brackets."""

_DOTS = re.compile(r"(?:,\s*|^[ \t]*)(?P<dots>\.{3}|\u2026)[ \t]*,?[ \t]*$", re.MULTILINE)
"""A line of dots, with the comma before it, which has no member behind it otherwise."""

_WORD = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}]')
"""A string, in which braces do not count, or a brace."""


def read_posted(text: str, shown: str, given: Context) -> Read | None:
    """The configs in a text that is not one itself; None if it has none."""
    if len(text) > _LONGEST_POST or min((one.span.start for one in parse(text).problems), default=len(text)) >= text.index("{"):
        return None  # what stands above the first brace is a comment
    whole = Document(text, None, language="text")
    setups, lines, not_judged = [], [], []
    for start, end in _blocks(text):
        parsed = parse(_only(text, start, end))
        if not isinstance(parsed.root, Mapping) or detect_kind(parsed, named=False)[0] is not FileKind.DS_CONFIG:
            continue
        dots = [start + one.start("dots") for one in _DOTS.finditer(text[start:end])]
        if dots:
            _leave_open(parsed.root, dots)
            not_judged.append(NotJudged(Why.DOTS, (), range_of(whole, Span(dots[0], dots[0] + 1))))
        config = Document(
            text,
            parsed.root,
            comments=parsed.comments,
            problems=parsed.problems,
            departures=parsed.departures,
            language="text",
            places={},
            whole=whole,
            sources={},
        )
        found = LoadedSetup(Setup(config=shown), given, config, {shown: whole}, kinds={shown: FileKind.DS_CONFIG})
        setups.append(settle(found))
        lines.append(f"{text.count(chr(10), 0, start) + 1} to {text.count(chr(10), 0, end) + 1}")
    if not setups:
        return None
    what = "a config" if len(setups) == 1 else f"{len(setups)} configs"
    return Read(
        FileKind.DS_CONFIG, whole, setups, f"a text with {what} in the lines {' and '.join(lines)}; nothing else in it is read.", not_judged
    )


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """What stands between an opening brace at the start of a line and its closing one, or the end of its block or of the text."""
    behind = 0
    for opens in _OPENS.finditer(text):
        start = opens.end() - 1
        if start < behind:
            continue
        depth, end = 0, None
        for word in _WORD.finditer(text, start):
            depth += {"{": 1, "}": -1}.get(word[0], 0)
            if depth == 0:
                end = word.end()
                break
        fence = _FENCE.search(text, start)
        limit = fence.start() if fence is not None else len(text)
        if end is None or end > limit:  # a brace is missing
            end = max((one.end() for one in _CLOSES.finditer(text, start, limit)), default=limit)
        behind = end
        yield start, end


def _only(text: str, start: int, end: int) -> str:
    """The text with nothing but a part of it, at its place, and without dots for what is left out."""
    return _blank(text[:start]) + _DOTS.sub(lambda found: _blank(found[0]), text[start:end])


def _blank(text: str) -> str:
    return "".join(one if one in "\r\n" else " " for one in text)


def _leave_open(root: Mapping, dots: list[int]) -> None:
    """Mark the sections in which dots stand: they may have more keys."""
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            node.may_have_more |= any(node.span.start <= one < node.span.end for one in dots)
            waiting += [one.value for one in node.members]
