"""Placeholders in YAML, such as `${STAGE}` or `{{ stage }}`: values that another program fills in before the file is read."""

from __future__ import annotations

from collections.abc import Container, Iterator

from dslint.diagnostics import NotJudged
from dslint.source.ranges import range_of
from dslint.source.tree import Document, Mapping, Node, Scalar, Sequence
from dslint.source.unknown import UNKNOWN


def is_placeholder(value: object) -> bool:
    """Whether a value is, or contains, a placeholder of the shell, OmegaConf or Jinja."""
    return isinstance(value, str) and (("${" in value and "}" in value) or ("{{" in value and "}}" in value))


def unknown_in(document: Document, judged: Container[str] | None = None) -> NotJudged | None:
    """A sentence about the unknown values that rules would judge; None if there are none.

    Args:
        document: a document with `UNKNOWN` for its placeholders.
        judged: the top-level keys that rules judge; by default all.
    """
    members = document.root.members if isinstance(document.root, Mapping) else []
    found = [one for member in members if judged is None or member.key.value in judged for one in _unknown(member.value)]
    if not found:
        return None
    what = f"{found[0].raw} is a placeholder" if len(found) == 1 else f"{len(found)} values are placeholders such as {found[0].raw}"
    reason = f"{what}, which only the run knows. Rules about {'it' if len(found) == 1 else 'them'} find nothing; check the rendered file."
    return NotJudged(reason, range_of(document, found[0].span))


def _unknown(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Mapping):
        for member in node.members:
            yield from _unknown(member.value)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _unknown(item)
    elif node.value is UNKNOWN:
        yield node
