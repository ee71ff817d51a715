"""YAML trees: the values are `yaml.safe_load`'s, every span is the thing itself, and no text raises."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dslint.source.tree import Comment, Mapping, Member, Node, Scalar, plain
from dslint.source.yaml_tree import below, parse_yaml


def as_json_has_it(value: Any) -> Any:
    """What `safe_load` gives, with keys as JSON writes them and dates as nothing that is compared."""
    if isinstance(value, dict):
        return {name(key): as_json_has_it(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [as_json_has_it(entry) for entry in value]
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def name(key: Any) -> str:
    return key if isinstance(key, str) else "null" if key is None else str(key).lower() if isinstance(key, bool) else str(key)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@given(DATA, st.sampled_from([True, False, None]))
@settings(deadline=None, max_examples=300)
def test_what_is_dumped_is_read(data: Any, flow: bool | None) -> None:
    text = yaml.safe_dump(data, default_flow_style=flow, allow_unicode=True)
    document = parse_yaml(text)
    assert not document.problems
    assert document.root is not None
    assert plain(document.root) == as_json_has_it(yaml.safe_load(text))
    check_spans(text, document.root)


# fmt: off
PIECES = st.sampled_from([
    "a", "b", ": ", ":\n  ", "- ", "\n", " ", "  ", "\t", "&x ", "*x", "<<: *x\n", "{", "}", "[", "]", ", ", "# c\n", '"', "'",
    "|\n ", "5e8", "1e-5", "no", "yes", "~", "0o7", "0x1F", "1_000", "!!int ", "!t ", "---\n", "...\n", "\xe9", "\U0001f600",
    "2001-01-01", ".inf", "? ", "%", "\ufeff", "\r\n", "\x00", "\x85",
])
# fmt: on


@pytest.mark.slow
@given(st.lists(PIECES, max_size=14).map("".join) | st.text(max_size=30))
@settings(deadline=None, max_examples=800)
def test_any_text_is_read_as_the_safe_loader_reads_it(text: str) -> None:
    document = parse_yaml(text)
    try:
        loaded = yaml.safe_load(text)
    except Exception:  # noqa: BLE001 - PyYAML's own defects count as refusals
        return
    if document.problems:
        assert {problem.kind for problem in document.problems} <= {"key", "alias"}, document.problems
        return
    if document.root is None:
        assert loaded is None
        return
    check_spans(text, document.root)
    if "2001-01-01" not in text:
        assert repr(as_json_has_it(plain(document.root))) == repr(as_json_has_it(loaded))


def check_spans(text: str, node: Node) -> None:
    assert 0 <= node.span.start <= node.span.end <= len(text)
    if isinstance(node, Scalar):
        assert text[slice(*node.span)] == node.raw
    elif isinstance(node, Mapping):
        for member in node.members:
            assert text[slice(*member.key.span)] == member.key.raw
            check_spans(text, member.value)
    else:
        for item in node.items:
            check_spans(text, item)


TEXT = """\
# the first line
base: &base
  learning_rate: 1e-5   # a string to YAML 1.1
  bf16: true
train:
  <<: *base
  bf16: no
  é: [1, "a # b", 'c']   # dslint: ignore[DS904] because
"""


def test_places_comments_and_merge_keys() -> None:
    document = parse_yaml(TEXT)
    assert plain(document.root or Scalar) == {  # type: ignore[arg-type]
        "base": {"learning_rate": "1e-5", "bf16": True},
        "train": {"learning_rate": "1e-5", "bf16": False, "é": [1, "a # b", "c"]},
    }
    found = document.lookup(("train", "bf16"))
    assert isinstance(found, Member)
    assert document.position(found.key.span.start)[:2] == (7, 3)
    assert [document.position(comment.span.start).line for comment in document.comments] == [1, 3, 8]
    assert document.comments[2] == Comment(document.comments[2].span, "# dslint: ignore[DS904] because")
    assert TEXT[slice(*document.comments[2].span)] == document.comments[2].text
    base = document.lookup(("base",))
    assert isinstance(base, Member)
    assert TEXT[slice(*base.span)].endswith("bf16: true")


def test_a_part_knows_its_place_in_the_file() -> None:
    part = below(parse_yaml(TEXT), ("train",))
    assert part is not None
    assert part.in_file(("é", 0)) == ("train", "é", 0)
    assert below(parse_yaml(TEXT), ("base", "bf16")) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a:\n\tb: 1\n", "syntax"),
        ("a: 1\n---\nb: 2\n", "several-documents"),
        ("a: !mine 1\n", "tag"),
        ("a: &x [*x]\n", "alias"),
        ("a: *nowhere\n", "syntax"),
        ("? [1, 2]\n: 3\n", "key"),
        ("a: \x07\n", "character"),
        ("a: {\n", "syntax"),
        ("[" * 4000, "too-deep"),
    ],
)
def test_what_cannot_be_read_is_a_problem_with_a_place(text: str, kind: str) -> None:
    document = parse_yaml(text)
    assert [problem.kind for problem in document.problems] == [kind]
    problem = document.problems[0]
    assert 0 <= problem.span.start <= problem.span.end <= len(text)
    assert problem.message


def test_a_bomb_costs_nothing() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    document = parse_yaml("\n".join(lines))
    assert [problem.kind for problem in document.problems] == ["alias"]


def test_another_process_gets_the_same_tree() -> None:
    document = parse_yaml(TEXT)
    again = pickle.loads(pickle.dumps(document))
    assert again.language == "yaml"
    assert again.text == document.text
    assert plain(again.root) == plain(document.root)
