"""What the parser says about a broken file: the kind, the place and the words of each problem, and what it still reads."""

from __future__ import annotations

import pytest

from dslint.source.parse import parse
from dslint.source.reader import MAX_DEPTH
from dslint.source.recover import MAX_PROBLEMS
from dslint.source.tree import plain

CONFIG = """{
  "train_batch_size": 8,
  "fp16": {
    "enabled": true,
    "loss_scale": 0
  },
  "optimizer": {
    "type": "AdamW",
    "params": {"lr": 1e-4, "betas": [0.9, 0.999]}
  }
}
"""


def said(text: str) -> list[tuple[str, str, str]]:
    """The kind of each problem, the text it points at, and its message."""
    return [(problem.kind, text[slice(*problem.span)], problem.message) for problem in parse(text).problems]


# The text, the kind of its one problem, the text and the offset the problem points at, its message, and what is read all the same.
ONE_PROBLEM = [
    # Brackets.
    (
        '{"zero": {"stage": 3]}',
        *("wrong-bracket", "]", 20, 'expected "," or "}" after the value of "stage", found "]"'),
        {"zero": {"stage": 3}},
    ),
    (
        '{"a": [1, 2}, "b": 3}',
        *("wrong-bracket", "}", 11, 'expected "," or "]" after item 2 of "a", found "}"'),
        {"a": [1, 2], "b": 3},
    ),
    (
        '{\n  "a": [\n    1\n  },\n  "b": 2\n}',
        *("wrong-bracket", "}", 19, 'expected "," or "]" after item 1 of "a", found "}" (to close the "[" of "a" on line 2)'),
        {"a": [1], "b": 2},
    ),
    ('{"stage": [1, 2}', *("unclosed-bracket", "[", 10, 'the "[" of "stage" is not closed: found "}"'), {"stage": [1, 2]}),
    ('{"a": [1, 2, "b": 3}', *("unclosed-bracket", "[", 6, 'the "[" of "a" is not closed before "b"'), {"a": [1, 2], "b": 3}),
    ('{"a": 1', *("unclosed-bracket", "{", 0, 'the "{" that opens the file is never closed'), {"a": 1}),
    (
        '{"a": {"b": 2',
        *("unclosed-bracket", "{", 6, 'the "{" of "a" is never closed, and neither is the bracket around it'),
        {"a": {"b": 2}},
    ),
    (
        '{"a": [1, {"b": 2',
        *("unclosed-bracket", "{", 10, 'the "{" of item 2 of "a" is never closed, and neither are the 2 brackets around it'),
        {"a": [1, {"b": 2}]},
    ),
    (
        '{\n  "a": {\n    "b": 1,\n  "c": {\n    "d": 2\n  }\n}\n',
        *("unclosed-bracket", "{", 9, 'the "{" of "a" is not closed before line 4'),
        {"a": {"b": 1}, "c": {"d": 2}},
    ),
    ('{"a": 1}}', *("stray-bracket", "}", 8, 'unmatched "}": all brackets are already closed'), {"a": 1}),
    ('{"a": {"b": [1]]}}', *("stray-bracket", "]", 15, 'unmatched "]": no "[" is open'), {"a": {"b": [1]}}),
    (
        '{\n  "a": {"b": 1}},\n  "c": 2\n}\n',
        *("stray-bracket", "}", 17, 'this "}" closes the whole config, but more text follows'),
        {"a": {"b": 1}, "c": 2},
    ),
    ('"a": 1,\n"b": 2\n}', *("stray-bracket", "}", 15, 'unmatched "}": the file does not begin with one'), {"a": 1, "b": 2}),
    (
        '{"a": "b": 1}, "c": 2}',
        *("missing-bracket", '"b"', 6, 'expected "{" or a value after the key "a", found the key "b"'),
        {"a": {"b": 1}, "c": 2},
    ),
    # Keys and colons.
    ('{"stage" 3}', *("missing-colon", "3", 9, 'expected ":" after the key "stage", found "3"'), {"stage": 3}),
    ('{"a" = 1, "b": 2}', *("missing-colon", "=", 5, 'expected ":" after the key "a", found "="'), {"a": 1, "b": 2}),
    ('{a=1, "b": 2}', *("missing-colon", "=", 2, 'expected ":" after the key "a", found "="'), {"a": 1, "b": 2}),
    ('{"a": 1, "b"}', *("missing-colon", "}", 12, 'expected ":" after the key "b", found "}"'), {"a": 1}),
    ('{"a"', *("missing-colon", '"a"', 1, 'expected ":" after the key "a", found the end of the file'), {}),
    ("{fp16 {enabled: true\n}}", *("missing-colon", "{", 6, 'expected ":" after the key "fp16", found "{"'), {"fp16": {"enabled": True}}),
    ('{: 1, "b": 2}', *("missing-key", ":", 1, 'expected a key or "}", found ":"'), {"b": 2}),
    ('{{"a": 1}', *("missing-key", "{", 1, 'expected a key or "}", found "{"'), {"a": 1}),
    ('{"a": {{ x }}, "b": 1}', *("missing-key", "{", 7, 'expected a key or "}", found "{"'), {"a": {}, "b": 1}),
    ("{my key: 1}", *("key-needs-quotes", "my key", 1, 'the key "my key" contains a blank and must be quoted'), {"my key": 1}),
    (
        "{\u201cmy key\u201d: 1}",
        *("key-needs-quotes", "\u201cmy key\u201d", 1, 'the key “my key” has curly quotes; write "my key"'),
        {"my key": 1},
    ),
    # Values and commas.
    ('{"a": , "b": 2}', *("missing-value", ",", 6, 'expected a value for "a", found ","'), {"b": 2}),
    ('{"a": }', *("missing-value", "}", 6, 'expected a value for "a", found "}"'), {}),
    ('{"a":', *("missing-value", '"a"', 1, 'expected a value for "a", found the end of the file'), {}),
    ('{"a":: 1}', *("missing-value", ":", 5, 'expected a value for "a", found ":"'), {"a": 1}),
    ('{"a": 1,, "b": 2}', *("extra-comma", ",", 8, 'found a second comma after the value of "a"'), {"a": 1, "b": 2}),
    ('{"a": [1,,2]}', *("extra-comma", ",", 9, 'found a second comma after item 1 of "a"'), {"a": [1, 2]}),
    ('{, "a": 1}', *("extra-comma", ",", 1, 'expected a key or "}", found ","'), {"a": 1}),
    ('{"a": [,1]}', *("extra-comma", ",", 7, 'expected an item or "]", found ","'), {"a": [1]}),
    (
        '{"a": ["x": 1, "y": 2]}',
        *("extra-colon", ":", 10, 'expected "," or "]" after item 1 of "a", found ":" (a list has no keys)'),
        {"a": ["x", 1, "y", 2]},
    ),
    ('{"a": 1 "b": 2}', *("missing-comma", '"b"', 8, 'expected "," or "}" after the value of "a", found "b"'), {"a": 1, "b": 2}),
    ('{"a": [1 2]}', *("missing-comma", "2", 9, 'expected "," or "]" after item 1 of "a", found "2"'), {"a": [1, 2]}),
    ('{"a": "x"; "b": 2}', *("missing-comma", ";", 9, 'expected "," or "}" after the value of "a", found ";"'), {"a": "x", "b": 2}),
    # Unquoted text that takes the rest of its line with it.
    (
        '{"a": True}',
        *("unquoted-text", "True", 6),
        'the value of "a" is not quoted, so it extends to the end of the line and includes "}": write true',
        {"a": True},
    ),
    (
        '{"a": [0, None], "b": 1}',
        *("unquoted-text", "None", 10),
        'item 2 of "a" is not quoted, so it extends to the end of the line and includes "], "b": 1}": write null',
        {"a": [0, None], "b": 1},
    ),
    (
        '{"a": AdamW, "b": 1}',
        *("unquoted-text", "AdamW", 6),
        'the value of "a" is not quoted, so it extends to the end of the line and includes ", "b": 1}": put it in quotes',
        {"a": "AdamW", "b": 1},
    ),
    (
        '{"a": AdamW", "b": 1}',
        *("unquoted-text", 'AdamW"', 6),
        'the value of "a" is not quoted, so it extends to the end of the line and includes ", "b": 1}": its opening quote is missing',
        {"a": "AdamW", "b": 1},
    ),
    (
        '{"a": \u201cx\u201d}',
        *("unquoted-text", "\u201cx\u201d", 6),
        'the value of "a" is not quoted, so it extends to the end of the line and includes "}": replace the curly quotes: write "x"',
        {"a": "x"},
    ),
    (
        '{"a": NaN}',
        *("unquoted-text", "NaN", 6),
        'the value of "a" is not quoted, so it extends to the end of the line and includes "}": DeepSpeed\'s loader does not support this number',
        {"a": "NaN"},
    ),
    # Strings.
    (
        '{"a": "x,\n "b": 2}',
        *("unclosed-string", '"x', 6, 'the value of "a" opens with " and is not closed before the end of its line'),
        {"a": "x", "b": 2},
    ),
    (
        '{"a": {"b": "x},\n "c": 2}',
        *("unclosed-string", '"x', 12, 'the value of "b" opens with " and is not closed before the end of its line'),
        {"a": {"b": "x"}, "c": 2},
    ),
    (
        '{"dir": "C:\\\\tmp\\"\n}',
        *("unclosed-string", '"C:\\\\tmp\\"', 8),
        'the value of "dir" opens with " and is not closed before the end of its line (\\" does not close a string)',
        {"dir": 'C:\\tmp"'},
    ),
    (
        '{"stage: 3,\n "b": 2}',
        *("unclosed-string", '"stage: 3', 1, 'the key opens with " and is not closed before the end of its line'),
        {"stage": 3, "b": 2},
    ),
    (
        '{"stage: "x", "b": 2}',
        *("unclosed-string", '"stage', 1, 'the key opens with " and is not closed before the colon'),
        {"stage": "x", "b": 2},
    ),
    ("{a: '''x\n}", *("unclosed-string", "'''", 4, "the value of \"a\" opens with ''' and is never closed"), {"a": "x\n}"}),
    ('{"a"": 1, "b": 2}', *("second-quote", '"', 4, 'extra quote after the key "a"'), {"a": 1, "b": 2}),
    ('{""a": 1, "b": 2}', *("second-quote", '"', 1, 'extra quote before the key "a"'), {"a": 1, "b": 2}),
    ('{"a": "x"", "b": 2}', *("second-quote", '"', 9, 'extra quote after the value of "a"'), {"a": "x", "b": 2}),
    ('{"a": ""x", "b": 2}', *("second-quote", '"', 6, 'extra quote before the value of "a"'), {"a": "x", "b": 2}),
    ('{"a": "x\ty"}', *("control-character", "\t", 8, 'the value of "a" has a raw tab in its quotes; write "\\t"'), {"a": "x\ty"}),
    (
        '{"a": "\x01"}',
        *("control-character", "\x01", 7, 'the value of "a" has the control character U+0001 in its quotes'),
        {"a": "\x01"},
    ),
    (
        '{"a": "C:\\Users\\x"}',
        *("bad-escape", "\\U", 9),
        'the value of "a" has the escape "\\U", which JSON does not know; write a backslash as "\\\\"',
        {"a": "C:\\Users\\x"},
    ),
    (
        '{"\\u12": 1}',
        *("bad-escape", "\\u", 2, 'the key has a "\\u" without four hex digits; write a backslash as "\\\\"'),
        {"\\u12": 1},
    ),
    (
        "a: '''x'''",
        *("multiline-first-line", "'''", 3),
        "the value of \"a\" is a ''' string in a file without a line end, which crashes DeepSpeed's loader",
        {"a": "x"},
    ),
    # Numbers.
    (
        '{"a": 1e999, "b": 2}',
        *("number-too-large", "1e999", 6, 'the value of "a" is too large for a floating-point number and crashes DeepSpeed\'s loader'),
        {"a": float("inf"), "b": 2},
    ),
    (
        "[-" + "1" * 5000 + "]",
        *("integer-too-long", "-" + "1" * 5000, 1, "item 1 of the list has 5000 digits; Python reads integers of at most 4300 digits"),
        [-(10**18)],
    ),
    # The file as a whole.
    ('{"a": 1 /* b\n}', *("unclosed-comment", "/*", 8, 'this comment opens with "/*" and is never closed'), {"a": 1}),
    ('{"a": 1} {"b": 2}', *("extra-text", "{", 9, 'expected the end of the file after the config, found "{"'), {"a": 1}),
    ("[1, 2] or so", *("extra-text", "or", 7, 'expected the end of the file after the config, found "or"'), [1, 2]),
]


