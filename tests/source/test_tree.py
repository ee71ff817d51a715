"""What a good file becomes: departures from strict JSON, comments, values as the two loaders see them, and places."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from dslint.source.parse import parse
from dslint.source.tree import Comment, Mapping, Member, Scalar, Span, plain
from tests.growth import assert_linear

from .json_value import json_value

DEPARTURES = [
    ('{"a": 1} // why', "comment", "// why"),
    ('{"a": 1 # why\n}', "comment", "# why"),
    ('{/* why */ "a": 1}', "comment", "/* why */"),
    ('{"a": 1,}', "trailing-comma", ","),
    ('{"a": [1, 2,\n]}', "trailing-comma", ","),
    ('{"a": 1\n "b": 2}', "missing-comma", ""),
    ("{a: 1}", "bare-key", "a"),
    ('{"a": auto\n}', "bare-string", "auto"),
    ('{"a": True,\n}', "bare-string", "True,"),
    ("{\"a\": 'x'}", "single-quoted", "'x'"),
    ("{'a': 1}", "single-quoted", "'a'"),
    ("{\n\"a\": '''x'''}", "multiline-string", "'''x'''"),
    ('"a": 1', "no-root-braces", '"a"'),
    ('\ufeff{"a": 1}', "bom", "\ufeff"),
    ('\u00ef\u00bb\u00bf{"a": 1}', "bom", "\u00ef\u00bb\u00bf"),
    ("", "empty", ""),
    (" \n", "empty", ""),
    ('{"a": NaN\n}', "not-a-number", "NaN"),
    ('{"a": -Infinity,\n"b": 1}', "not-a-number", "-Infinity,"),
    ('{"a": "it\\\'s"}', "odd-literal", "\\'"),
    ('{"a": "\\u+123"}', "odd-literal", "\\u+123"),
    ('{"a": 1\u0662}', "odd-literal", "1\u0662"),
    ('{"a": true\x0b}', "odd-literal", "\x0b"),
]


@pytest.mark.parametrize(("text", "kind", "at"), DEPARTURES)
def test_departures_from_strict_json(text: str, kind: str, at: str) -> None:
    document = parse(text)
    assert not document.problems
    assert document.language == "hjson"
    found = [text[slice(*departure.span)] for departure in document.departures if departure.kind == kind]
    assert found == [at]


def test_departures_come_in_the_order_of_the_file() -> None:
    document = parse("{a: 1 # one\n 'b': [1, 2,] // two\n}")
    assert [departure.kind for departure in document.departures] == [
        "bare-key",
        "missing-comma",
        "comment",
        "single-quoted",
        "trailing-comma",
        "comment",
    ]


def test_a_missing_comma_is_placed_where_it_belongs() -> None:
    text = '{"a": 1 // one\n "b": 2}'
    (departure,) = [departure for departure in parse(text).departures if departure.kind == "missing-comma"]
    assert departure.span == Span(7, 7)


def test_comments_are_kept() -> None:
    document = parse('# one\n{"a": /* two */ 1, // three\r\n}')
    assert document.comments == [Comment(Span(0, 5), "# one"), Comment(Span(12, 21), "/* two */"), Comment(Span(25, 33), "// three")]


def test_duplicates_are_kept_and_the_last_one_counts() -> None:
    document = parse('{"a": 1, "b": 2, "a": 3}')
    root = document.root
    assert isinstance(root, Mapping)
    assert [member.key.value for member in root.members] == ["a", "b", "a"]
    assert plain(root) == {"a": 3, "b": 2}
    assert not document.problems


def test_places() -> None:
    text = '{\n  "zero": {"stage": 3},\n  "sizes": [1, 5e8]\n}'
    document = parse(text)
    member = document.lookup(("zero", "stage"))
    assert isinstance(member, Member)
    assert text[slice(*member.span)] == '"stage": 3'
    assert document.position(member.key.span.start) == (2, 12, 13)
    item = document.lookup(("sizes", 1))
    assert isinstance(item, Scalar)
    assert (item.raw, item.value, item.style) == ("5e8", 500000000, "json")
    assert document.lookup(("sizes", 2)) is None
    assert document.lookup(("zero", "stage", "x")) is None
    assert document.lookup(()) is document.root


@pytest.mark.parametrize(
    ("literal", "by_hjson", "by_json"),
    [
        ("5e8", 500000000, 5e8),
        ("1.0", 1, 1.0),
        ("-0.0", 0, -0.0),
        ("-0", 0, 0),
        ("1e10", 1e10, 1e10),
        ("0.5", 0.5, 0.5),
        ("12", 12, 12),
        ("true", True, True),
        ("null", None, None),
        ('"5e8"', "5e8", "5e8"),
        ("auto", "auto", "auto"),
        ("Infinity", "Infinity", math.inf),
        ("-Infinity,", "-Infinity,", -math.inf),
    ],
)
def test_values_by_loader(literal: str, by_hjson: object, by_json: object) -> None:
    node = parse("[" + literal + "\n]").lookup((0,))
    assert isinstance(node, Scalar)
    assert (type(node.value), node.value) == (type(by_hjson), by_hjson)
    assert (type(json_value(node)), repr(json_value(node))) == (type(by_json), repr(by_json))


def test_nan_is_text_to_hjson_and_a_float_to_json() -> None:
    node = parse('{"a": NaN\n}').lookup(("a",))
    assert isinstance(node, Member)
    assert isinstance(node.value, Scalar)
    value = json_value(node.value)
    assert node.value.value == "NaN"
    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("text", "style", "value"),
    [
        ('["x"]', "json", "x"),
        ("['x']", "single", "x"),
        ("[\n'''\nx\n  y\n''']", "multiline", "x\n  y"),
        ("[x, y // z\n]", "bare", "x, y // z"),
        ("[1 x\n]", "bare", "1 x"),
    ],
)
def test_styles(text: str, style: str, value: str) -> None:
    node = parse(text).lookup((0,))
    assert isinstance(node, Scalar)
    assert (node.style, node.value) == (style, value)


def test_the_span_of_a_root_without_braces() -> None:
    text = "# c\na: 1\nb: [2] # d\n"
    root = parse(text).root
    assert root is not None
    assert text[slice(*root.span)] == "a: 1\nb: [2]"


SIZE = 100_000
HOSTILE = [
    *("[", "{", '"', "'", ",", ":", "]", "}", "\\", "/", "#", "'''", '"\\"', "/*", "//", "1", "1e", " ", "\n", "\r\n", "\ufeff", "\u201c"),
    *(
        "a ",
        "a, ",
        "a\n",
        "a=",
        "a:b ",
        '"a" ',
        '"a":',
        '{"a":',
        '{"a" ',
        '"a" "b" ',
        "[True, ",
        "True} ",
        "[]",
        "}{",
        "][",
        "/**/",
        "a:[\n",
    ),
]
OPENINGS = ["", "{", "[", "{\n", "[''' ", '["', '{"x": ', "[" * (401)]


@pytest.mark.parametrize(("number", "piece"), [*enumerate(HOSTILE)])
def test_no_text_takes_long(number: int, piece: str) -> None:
    """Any text is read in linear time: each piece after one of the openings, in turn."""
    _assert_read_in_linear_time(piece, OPENINGS[number % len(OPENINGS)])


@pytest.mark.slow
@pytest.mark.parametrize("piece", HOSTILE)
def test_no_text_takes_long_after_any_opening(piece: str) -> None:
    for opening in OPENINGS:
        _assert_read_in_linear_time(piece, opening)


def _assert_read_in_linear_time(piece: str, opening: str) -> None:
    assert_linear(lambda size: lambda: read_all(opening + piece * (size // len(piece))), SIZE // 40)


def read_all(text: str) -> None:
    document = parse(text)
    if document.root is not None:
        plain(document.root)


@pytest.mark.parametrize("literal", ["[0.%s]", "%s", "[-%s.5]", "[1e%s]"])
def test_no_literal_takes_long(literal: str) -> None:
    assert_linear(lambda size: lambda: parse(literal % ("1" * size)), SIZE)


def test_a_good_file_costs_few_imports() -> None:
    program = (
        "import sys; from dslint.source.parse import parse; parse('{\"a\": 1}')\n"
        "print(*sorted(name for name in sys.modules if name in ('json', 'hjson', 'dataclasses', 'inspect', 'dslint.source.recover')))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; sys.path[:0] = " + repr(sys.path) + "\n" + program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ""
