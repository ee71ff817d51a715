"""Placeholders in YAML, such as `${STAGE}` or `{{ stage }}`: values that another program fills in before the file is read."""

from __future__ import annotations

from collections.abc import Container

from dslint.diagnostics import NotJudged
from dslint.source.ranges import range_of
from dslint.source.tree import Document, Mapping, Member, Node, Scalar, Sequence
from dslint.source.unknown import UNKNOWN


def is_placeholder(value: object) -> bool:
    """Whether a value is, or contains, a placeholder of the shell, OmegaConf or Jinja."""
    return isinstance(value, str) and (("${" in value and "}" in value) or ("{{" in value and "}}" in value))


def with_unknown(document: Document, judged: Container[str]) -> tuple[Document, NotJudged | None]:
    """The document with `UNKNOWN` for every placeholder, and a sentence about those that rules would judge.

    Args:
        document: a YAML document; it is returned unchanged if it has no placeholder.
        judged: the top-level keys that rules judge.
    """
    root = document.root
    if not isinstance(root, Mapping) or not is_placeholder(document.text):
        return document, None
    found: list[Scalar] = []
    members = [Member(one.key, _with_unknown(one.value, found if one.key.value in judged else [])) for one in root.members]
    known = Document(
        document.text,
        Mapping(root.span, members),
        comments=document.comments,
        problems=document.problems,
        departures=document.departures,
        language=document.language,
    )
    if not found:
        return known, None
    what = f"{found[0].raw} is a placeholder" if len(found) == 1 else f"{len(found)} values are placeholders such as {found[0].raw}"
    reason = f"{what}, which only the run knows. Rules about {'it' if len(found) == 1 else 'them'} find nothing; check the rendered file."
    return known, NotJudged(reason, range_of(document, found[0].span))


def _with_unknown(node: Node, found: list[Scalar]) -> Node:
    if isinstance(node, Mapping):
        members = [Member(member.key, _with_unknown(member.value, found)) for member in node.members]
        return Mapping(node.span, members, may_have_more=node.may_have_more)
    if isinstance(node, Sequence):
        return Sequence(node.span, [_with_unknown(item, found) for item in node.items])
    if not is_placeholder(node.value):
        return node
    found.append(node)
    return Scalar(node.span, UNKNOWN, node.raw, node.style)
