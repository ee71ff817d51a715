"""Words for what is wrong with a text: the open brackets, the token at a place, and what was expected there."""

from __future__ import annotations

import re

from dslint.source.reader import Box
from dslint.source.tree import Key, Mapping, Sequence, Span

_TOKEN = re.compile(r'"[^"\r\n]{0,200}"|\'[^\'\r\n]{0,200}\'|[^ \t\n\r:{}\[\],]{1,200}').match


def place_of(boxes: list[Box], key: Key | None) -> str:
    """What stands at the place of a value: that of its key, or an item."""
    if key is not None:
        return f"the value of {quote(key.value)}"
    node = boxes[-1].node if boxes else None
    if isinstance(node, Sequence):
        return f"item {len(node.items) + 1} of {name_of(boxes, len(boxes) - 1)}"
    return "the value"


def name_of(boxes: list[Box], depth: int) -> str:
    """The name of the open list at `depth`: its key, if it has one."""
    outer = boxes[depth - 1].node if depth else None
    if isinstance(outer, Mapping) and outer.members and outer.members[-1].value is boxes[depth].node:
        return quote(outer.members[-1].key.value)
    return "the list"


def opener_of(boxes: list[Box]) -> str:
    """A description of the innermost opening bracket."""
    depth = len(boxes) - 1
    bracket = "{" if isinstance(boxes[depth].node, Mapping) else "["
    if not depth:
        return f'the "{bracket}" that opens the file'
    outer = boxes[depth - 1].node
    if isinstance(outer, Sequence) and outer.items:
        return f'the "{bracket}" of item {len(outer.items)} of {name_of(boxes, depth - 1)}'
    name = name_of(boxes, depth)
    return f'the "{bracket}" of {name}' if name != "the list" else f'this "{bracket}"'


def expected_in(boxes: list[Box], ended: int, comma: int) -> str:
    """What is expected at a key, an item or a closing bracket."""
    box = boxes[-1]
    node = box.node
    closer = f'"{box.closer}"' if box.closer else "the end of the file"
    member = "a key" if isinstance(node, Mapping) else "an item"
    if ended < 0:
        return f"expected {member} or {closer}"
    last = last_of(boxes)
    after = f" after {last}" if last else ""
    if comma < 0:
        return f'expected "," or {closer}{after}'
    return f"expected {member} or {closer} after the comma"


def last_of(boxes: list[Box]) -> str:
    """The last item or value in the innermost open bracket; "" if it is empty."""
    node = boxes[-1].node
    if isinstance(node, Sequence):
        return f"item {len(node.items)} of {name_of(boxes, len(boxes) - 1)}" if node.items else ""
    return f"the value of {quote(node.members[-1].key.value)}" if node.members else ""


def found_at(text: str, pos: int) -> str:
    """The token at `pos` in quotes, or that the file ends there."""
    span = token_at(text, pos)
    if span.start == span.end:
        return "the end of the file"
    token = text[span.start : span.end]
    if token[0] == '"' and len(token) > 2:
        token = token[1:-1]
    return quote(token)


def token_at(text: str, pos: int) -> Span:
    """The token at `pos`: a string, a word, a bracket, or empty at the end of the text."""
    match = _TOKEN(text, pos)
    return Span(pos, match.end() if match else min(pos + 1, len(text)))


def quote(words: str) -> str:
    """A text in double quotes, on one line, shortened."""
    shown = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in words[:41])
    return f'"{shown[:37]}..."' if len(words) > 40 else f'"{shown}"'