@pytest.mark.parametrize(("text", "kind", "at", "offset", "message", "value"), ONE_PROBLEM, ids=[case[0][:24] for case in ONE_PROBLEM])
def test_one_mistake_gives_one_problem_and_the_rest_is_read(
    text: str, kind: str, at: str, offset: int, message: str, value: object
) -> None:
    document = parse(text)
    assert said(text) == [(kind, at, message)]
    assert document.problems[0].span.start == offset
    assert document.root is not None
    assert plain(document.root) == value


@pytest.mark.parametrize(
    ("text", "kind", "at", "message"),
    [
        ("hello world\nfoo bar", "no-object", "hello", 'expected "{" at the start of the file, found "hello"'),
        ("a = 1\nb = 2", "no-object", "a", 'expected "{" at the start of the file, found "a"'),
        ("}", "stray-bracket", "}", 'unmatched "}": the file does not begin with one'),
        ("\ufeff", "empty", "\ufeff", "the file is empty after the byte order mark, which crashes DeepSpeed's loader"),
        ("\ufeff# c", "empty", "\ufeff", "the file is empty after the byte order mark, which crashes DeepSpeed's loader"),
    ],
)
def test_a_text_that_is_no_config_is_said_to_be_none(text: str, kind: str, at: str, message: str) -> None:
    assert said(text) == [(kind, at, message)]


