"""The text of a config by itself, whatever file it stands in."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dslint.errors import UserError
from dslint.source.tree import Document, Mapping, Node, Path, Sequence, plain
from dslint.source.unknown import UnknownInConfig


def config_text(document: Document) -> str:
    """The text of a config by itself: its own, or JSON where it is YAML or a part of another file.

    Raises:
        UserError: a program computes one of its values.
    """
    if _is_own(document):
        return document.text
    assert document.root is not None
    if any(unread_parts(document.root)):
        raise UserError(COMPUTED)
    try:
        return json.dumps(plain(document.root), indent=2) + "\n"
    except TypeError:
        raise UserError(COMPUTED) from None


COMPUTED = "the program computes some values of this config: write it to a file, and name that."


def text_name(document: Document, path: str) -> str:
    """How a diff of that text names it; `path` is the file of the config."""
    return path if _is_own(document) else f"config of {path}, as JSON"


def _is_own(document: Document) -> bool:
    return document.language in ("json", "hjson") and document.places is None


def unread_parts(node: Node, path: Path = ()) -> Iterator[Path]:
    """The paths of the values that a program computes, and of the sections that it may write more keys into."""
    if isinstance(node, Mapping):
        if node.may_have_more:
            yield path
        for member in node.members:
            yield from unread_parts(member.value, (*path, member.key.value))
    elif isinstance(node, Sequence):
        for index, item in enumerate(node.items):
            yield from unread_parts(item, (*path, index))
    elif isinstance(node.value, UnknownInConfig):
        yield path
