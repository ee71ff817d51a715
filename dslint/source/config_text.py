"""The text of a config by itself, whatever file it stands in."""

from __future__ import annotations

import json

from dslint.errors import UserError
from dslint.source.tree import Document, plain


def config_text(document: Document) -> str:
    """The text of a config by itself: its own, or JSON where it is YAML or a part of another file.

    Raises:
        UserError: a program computes one of its values.
    """
    if document.language in ("json", "hjson") and document.places is None:
        return document.text
    assert document.root is not None
    try:
        return json.dumps(plain(document.root), indent=2) + "\n"
    except TypeError:
        raise UserError("the program computes some values of this config: write it to a file, and name that.") from None