def test_every_mistake_is_reported() -> None:
    text = '{\n  "a" 1,\n  "b": "x\ty",\n  "c": [1, True],\n  "d": 4,\n  "e": 5,\n  "f: 6,\n  "g" = 7\n}'
    assert [(kind, at) for kind, at, _ in said(text)] == [
        ("missing-colon", "1"),
        ("control-character", "\t"),
        ("unquoted-text", "True"),
        ("unclosed-string", '"f: 6'),
        ("missing-colon", "="),
    ]
    root = parse(text).root
    assert root is not None
    assert plain(root) == {"a": 1, "b": "x\ty", "c": [1, True], "d": 4, "e": 5, "f": 6, "g": 7}


def test_the_words_that_swallow_their_line_are_all_reported() -> None:
    text = '{"a": {"b": True}, "c": [True, False]}'
    assert [at for _, at, _ in said(text)] == ["True", "True", "False"]


def test_long_and_odd_keys_are_shown_on_one_line() -> None:
    (message,) = [message for _, _, message in said('{"' + "k" * 100 + '" 1}')]
    assert message == f'expected ":" after the key "{"k" * 37}...", found "1"'
    (message,) = [message for _, _, message in said('{"a\\n\\ud800" 1}')]
    assert message == 'expected ":" after the key "a\\u000a\\ud800", found "1"'


