"""The recipes of a Makefile as shell texts, with the variables of make replaced."""

from __future__ import annotations

import re

from dslint.evaluate.shell.pieces import Piece, Source, Text
from dslint.evaluate.shell.words import bounded
from dslint.source.tree import Span

_ASSIGNMENT = re.compile(r"^(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*(\?|:{1,3}|\+|!)?=[ \t]*([^\r\n#]*)", re.MULTILINE)
_VARIABLE = re.compile(r"\$(?:\(([A-Za-z_]\w*)\)|\{([A-Za-z_]\w*)\}|(\$)|(\([^)]*\)|.))")


def recipes(source: Source) -> list[Text]:
    """The lines of each recipe as one text: lines of a target that follow each other, indented by a tab."""
    text = source.document.text
    variables: dict[str, Text] = {}
    for match in _ASSIGNMENT.finditer(re.sub(r"\\\r?\n", lambda found: " " * len(found[0]), text)):
        if match[2] == "?" and match[1] in variables:
            continue
        start = match.start(3)
        value = _replaced(source, start, start + len(match[3].rstrip()), variables)
        blank = Piece(" ", source, Span(start, start), exact=False)
        value = (*variables.get(match[1], ()), blank, *value) if match[2] == "+" else value
        variables[match[1]] = bounded(value, blank)
    found: list[Text] = []
    lines: list[Piece] = []
    for match in re.finditer(r"([^\n]*\\\r?\n)*[^\n]*\n?", text):
        if match[0].startswith("\t"):
            start = match.start() + len(match[0]) - len(match[0].lstrip("\t @-+"))
            lines += _replaced(source, start, match.end(), variables)
        elif lines and match[0].strip():
            found.append(tuple(lines))
            lines = []
    return [*found, tuple(lines)] if lines else found


def _replaced(source: Source, start: int, end: int, variables: dict[str, Text]) -> Text:
    text = source.document.text
    found: Text = ()
    position = start
    for match in _VARIABLE.finditer(text, start, end):
        found += _literal(source, position, match.start())
        position = match.end()
        if match[3]:
            found += _literal(source, match.start(), match.start() + 1)  # $$ is the shell's $
        else:
            name = match[1] or match[2]
            found += variables.get(name, (Piece(None, source, Span(*match.span()), exact=False, absent=True),))
    return found + _literal(source, position, end)


def _literal(source: Source, start: int, end: int) -> Text:
    return (Piece(source.document.text[start:end], source, Span(start, end)),) if start < end else ()
