"""`parse`: any text to a `Document`, in one pass if DeepSpeed's loader accepts the text."""

from __future__ import annotations

import copyreg
from collections.abc import Callable

from dslint.source.reader import Reader, RefusedError
from dslint.source.tree import Departure, Document, SyntaxProblem


def parse(text: str) -> Document:
    """The tree of a JSON or HJSON text, with everything that DeepSpeed's loader or strict JSON rejects.

    `problems` is empty exactly if `hjson.loads(text)` succeeds, and `departures` too exactly if `json.loads(text)` gives the same, with
    NaN and Infinity rejected; numbers such as `5e8` are integers here, and floats there. Never raises.
    """
    problems: list[SyntaxProblem] = []
    reader = Reader(text)
    try:
        root = reader.document()
    except RefusedError:
        from dslint.source.recover import recover  # only for broken files

        reader, root, problems = recover(text)
    return Document(
        text,
        root,
        comments=reader.comments,
        problems=problems,
        departures=sorted(reader.departures, key=_start),
        language="hjson" if reader.departures else "json",
    )


def parse_as(text: str, language: str) -> Document:
    """The tree of a text in a language of `Document.language`."""
    if language == "yaml":
        from dslint.source.yaml_tree import parse_yaml

        return parse_yaml(text)
    return Document(text, None, language=language) if language in ("text", "python") else parse(text)


def _reduced(document: Document) -> tuple[Callable[[str, str], Document], tuple[str, str]]:
    return parse_as, (document.text, document.language)


# Only the text is pickled: parsing again is faster than pickling the tree, and works at any depth.
copyreg.pickle(Document, _reduced)


def _start(departure: Departure) -> int:
    return departure.span.start
