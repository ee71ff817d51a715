"""The parser beside the loaders it stands for: hjson, which DeepSpeed uses, and json, which the others use."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import hjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dslint.source.parse import parse
from dslint.source.tree import Mapping, Node, Scalar, Sequence

from .json_value import json_value

pytestmark = pytest.mark.slow

REFUSED = "refused"

Texts: TypeAlias = st.SearchStrategy[str]

# What matters to either grammar, in pieces that make something happen when they are thrown together.
PIECES = [
    *"{}[],:\"'\\#/*-.+_eE019",
    *("'''", "//", "/*", "*/", "\n", "\r\n", "\r", " ", "\t", "\x0b", "\xa0", "\u2028", "\x00", "\ufeff", "\u00ef\u00bb\u00bf", "\u201c"),
    *("\\n", "\\'", "\\u", "\\ud83d", "\\ude00", "\\u+123", "\\u 1_2", "\\u-001", "\ud800", "\u0663"),
    *("1e5", "1e9", "1e10", "1.0", "-0.0", "1e999", "0x1", "true", "false", "null", "True", "NaN", "Infinity", "-Infinity"),
    *('"a":', "a:", '"x"', '{"a": ', "[1, 2]", "bare"),
]

JSON_SCALARS = st.sampled_from(
    [
        *("0", "-0", "1", "-12", "1.5", "2.0", "-0.0", "5e8", "1E+3", "1e10", "1e-8", "true", "false", "null"),
        *('""', '"auto"', '"a\\n\\u00e9\\/"', '"\\ud83d\\ude00"', '"\\ud83d"', '"it\'s"', '"a: b, c // d"', '"\x7f"'),
    ]
)
HJSON_SCALARS = st.one_of(
    JSON_SCALARS,
    st.sampled_from(
        [
            *("'s'", "'a\"b'", "''", '"\\\'"', '"\\u+123"', '"\\u 1 2"', "\u0661", "1\u0662", "1.\u0663", "1e400", "01", "1.", ".5", "+1"),
            *("'''a\n  b\n '''", "'''\n   x\n\n  y\n   '''", "''''''", "'''a'b''c'''"),
            *("bare text", "True", "True,", "NaN", "NaN,", "a: b", "true\x0b", "\xa0x", "0\x0b"),
        ]
    ),
)
JSON_SPACE = st.sampled_from(["", "", " ", "\n", "\r\n", "  ", "\t", "\r"])
HJSON_SPACE = st.lists(st.sampled_from([" ", "\n", "\r\n", "\r", "\t", "# c\n", "// c, }\n", "/* c\n */", "//\r"]), max_size=3).map("".join)
JSON_KEYS = st.sampled_from(['"a"', '"b"', '"a b"', '""', '"\\t"', '"{"'])
HJSON_KEYS = st.one_of(JSON_KEYS, st.sampled_from(["a", "b", "'c'", "d_e", "1", "g\x0b", "h//i", "j=k", "\u201cl\u201d", '"\\\'"']))


@st.composite
def documents(draw: st.DrawFn, scalars: Texts, space: Texts, keys: Texts, *, strict: bool) -> str:
    """The text of a document in JSON (`strict`) or HJSON."""

    def separator(last: bool) -> str:
        if strict:
            return draw(space) + ("" if last else ",") + draw(space)
        return draw(space) + draw(st.sampled_from([",", ",", "\n", ""])) + draw(space)

    def value(depth: int) -> str:
        kind = draw(st.integers(0, 3)) if depth else 3
        if kind > 1:
            return draw(scalars)
        count = draw(st.integers(0, 3))
        inside = draw(space)
        for index in range(count):
            if kind:
                inside += draw(keys) + draw(space) + ":" + draw(space)
            inside += value(depth - 1) + separator(index == count - 1)
        return "{" + inside + "}" if kind else "[" + inside + "]"

    text = draw(space) + value(draw(st.integers(0, 3))) + draw(space)
    if not strict and text.startswith("{") and draw(st.booleans()):
        text = text[1:-1]
    return text


JSON_TEXTS = documents(JSON_SCALARS, JSON_SPACE, JSON_KEYS, strict=True)
HJSON_TEXTS = documents(HJSON_SCALARS, HJSON_SPACE, HJSON_KEYS, strict=False)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A document with some of it cut out, doubled or written over."""
    text = draw(st.one_of(JSON_TEXTS, HJSON_TEXTS))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(["", *PIECES])) + text[at + draw(st.integers(0, 3)) :]
    return text


TEXTS = st.one_of(
    JSON_TEXTS,
    HJSON_TEXTS,
    mutated(),
    st.lists(st.sampled_from(PIECES), max_size=16).map("".join),
    st.text(st.sampled_from("{}[],:\"'\\# \nab1t/*")),
)
many = settings(max_examples=400, deadline=None)


class Pairs(list[tuple[str, Any]]):
    """An object with its duplicates, apart from a list."""


def comparable(value: object) -> object:
    """A value whose equality tells 1 from 1.0 and from True, and an object from a list."""
    if isinstance(value, Pairs):
        return ("object", [(key, comparable(item)) for key, item in value])
    if isinstance(value, dict):
        return ("object", [(key, comparable(item)) for key, item in value.items()])
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return (type(value), repr(value))


def of_tree(node: Node | None, *, as_json: bool = False) -> object:
    if isinstance(node, Mapping):
        return ("object", [(member.key.value, of_tree(member.value, as_json=as_json)) for member in node.members])
    if isinstance(node, Sequence):
        return [of_tree(item, as_json=as_json) for item in node.items]
    assert node is not None
    value = json_value(node) if as_json else node.value
    return (type(value), repr(value))


