"""Changes said in paths, made into edits: what is not spoken of stays, byte for byte."""

from __future__ import annotations

import ast
import json
import pprint

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dslint.frameworks.programs import read_python
from dslint.source.change import Change, Insert, Move, Remove, Rename, Set
from dslint.source.edit import CannotChange, apply, edits_for, to_strict_json
from dslint.source.edit_yaml import line_of
from dslint.source.parse import parse
from dslint.source.tree import Document, Mapping, Member, plain
from dslint.source.yaml_tree import parse_yaml

TEXT = '{\n  "a": 1, // one\n  "b": {"c": 2, "d": 3},\n  "e": 4\n}\n'
LOOSE = "a: 1\nb: text here\nc: {x: 1\n y: 2}\n"


def changed(text: str, *changes: Change) -> str:
    return apply(text, edits_for(parse(text), changes))


@pytest.mark.parametrize(
    ("text", "change", "after"),
    [
        (TEXT, Remove(("a",)), '{\n  // one\n  "b": {"c": 2, "d": 3},\n  "e": 4\n}\n'),
        (TEXT, Remove(("b",)), '{\n  "a": 1, // one\n  "e": 4\n}\n'),
        (TEXT, Remove(("e",)), '{\n  "a": 1, // one\n  "b": {"c": 2, "d": 3}\n}\n'),
        (TEXT, Remove(("b", "c")), TEXT.replace('"c": 2, ', "")),
        (TEXT, Remove(("b", "d")), TEXT.replace(', "d": 3', "")),
        (TEXT, Insert(("b",), "x", "5"), TEXT.replace('"d": 3}', '"d": 3, "x": 5}')),
        (TEXT, Insert((), "x", "5"), TEXT.replace('"e": 4\n', '"e": 4,\n  "x": 5\n')),
        (TEXT, Insert(("n", "m"), "x", "5"), TEXT.replace('"e": 4\n', '"e": 4,\n  "n": {"m": {"x": 5}}\n')),
        (TEXT, Move(("b", "d"), ("d",)), TEXT.replace(', "d": 3', "").replace('"e": 4\n', '"e": 4,\n  "d": 3\n')),
        (TEXT, Rename(("b", "c"), "zz"), TEXT.replace('"c"', '"zz"')),
        (TEXT, Set(("e",), '"auto"'), TEXT.replace("4", '"auto"')),
        (TEXT.replace("\n", "\r\n"), Insert((), "x", "5"), TEXT.replace('"e": 4\n', '"e": 4,\n  "x": 5\n').replace("\n", "\r\n")),
        ('{"a":1}', Remove(("a",)), "{}"),
        ('{"a":1,}', Insert((), "b", "2"), '{"a":1, "b": 2,}'),
        ("{}", Insert((), "b", "2"), '{"b": 2}'),
        (LOOSE, Remove(("a",)), LOOSE.replace("a: 1\n", "")),
        (LOOSE, Remove(("b",)), LOOSE.replace("b: text here\n", "")),
        (LOOSE, Insert((), "z", "1"), LOOSE.replace("y: 2}\n", "y: 2}\nz: 1\n")),
        (LOOSE, Rename(("b",), "other"), LOOSE.replace("b:", "other:")),
        ("[1, 2, 3]", Remove((1,)), "[1, 3]"),
    ],
)
def test_a_change(text: str, change: Change, after: str) -> None:
    assert changed(text, change) == after
    assert not parse(after).problems


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (TEXT, Remove(("zz",))),
        (TEXT, Insert((), "a", "1")),
        (TEXT, Insert(("a",), "x", "1")),
        ("{a: one two}", Insert((), "x", "1")),
        ("", Insert((), "x", "1")),
    ],
)
def test_what_cannot_be_changed(text: str, change: Change) -> None:
    with pytest.raises(CannotChange):
        changed(text, change)


def test_two_changes_that_touch_the_same_text() -> None:
    with pytest.raises(CannotChange):
        edits_for(parse(TEXT), [Remove(("b",)), Set(("b", "c"), "1")])


