"""Templates of printed messages: literal text with places for what varies, such as `Tried to allocate {request:size}. GPU {gpu:int}`.

A place is `{name:kind}`, or `{name}` for any text up to the next literal, or `{}` if its value is not kept. `{{` and `}}` are braces.
Quotes in the literal text match quotes of every kind, or none: copying a message from a web page changes and drops them. Capital and small
letters are equal: they change from release to release.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.record import Record

LONGEST_TEXT = 800
"""The most characters of a place that matches any text. It bounds the time of a search."""

_OTHER_SECTIONS = ("Comet", "CommsLogger", "Compile", "CSV", "DSStateManager", "HybridEngine", "QKVQuant", "Quantization")
_MORE_SECTIONS = ("RaggedInferenceEngine", "TensorBoard", "TP", "TPTraining", "Wandb", "ZenFlow")
_SECTIONS = "|".join((*_OTHER_SECTIONS, *_MORE_SECTIONS))
"""The classes of sections of DeepSpeed's config whose names do not begin with DeepSpeed."""

PLACES = {
    "int": r"-?\d+(?:,\d{3})*",
    "number": r"-?(?:\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?|inf|nan)",
    "size": r"\d[\d,]*(?:\.\d+)? ?(?:[KMGT]i?B|[Bb]ytes|B)\b",
    "name": r"[\w.\-/+@*]{1,200}",
    "path": r"[\w.\-/+@*=:,~]{1,300}",
    "section": rf"(?-i:DeepSpeed\w{{0,60}}|(?:{_SECTIONS})Config)\b",
    "variable": r"(?-i:[A-Z][A-Z0-9]*_[A-Z0-9_]{1,60})",
    "trainer": r"(?-i:\w{0,80}Trainer)\b",
    "arguments": r"(?-i:\w{0,80}(?:Arguments|Args|Config))\b",
    "text": rf".{{0,{LONGEST_TEXT}}}",
}
"""The kinds of places, each with its pattern. None of them can match in two ways from the same start, except text, which is lazy, and
names of classes, which end where the word ends."""

_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<name>\w*)(?::(?P<kind>\w+))?\}")
_QUOTES = "'\"`\u2018\u2019\u201c\u201d"
_LITERAL = re.compile(rf"[{_QUOTES}]|\s+|[^{_QUOTES}\s]+")
_LETTERS = bytes(ord(chr(byte).lower()) if (chr(byte).isalpha() and byte < 128) or byte == ord("_") else ord(" ") for byte in range(256))
"""For each byte the small letter, or a blank for what is not a letter."""


class Blank(Record):
    """A place in a template: the name of its value ("" if it is not kept) and its kind."""

    name: str
    kind: str


def words(text: str) -> list[bytes]:
    """The words of a text in small letters: runs of ASCII letters and underscores."""
    return text.encode("utf-8", "replace").translate(_LETTERS).split()


def parse(template: str) -> list[str | Blank]:
    """The literal texts and places of a template, in order; neighbouring literals are joined.

    Raises:
        ValueError: a place has a kind that does not exist.
    """
    parts: list[str | Blank] = []
    for part in _split(template):
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += part
        elif part:
            parts.append(part)
    return parts


def _split(template: str) -> Iterator[str | Blank]:
    end = 0
    for token in _TOKEN.finditer(template):
        yield template[end : token.start()]
        end = token.end()
        if token["name"] is None:
            yield token[0][0]
        elif (kind := token["kind"] or "text") in PLACES:
            yield Blank(token["name"], kind)
        else:
            raise ValueError(f"unknown kind of place {token[0]} in the template {template!r}")
    yield template[end:]


def pattern(parts: list[str | Blank]) -> str:
    """The regular expression of a template.

    Each place is an atomic group that ends with the literal after it, so that a search never goes back to try another value: its time is
    linear in the text.
    """
    expression, named = [], set[str]()
    for index, part in enumerate(parts):
        if isinstance(part, str):
            expression.append(_literal(part) + ")" * (index > 0))
            continue
        lazy = "?" if part.kind == "text" and index + 1 < len(parts) else ""
        group = f"?P<{part.name}>" if part.name and part.name not in named else "?:"
        named.add(part.name)
        expression.append(f"(?>({group}{PLACES[part.kind]}{lazy})")
        if index + 1 == len(parts) or not isinstance(parts[index + 1], str):
            expression.append(")")
    first, last = parts[0], parts[-1]
    before = r"(?<!\w)" if isinstance(first, str) and first[0].isdigit() else ""
    after = r"(?!\d)" if isinstance(last, str) and last[-1].isdigit() else ""
    return before + "".join(expression) + after


def _literal(text: str) -> str:
    def piece(found: str) -> str:
        if found in _QUOTES:
            return f"[{_QUOTES}]?"
        return r"\s+" if found.isspace() else re.escape(found)

    return "".join(map(piece, _LITERAL.findall(text)))


def whole_words(parts: list[str | Blank]) -> frozenset[bytes]:
    """The words that a text has as whole words if it matches the template.

    Raises:
        ValueError: the literal text has no whole word.
    """
    found: set[bytes] = set()
    for index, part in enumerate(parts):
        if isinstance(part, str):
            left = "_" if index > 0 else ""  # a word that touches a place may be a part of a longer one
            right = "_" if index + 1 < len(parts) else ""
            touching = (b"_" if left else b"?", b"_" if right else b"?")
            found.update(word for word in words(left + part + right) if word[:1] != touching[0] and word[-1:] != touching[1])
    if not found:
        raise ValueError(f"a template requires a literal word: {parts}")
    return frozenset(found)
