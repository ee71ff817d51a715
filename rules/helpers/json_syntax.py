"""Where HJSON and strict JSON differ: which loaders read a config with Python's `json`, and strings without quotes."""

from __future__ import annotations

from dslint.facts import Integration
from dslint.rules.helpers.fixes import json_text
from dslint.source.tree import Scalar

HJSON_SYNTAX = "https://hjson.github.io/syntax.html"

STRICT_JSON_LOADERS = (Integration.TRANSFORMERS, Integration.ACCELERATE, Integration.LIGHTNING)
"""Integrations that read the file with Python's `json`."""

COMMENT_MARKS = ("//", "#", "/*")

PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
"""Python's literals with the JSON that stands for them."""


def intended_json(node: Scalar) -> str | None:
    """The JSON that the writer meant by a quoteless string that includes a comma or a comment; None for every other value."""
    if node.style != "bare" or not isinstance(node.value, str):
        return None
    comment = next((mark for mark in COMMENT_MARKS if f" {mark}" in node.value), None)
    word = node.value.partition(f" {comment}")[0].strip() if comment else node.value
    if comment is None and not word.endswith(","):
        return None
    word = word.rstrip(",").strip()
    return PYTHON_WORDS.get(word, word if word in ("true", "false", "null") else json_text(word))
