"""Placeholders in YAML, such as `${STAGE}` or `{{ stage }}`: values that another program fills in before the file is read."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

from dslint.not_judged import NotJudged, Why
from dslint.source.ranges import range_of
from dslint.source.tree import Document, Mapping, Node, Scalar, Sequence
from dslint.source.unknown import UNKNOWN


def is_placeholder(value: object) -> bool:
    """Whether a value is, or contains, a placeholder of the shell, OmegaConf or Jinja."""
    return isinstance(value, str) and (("${" in value and "}" in value) or ("{{" in value and "}}" in value))


_BLANK = re.compile(
    r"<[^<>]+>|__\w+__|\$\w+|@\w+@|%\w+%|[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|(?!(?:AUTO|NONE|NULL|TRUE|FALSE|FULL|HALF|FLOAT|BFLOAT|SINGLE|DOUBLE)$)[A-Z]{4,}"
)
"""A single word in capitals is one, too, unless it is a value that a person may have meant: `PRECISION`, but not `FP32`, `NO` or `AUTO`."""


def is_blank(value: object) -> bool:
    """Whether a value is a word that a person or `sed` replaces before the file is read: `<CLIP>`, `ZERO_STAGE`, `PRECISION`."""
    return isinstance(value, str) and _BLANK.fullmatch(value) is not None


def unknown_in(document: Document, judged: Container[str] | None = None) -> NotJudged | None:
    """The unknown values that rules would judge; None if there are none.

    Args:
        document: a document with `UNKNOWN` for its placeholders.
        judged: the top-level keys that rules judge; by default all.
    """
    members = document.root.members if isinstance(document.root, Mapping) else []
    found = [one for member in members if judged is None or member.key.value in judged for one in _unknown(member.value)]
    if not found:
        return None
    first, place = found[0].raw, range_of(document, found[0].span)
    return NotJudged(Why.PLACEHOLDER, (first,), place) if len(found) == 1 else NotJudged(Why.PLACEHOLDERS, (str(len(found)), first), place)


def _unknown(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Mapping):
        for member in node.members:
            yield from _unknown(member.value)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _unknown(item)
    elif node.value is UNKNOWN:
        yield node
