"""The words of a command and the variables of its environment, with their places."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from dslint.diagnostics import Range
from dslint.evaluate.shell.pieces import Text, TextPiece, key, known, place_of
from dslint.evaluate.shell.state import Launched
from dslint.job.arguments import SourcedValue
from dslint.source.ranges import range_of
from dslint.source.unknown import UNKNOWN


class CommandWord(NamedTuple):
    """A word of a command: its text, None if it is only known at run time; how messages show it; and its place.

    `written` is the text of the file that the word names, if the script has written that file.
    """

    text: str | None
    raw: str
    path: str
    range: Range
    written: Text | None = None
    loose: bool = False
    """Whether the word is unknown as a whole, and could be any number of arguments."""
    parts: Text = ()


def words_of(launched: Launched) -> list[CommandWord]:
    """The words of a command."""
    return [word_of(text, launched) for text in launched.words if text]


def word_of(text: Text, launched: Launched) -> CommandWord:
    """One word of a command."""
    source, span = place_of(text)
    characters = known(text)
    raw = characters if characters is not None else "".join(_raw(piece) for piece in text)
    loose = len(text) == 1 and text[0].text is None
    name = os.path.normpath(key(text))
    return CommandWord(characters, raw, source.shown, range_of(source.document, span), launched.files.get(name), loose, text)


def is_redirect(word: CommandWord) -> bool:
    """Whether a word redirects. One that the script quotes, or that a variable holds, is an argument."""
    text = word.text if word.text is not None else word.raw
    if text not in ("2>&1", "&>", "&>>") and re.match(r"(\d|&)?>|<", text) is None:
        return False
    first = word.parts[0] if word.parts else None
    before = first.source.document.text[max(first.span.start - 1, 0) : first.span.start] if first is not None else ""
    return first is None or (first.exact and before not in ("'", '"'))


def without_first(text: Text, characters: int) -> Text:
    """A text without its first characters, which are known."""
    found: list[TextPiece] = []
    for piece in text:
        length = len(piece.text or "")
        if characters < length:
            found.append(piece.part(characters, length) if characters else piece)
        elif piece.text is None and not characters:
            found.append(piece)
        characters = max(characters - length, 0)
    return tuple(found)


def _raw(piece: TextPiece) -> str:
    return piece.text if piece.text is not None else piece.source.document.text[slice(*piece.span)]


def folders_in(text: Text) -> tuple[str, ...]:
    """The folders in the value of a variable such as PYTHONPATH, without those that only the run knows."""
    lost = "\0"
    joined = "".join(piece.text if piece.text is not None else lost for piece in text)
    return tuple(dict.fromkeys(one for one in joined.split(":") if one and lost not in one))


def variable_of(launched: Launched, name: str) -> SourcedValue | None:
    """A variable of the environment of the command, if the script sets it."""
    text = launched.environment.get(name)
    if text is None or not text:
        return None
    source, span = place_of(text)
    value = known(text)
    raw = value if value is not None else "".join(_raw(piece) for piece in text)
    return SourcedValue(UNKNOWN if value is None else value, name, raw, source.shown, range_of(source.document, span))
