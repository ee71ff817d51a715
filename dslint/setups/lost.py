"""Arguments that bash does not pass, because the command ends before them although a backslash seems to continue it."""

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


def lost_arguments(launched: Launched) -> SourcedValue | None:
    """The first flag behind the end of a command that a backslash seems to continue; its value says what ends the command."""
    if not launched.words or not launched.words[-1]:
        return None
    last = launched.words[-1]
    source, span = place_of(last)
    text = source.document.text
    if (known(last) or "x").isspace():
        found, why = _BLANK.match(text, span.end), "a blank behind the backslash"
    elif comment := _COMMENT.match(text, span.end):
        found, why = comment, "a comment line"
    else:
        found, why = _EMPTY_LINE.match(text, span.end), "an empty line"
    if found is None:
        return None
    at = Span(*found.span("flag"))
    return SourcedValue(why, found["flag"], found["flag"], source.shown, range_of(source.document, at))
