"""Arguments that bash does not pass, because the command ends before them although they are meant to continue it."""

from __future__ import annotations

import re

from dslint.evaluate.shell.pieces import known, place_of
from dslint.evaluate.shell.state import Launched
from dslint.job.arguments import SourcedValue
from dslint.source.ranges import range_of
from dslint.source.tree import Span

_FLAG = r"\n[ \t]*(?P<flag>--?[A-Za-z][\w-]*)"

_COMMENT = re.compile(rf"""["']?[ \t]*\\(\n[ \t]*#[^\n]*)+{_FLAG}""")
_EMPTY_LINE = re.compile(rf"""["']?[ \t]*\\\n[ \t]*{_FLAG}""")
_BLANK = re.compile(rf"[ \t]*{_FLAG}")
"""Behind a word that is the escaped blank itself."""


_NEXT_LINE = re.compile(r"""["']?[ \t]*\n[ \t]*(?P<flag>--[A-Za-z][\w-]*)(?=[\s=\\]|$)""")
"""A line that begins with a flag; in a `case`, `--flag)` begins a branch."""


def lost_arguments(launched: Launched) -> SourcedValue | None:
    """The first flag behind the end of a command that goes over several lines; its value says what ends the command."""
    if not launched.words or not launched.words[-1]:
        return None
    last = launched.words[-1]
    source, span = place_of(last)
    text = source.document.text
    if (known(last) or "x").isspace():
        found, why = _BLANK.match(text, span.end), "a blank behind the backslash"
    elif comment := _COMMENT.match(text, span.end):
        found, why = comment, "a comment line"
    elif empty := _EMPTY_LINE.match(text, span.end):
        found, why = empty, "an empty line"
    elif _continues_a_line(text, span.start):
        found, why = _NEXT_LINE.match(text, span.end), "a missing backslash"
    else:
        return None
    if found is None:
        return None
    at = Span(*found.span("flag"))
    return SourcedValue(why, found["flag"], found["flag"], source.shown, range_of(source.document, at))


def _continues_a_line(text: str, offset: int) -> bool:
    """Whether a backslash ends the line before the one of an offset."""
    return text[: text.rfind("\n", 0, offset) + 1].endswith("\\\n")