def values() -> st.SearchStrategy[object]:
    scalars = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text("ab\"'\\ é/#,:{}", max_size=6)
    return st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | objects(inner), max_leaves=12)


def objects(inner: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    return st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), inner, max_size=4)


def paths(document: Document) -> list[tuple[str | int, ...]]:
    found: list[tuple[str | int, ...]] = []

    def walk(node: object, path: tuple[str | int, ...]) -> None:
        for member in node.members if isinstance(node, Mapping) else ():
            found.append((*path, member.key.value))
            walk(member.value, (*path, member.key.value))

    walk(document.root, ())
    return found


def without(data: object, path: tuple[str | int, ...]) -> object:
    data = json.loads(json.dumps(data))
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return data


@pytest.mark.slow
@given(objects(values()), st.sampled_from([None, 2, "\t"]), st.data())
def test_any_key_can_be_taken_out_renamed_and_put_in(config: dict[str, object], indent: int | str | None, data: st.DataObject) -> None:
    text = json.dumps(config, indent=indent, ensure_ascii=False)
    document = parse(text)
    for path in paths(document)[:6]:
        assert json.loads(changed(text, Remove(path))) == without(config, path)
        renamed = json.loads(changed(text, Rename(path, "renamed")))
        assert without(renamed, (*path[:-1], "renamed")) == without(config, path)
        literal = json.dumps(data.draw(values()), ensure_ascii=False)
        assert without(json.loads(changed(text, Set(path, literal))), path) == without(config, path)
    fresh = json.loads(changed(text, Insert((), "inserted", "[1]")))
    assert fresh == {**config, "inserted": [1]}


@pytest.mark.slow
@given(objects(values()), st.data())
def test_strict_json_says_the_same(config: dict[str, object], data: st.DataObject) -> None:
    comments = data.draw(st.lists(st.sampled_from(["// one\n", "# two\n", "/* three */ "]), max_size=3))
    lines = [f"{json.dumps(key)}: {json.dumps(value)}{data.draw(st.sampled_from([',', '']))}\n" for key, value in config.items()]
    for comment in comments:
        lines.insert(data.draw(st.integers(0, len(lines))), comment)
    text = data.draw(st.sampled_from(["{\n%s}", "%s"])) % "".join(lines)
    document = parse(text)
    if document.problems or not isinstance(document.root, Mapping) or not document.root.members:
        return
    strict = apply(text, edits_for(document, to_strict_json(document, comments=True)))
    assert json.loads(strict) == plain(document.root) == config


BLOCK = """\
# the head
lr: 1e-4
deepspeed:
  zero_optimization:   # why
    stage: 2
    overlap_comm: true # comment
  bf16: {enabled: true}
  list:
    - a: 1
      b: 2
empty:
last: x
"""


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (Set(("deepspeed", "zero_optimization", "stage"), "3"), BLOCK.replace("stage: 2", "stage: 3")),
        (Set(("empty",), "5"), BLOCK.replace("empty:", "empty: 5")),
        (Rename(("deepspeed", "zero_optimization"), "zero"), BLOCK.replace("zero_optimization", "zero")),
        (Remove(("deepspeed", "zero_optimization", "stage")), BLOCK.replace("    stage: 2\n", "")),
        (Remove(("deepspeed", "zero_optimization", "overlap_comm")), BLOCK.replace("overlap_comm: true ", "")),
        (Remove(("deepspeed", "bf16")), BLOCK.replace("  bf16: {enabled: true}\n", "")),
        (Remove(("deepspeed", "list", 0, "b")), BLOCK.replace("      b: 2\n", "")),
        (Remove(("empty",)), BLOCK.replace("empty:\n", "")),
        (Insert(("deepspeed", "zero_optimization"), "x", "true"), BLOCK.replace("comment\n", "comment\n    x: true\n")),
        (Insert(("deepspeed", "bf16"), "no", "1"), BLOCK.replace("true}", 'true, "no": 1}')),
        (Insert((), "on", "1"), BLOCK + '"on": 1\n'),
        (Insert(("fp16",), "enabled", "true"), BLOCK + 'fp16: {"enabled": true}\n'),
        (Insert(("deepspeed", "list", 0), "c", "3"), BLOCK.replace("b: 2\n", "b: 2\n      c: 3\n")),
        (Move(("deepspeed", "bf16"), ("bf16",)), BLOCK.replace("  bf16: {enabled: true}\n", "") + "bf16: {enabled: true}\n"),
    ],
)
def test_a_change_of_yaml(change: Change, after: str) -> None:
    got = apply(BLOCK, edits_for(parse_yaml(BLOCK), [change]))
    assert got == after
    assert not parse_yaml(got).problems
    crlf = BLOCK.replace("\n", "\r\n")
    assert apply(crlf, edits_for(parse_yaml(crlf), [change])).replace("\r\n", "\n") == got