def by_hjson(text: str) -> object:
    try:
        return comparable(hjson.loads(text, object_pairs_hook=Pairs))
    except (ValueError, IndexError, OverflowError):
        return REFUSED


def by_json(text: str) -> object:
    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        return comparable(json.loads(text, object_pairs_hook=Pairs, parse_constant=refuse))
    except ValueError:
        return REFUSED


@many
@given(TEXTS)
@example("")
@example("\ufeff")
@example("\ufeff# only a comment")
@example("\u00ef\u00bb\u00bf{}")
@example("a: [")
@example("a: [\n")
@example("{a: '''x'''}")
@example("{a: '''x\n   y'''}\n ")
@example("a: '''x'''")
@example("'''x'''\n")
@example("a: 1e999")
@example("/* */ true // yes")
@example('"\\u-001"')
@example("a /")
@example('{"a" # c\n : 1}')
@example("\x0b : 1")
def test_reads_what_hjson_reads(text: str) -> None:
    document = parse(text)
    expected = by_hjson(text)
    assert bool(document.problems) == (expected == REFUSED)
    if expected != REFUSED:
        assert of_tree(document.root) == expected


@many
@given(TEXTS)
@example("NaN")
@example('{"a": NaN\n}')
@example("[1.0, 5e8, 1e10]")
def test_departs_from_json_where_json_refuses(text: str) -> None:
    document = parse(text)
    expected = by_json(text)
    if document.problems:
        return
    assert (not document.departures) == (expected != REFUSED)
    assert document.language == ("hjson" if document.departures else "json")
    if expected != REFUSED:
        assert of_tree(document.root, as_json=True) == expected


@many
@given(JSON_TEXTS)
def test_json_is_json(text: str) -> None:
    document = parse(text)
    assert not document.problems
    assert not document.departures
    assert document.language == "json"


@many
@given(TEXTS)
def test_spans_are_in_order(text: str) -> None:
    document = parse(text)
    if document.root is not None:
        in_order(document.root, text, 0, len(text))
    for comment in document.comments:
        assert text[slice(*comment.span)] == comment.text
        assert comment.text.startswith(("#", "//", "/*"))
    for noted in (document.comments, document.departures, document.problems):
        assert [note.span.start for note in noted] == sorted(note.span.start for note in noted)
        assert all(0 <= note.span.start <= note.span.end <= len(text) for note in noted)


def in_order(node: Node, text: str, start: int, end: int) -> None:
    assert start <= node.span.start <= node.span.end <= end
    if isinstance(node, Scalar):
        assert text[slice(*node.span)] == node.raw
        return
    at = node.span.start
    if isinstance(node, Mapping):
        for member in node.members:
            assert at <= member.key.span.start <= member.key.span.end <= member.value.span.start
            assert text[slice(*member.key.span)] == member.key.raw
            in_order(member.value, text, member.key.span.end, node.span.end)
            at = member.value.span.end
    else:
        for item in node.items:
            in_order(item, text, at, node.span.end)
            at = item.span.end


@many
@given(TEXTS)
def test_spans_hold_what_was_read(text: str) -> None:
    document = parse(text)
    if document.problems:
        return
    nodes = [document.root]
    while nodes:
        node = nodes.pop()
        if isinstance(node, Scalar):
            assert comparable(reread(node, text)) == comparable(node.value)
        elif isinstance(node, Sequence):
            nodes += node.items
        elif isinstance(node, Mapping):
            for member in node.members:
                nodes.append(member.value)
                # hjson strips some blanks off a bare key only if others follow it.
                assert member.key.value in (name_of(member.key.raw + ":0"), name_of(member.key.raw + " :0"))


def reread(scalar: Scalar, text: str) -> object:
    indent = 0
    if scalar.style == "multiline":
        # The value depends on the column of the quotes.
        line = text.rfind("\n", 0, scalar.span.start)
        indent = scalar.span.start - 1 - line if line >= 0 else scalar.span.start + len(text) - 1 - text.rfind("\n")
    return hjson.loads("[\n" + " " * indent + scalar.raw + "\n]")[0]


def name_of(member: str) -> str:
    (name,) = hjson.loads("{" + member + "\n}")
    return str(name)


@many
@given(st.text(st.sampled_from("ab\r\n\x0b\u2028\U0001f600")))
def test_positions_count_lines_as_editors_do(text: str) -> None:
    document = parse(text)
    line, column = 1, 1
    for offset in range(len(text) + 1):
        assert document.position(offset) == (line, column, offset)
        if text[offset : offset + 1] == "\n" or (text[offset : offset + 1] == "\r" and text[offset + 1 : offset + 2] != "\n"):
            line, column = line + 1, 1
        else:
            column += 1
    assert document.line_count == line
    plain_lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert [document.line(number + 1) for number in range(line)] == plain_lines


@pytest.mark.parametrize("digits", [4300, 4301])
def test_the_limit_of_integers_is_pythons(digits: int) -> None:
    text = "[-" + "1" * digits + "]"
    document = parse(text)
    assert bool(document.problems) == (by_hjson(text) == REFUSED) == (digits > 4300)


@given(st.integers(0, 250))
@settings(max_examples=20, deadline=None)
def test_nesting_that_a_program_of_some_depth_can_read(depth: int) -> None:
    text = '{"a": [' * (depth // 2) + "]}" * (depth // 2)
    assert not parse(text or "{}").problems
