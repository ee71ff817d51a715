"""Strings without quotes, which run to the end of their line."""

from __future__ import annotations

from dslint.source.tree import Scalar


def swallowed(node: Scalar) -> str | None:
    """What a string without quotes was meant to be, written as JSON, if it has taken in a comma or a comment; otherwise None."""
    if node.style != "bare" or not isinstance(node.value, str):
        return None
    comment = next((mark for mark in ("//", "#", "/*") if f" {mark}" in node.value), None)
    word = node.value.partition(f" {comment}")[0].strip() if comment else node.value
    if comment is None and not word.endswith(","):
        return None
    word = word.rstrip(",").strip()
    return {"True": "true", "False": "false", "None": "null"}.get(word, word if word in ("true", "false", "null") else as_json(word))


def as_json(text: object) -> str:
    """A value as JSON writes it."""
    import json

    return json.dumps(text, ensure_ascii=False)