SHARED = """\
base: &base
  stage: 2
  x: 1
one:
  <<: *base
  y: 2
two: *base
three: {stage: *base}
"""


@pytest.mark.parametrize(
    "change",
    [
        Set(("one", "stage"), "3"),
        Remove(("two", "x")),
        Rename(("one", "x"), "z"),
        Insert(("two",), "z", "1"),
        Remove(("base", "zz")),
        Move(("base",), ("three", "base")),
    ],
)
def test_what_aliases_bring_is_left_alone(change: Change) -> None:
    with pytest.raises(CannotChange):
        edits_for(parse_yaml(SHARED), [change])


@pytest.mark.slow
@settings(deadline=None)
@given(objects(values()), st.sampled_from([None, False]), st.integers(1, 4), st.data())
def test_any_key_of_yaml_can_be_taken_out_renamed_and_put_in(
    config: dict[str, object], style: bool | None, indent: int, data: st.DataObject
) -> None:
    text = yaml.safe_dump(config, default_flow_style=style, indent=indent, sort_keys=False, allow_unicode=True)
    document = parse_yaml(text)

    def attempt(change: Change) -> object:
        try:
            return yaml.safe_load(apply(text, edits_for(document, [change])))
        except CannotChange:
            return None

    for path in paths(document)[:6]:
        removed = attempt(Remove(path))
        assert removed is None or removed == without(config, path)
        renamed = attempt(Rename(path, "renamed"))
        assert without(renamed, (*path[:-1], "renamed")) == without(config, path)
        value = data.draw(values())
        fresh = attempt(Set(path, json.dumps(value)))
        assert fresh is None or without(fresh, path) == without(config, path)
    assert attempt(Insert((), "inserted", "[1]")) in (None, {**config, "inserted": [1]})
    if config:
        assert attempt(Insert((), "inserted", "[1]")) is not None


def python_of(text: str) -> Document:
    """The first dict of a program, as a config in it."""
    found = read_python(f"import deepspeed\ndeepspeed.initialize(config={text})\n", "train.py")
    assert found is not None
    assert found.calls[0].config is not None
    return Document(found.document.text, found.calls[0].config, comments=found.document.comments, language="python")


def value_of(text: str) -> object:
    """What a changed program hands over."""
    call = ast.parse(text).body[1].value  # type: ignore[attr-defined]
    return ast.literal_eval(call.keywords[0].value)


def attempt_python(document: Document, change: Change) -> object:
    try:
        return value_of(apply(document.text, edits_for(document, [change])))
    except CannotChange:
        return None


@pytest.mark.slow
@settings(deadline=None)
@given(objects(values()), st.integers(20, 80), st.data())
def test_any_key_of_a_python_dict_can_be_taken_out_renamed_and_put_in(config: dict[str, object], width: int, data: st.DataObject) -> None:
    text = pprint.pformat(config, width=width, sort_dicts=False)
    noise = data.draw(st.sampled_from(["", "  # one, two }", "\n    # why: {", "\n"]))
    text = text.replace(",\n", f",{noise}\n").replace("}\n", f"}}{noise}\n")
    document = python_of(text)
    for path in paths(document)[:6]:
        assert attempt_python(document, Remove(path)) == without(config, path)
        assert without(attempt_python(document, Rename(path, "renamed")), (*path[:-1], "renamed")) == without(config, path)
        fresh = attempt_python(document, Set(path, json.dumps(data.draw(values()))))
        assert without(fresh, path) == without(config, path)
    assert attempt_python(document, Insert((), "inserted", "[1, true]")) == {**config, "inserted": [1, True]}


