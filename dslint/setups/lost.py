"""Arguments and variables that bash does not pass, because the command ends before them, or begins behind them."""

from __future__ import annotations

import os
import re

from dslint.evaluate.shell.pieces import known, place_of
from dslint.evaluate.shell.state import Launched
from dslint.job.arguments import SourcedValue
from dslint.job.model import Ending
from dslint.record import Record
from dslint.setups.names import is_makefile
from dslint.source.ranges import range_of
from dslint.source.tree import Span

_MEANT = r"""(?P<flag>--?[A-Za-z][\w-]*|[^\s#;&|<>(){}"'$=]+\.(?:py|ya?ml|json)(?=\s|$))"""
"""What continues a command: a flag, a program or a file for it."""

_COMMENT = re.compile(rf"""["']?[ \t]*(?:\\\n[ \t]*|(?<=[ \t])(?=#[^\n]*\\\n))(?P<end>#[^\n]*)(?:\n[ \t]*#[^\n]*)*\n[ \t]*{_MEANT}""")
"""A comment line behind a backslash, or a comment that a backslash ends: bash reads it as a part of the comment."""
_EMPTY_LINE = re.compile(rf"""["']?[ \t]*(?P<end>\\)\n[ \t]*\n[ \t]*{_MEANT}""")
_BLANK = re.compile(r"[ \t]*(?:#[^\n]*|\r?)\n[ \t]*(?P<flag>[-$][^\s#;&|<>()]+|[^\s#;&|<>(){}]+\.py)(?=\s|$)")
"""Behind a word that is the escaped blank itself: a flag, a variable or a program in the next line was meant to continue the command. Any
other word can be a command of its own.
"""


_NEXT_LINE = re.compile(r"""["']?[ \t]*\n[ \t]*(?P<flag>--[A-Za-z][\w-]*)(?=[\s=\\]|$)""")
"""A line that begins with a flag; in a `case`, `--flag)` begins a branch."""


_RETURN = re.compile(r"(?P<end>\\)\r\n[ \t]*(?P<flag>[^\s\\]+)")
"""A backslash before a Windows line end. dslint reads over it, as it was meant."""

_KEEPS_RETURNS = os.sep == "/"
"""Whether a script has the line ends that bash gets. On Windows Git writes files with other ones than it has (`core.autocrlf`)."""


class LostArguments(Record):
    """The arguments of a command that goes over several lines, and ends before them.

    `first` is the first of them, with what ends the command as its value and place. bash reads a command of its own at `begin`, which is as
    `begin_of` gives it; `flags` are the names of those in it.
    """

    first: SourcedValue
    begin: tuple[str, int]
    flags: frozenset[str]


def lost_arguments(launched: Launched) -> LostArguments | None:
    """The arguments that bash does not pass to a command."""
    if not launched.words or not launched.words[-1]:
        return None
    last = launched.words[-1]
    source, span = place_of(last)
    text = source.document.text
    found: re.Match[str] | None
    if returned := _ended_by_return(launched):
        found, ending = returned, Ending.RETURN
    elif text[span.start : span.start + 1].isspace():
        found = _BLANK.match(text, span.end)
        is_comment = found is not None and "#" in found[0]
        ending = Ending.WORDS if "#" in text[slice(*span)] else Ending.COMMENT_BEHIND if is_comment else Ending.BLANK
    elif comment := _COMMENT.match(text, span.end):
        found, ending = comment, Ending.COMMENT_LINE
    elif empty := _EMPTY_LINE.match(text, span.end):
        found, ending = empty, Ending.EMPTY_LINE
    elif _continues_a_line(text, span.start):
        found, ending = _NEXT_LINE.match(text, span.end), Ending.NO_BACKSLASH
    else:
        return None
    if found is None or (ending is not Ending.COMMENT_LINE and _is_escaped(launched)):
        return None
    at = Span(*found.span("end")) if "end" in found.re.groupindex else span
    first = SourcedValue(ending, found["flag"], found["flag"], source.shown, range_of(source.document, at))
    rest = _REST.match(text, found.start("flag"))
    return LostArguments(first, (source.shown, found.start("flag")), _flags_in(rest[0] if rest is not None else ""))


def _is_escaped(launched: Launched) -> bool:
    """Whether a command stands behind `!` in a cell of a notebook: Python refuses the cell for the lines that are left over."""
    source, span = place_of(next(word for word in launched.words if word))
    text = source.document.text
    line = text[text.rfind("\n", 0, span.start) + 1 : span.start]
    return ".ipynb" in source.shown and line.lstrip().startswith("!")


def _ended_by_return(launched: Launched) -> re.Match[str] | None:
    """The first backslash in a command whose line ends with a carriage return: it quotes that, and the line ends the command."""
    first = next((word for word in launched.words if word), None)
    if first is None:
        return None
    (source, begin), (other, end) = place_of(first), place_of(launched.words[-1])
    same = source.shown == other.shown and _keeps_returns(source.shown)
    return _RETURN.search(source.document.text, begin.start, end.end) if same else None


def _keeps_returns(shown: str) -> bool:
    """Whether bash gets the carriage returns of a file. make, YAML and notebooks take them for a part of the line end."""
    return _KEEPS_RETURNS and not is_makefile(shown) and not shown.lower().endswith((".yaml", ".yml", ".ipynb"))


def with_return(launched: Launched) -> SourcedValue | None:
    """The last argument of a command, if bash passes the carriage return of a Windows line end as a part of it."""
    last = launched.words[-1] if launched.words else ()
    if not last:
        return None
    source, span = place_of(last)
    text = source.document.text
    word = known(last)
    if word is None or not _keeps_returns(source.shown) or not re.match(r"""["']?\r\n""", text[span.end : span.end + 3]):
        return None
    return SourcedValue(word, "", text[slice(*span)], source.shown, range_of(source.document, span))


def begin_of(launched: Launched) -> tuple[str, int] | None:
    """The shown name of the script in which a command begins, and its offset there."""
    first = next((word for word in launched.words if word), None)
    if first is None:
        return None
    source, span = place_of(first)
    return source.shown, span.start


_REST = re.compile(r"(?:[^\n]*\\\r?\n)*[^\n]*")
_NAME = re.compile(r"(?<!\S)--?([A-Za-z][\w-]*)")


def _flags_in(text: str) -> frozenset[str]:
    return frozenset(name.replace("-", "_") for name in _NAME.findall(text))


def unexported(launched: Launched, names: tuple[str, ...], text: str) -> SourcedValue | None:
    """The first of the variables that a command reads which the script, with its text, sets only for itself.

    A variable that the script uses is meant for itself.
    """
    for name in names:
        value = launched.unexported.get(name)
        if not value or name in launched.environment or re.search(rf"\$\{{?{name}\b", text):
            continue
        source, span = place_of(value)
        raw = source.document.text[slice(*span)]
        return SourcedValue(known(value) or raw, name, raw, source.shown, range_of(source.document, span))
    return None


def _continues_a_line(text: str, offset: int) -> bool:
    """Whether a backslash ends the line before the one of an offset."""
    return text[: text.rfind("\n", 0, offset) + 1].endswith("\\\n")