def test_the_list_of_problems_has_an_end() -> None:
    text = "{\n" + '"a" 1\n' * 1000 + "}"
    document = parse(text)
    assert len(document.problems) == MAX_PROBLEMS
    assert document.root is not None


@pytest.mark.parametrize("drop", [index for index, char in enumerate(CONFIG) if char in '{}[]:"'])
def test_a_config_without_one_of_its_characters(drop: int) -> None:
    text = CONFIG[:drop] + CONFIG[drop + 1 :]
    document = parse(text)
    # hjson forgives a few: the outer braces, an opening quote before a key.
    assert len(document.problems) <= 1
    assert document.root is not None


@pytest.mark.parametrize("double", [index for index, char in enumerate(CONFIG) if char in '{}[]:",'])
def test_a_config_with_one_of_its_characters_twice(double: int) -> None:
    text = CONFIG[:double] + CONFIG[double] + CONFIG[double:]
    assert len(parse(text).problems) == 1


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 2, 10_000, 200_000])
@pytest.mark.parametrize("closed", [True, False])
def test_depth_has_a_limit(opening: str, closing: str, depth: int, closed: bool) -> None:
    depth //= len(closing)
    text = opening * depth + "1\n" + (closing * depth if closed else "")
    document = parse(text)
    assert document.root is not None
    plain(document.root)
    kinds = [problem.kind for problem in document.problems]
    if depth * len(closing) > MAX_DEPTH:
        assert kinds == ["nesting-too-deep"]
        assert document.problems[0].message == "brackets nested more than 400 deep crash DeepSpeed's loader"
    else:
        assert kinds == ([] if closed else ["unclosed-bracket"])


def test_what_follows_a_deep_value_is_read() -> None:
    text = '{"a": ' + "[" * 500 + "]" * 500 + ', "b": 2}'
    document = parse(text)
    assert [problem.kind for problem in document.problems] == ["nesting-too-deep"]
    assert document.root is not None
    assert document.lookup(("b",)) is not None