ODD = """{
    "a": (1),  # one
    'b': ("two"
          "halves"), ("c"): 3,
    "d": f"{'{'}x", "e": [(1), 2,],
    "f": {"g": flag}  # last
}"""


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (Remove(("a",)), ODD.replace('    "a": (1),  # one\n', "    # one\n")),
        (Remove(("b",)), ODD.replace('\'b\': ("two"\n          "halves"), ', "")),
        (Set(("b",), "false"), ODD.replace('("two"\n          "halves")', "False")),
        (Rename(("c",), "z"), ODD.replace('("c")', '("z")')),
        (Remove(("f", "g")), ODD.replace('"g": flag', "")),
        (Insert((), "h", "null"), ODD.replace("flag}", 'flag},\n    "h": None')),
        (Insert(("new",), "h", '"x"'), ODD.replace("flag}", 'flag},\n    "new": {"h": \'x\'}')),
        (Set(("f", "g"), "1"), None),
        (Set(("d",), "1"), None),
        (Remove(("c",)), None),
    ],
)
def test_a_change_of_a_python_dict(change: Change, after: str | None) -> None:
    document = python_of(ODD)
    if after is None:
        with pytest.raises(CannotChange):
            edits_for(document, [change])
    else:
        changed_text = apply(document.text, edits_for(document, [change]))
        assert changed_text == document.text.replace(ODD, after)
        ast.parse(changed_text)


LAYOUTS = ("{%s}", "{\n  %s\n}", "{ %s }", "{\n%s}\n", "{%s,}", "{\n  %s,\n}\n", "[{%s}]")
SEPARATORS = (", ", ",", ",\n  ", "\n  , ", ", // note\n  ", ",\n  # note\n  ", " /* note */ , ", "\n  ")


@pytest.mark.slow
@settings(max_examples=300)
@given(st.sampled_from(LAYOUTS), st.lists(st.sampled_from(SEPARATORS), min_size=5, max_size=5), st.sets(st.integers(0, 5), min_size=1))
def test_several_neighbours_are_taken_out_at_once(layout: str, separators: list[str], gone: set[int]) -> None:
    members = [f'"k{number}": {[1, "true", chr(34) + "w" + chr(34), "[1, 2]", "{}", "null"][number]}' for number in range(6)]
    text = layout % "".join(member + separator for member, separator in zip(members, [*separators, ""], strict=True))
    document = parse(text)
    root = document.root
    assert root is not None
    here = (0,) if layout.startswith("[") else ()
    if document.problems:
        return
    edits = edits_for(document, [Remove((*here, f"k{number}")) for number in sorted(gone)])
    after = parse(apply(text, edits))
    assert not after.problems, (text, apply(text, edits))
    data = plain(root)
    for number in gone:
        data = without(data, (*here, f"k{number}"))
    assert after.root is not None
    assert plain(after.root) == data
    assert text.count("note") == apply(text, edits).count("note") or any("note" in text[start:end] for start, end, _ in edits)


@pytest.mark.slow
@given(st.sets(st.integers(0, 4), min_size=1, max_size=4))
def test_several_neighbours_of_yaml_are_taken_out_at_once(gone: set[int]) -> None:
    lines = ["a: 1", "b: {x: 1}", "c:\n  - 1\n  - 2", "d: w  # note", "e: null"]
    text = "\n".join(lines) + "\n"
    after = apply(text, edits_for(parse_yaml(text), [Remove(("abcde"[number],)) for number in sorted(gone)]))
    assert yaml.safe_load(after) == {key: value for number, (key, value) in enumerate(yaml.safe_load(text).items()) if number not in gone}


def test_a_key_of_yaml_without_a_colon_is_left_alone() -> None:
    document = parse_yaml("fp16:\n  enabled: true\nbf16:\n  ? enabled\n")
    section = document.lookup(("bf16",))
    assert isinstance(section, Member)
    assert isinstance(section.value, Mapping)
    assert line_of(document, section.value.members[0])[1] == -1
