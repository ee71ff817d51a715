"""Which lines are shown, and that the carets stand where they should."""

from __future__ import annotations

import pytest

from dslint.diagnostics import Place, Range
from dslint.report.excerpt import Mark, draw, sections
from dslint.report.style import Style, columns
from dslint.source.parse import parse
from dslint.source.tree import Document

from .scenes import place


def drawn(document: Document, where: Range, label: str = "", *, context: tuple[int, ...] = (), width: int = 80) -> list[str]:
    return draw(document, [Mark(where, label, "red", primary=True)], context, 1, Style(color=False, width=width))


@pytest.mark.parametrize(
    ("line", "marked", "carets"),
    [
        ('{"stage": 3}', "3", "          ^"),
        ('\t{"stage": 3}', '"stage"', "     ^^^^^^^"),
        ('{"名前": 3}', "3", "         ^"),
        ('{"模": "型"}', '"型"', "       ^^^^"),
        ('{"e\u0301": 3}', "3", "      ^"),
        ('{"a\x1bb": 3}', "3", "        ^"),
        ('{"\u200b": 3}', "3", "             ^"),
    ],
)
def test_carets_stand_under_what_is_meant(line: str, marked: str, carets: str) -> None:
    document = parse(line)
    assert drawn(document, place(document, marked))[1] == "  | " + carets


def test_an_empty_range_has_one_caret_even_past_the_end() -> None:
    document = parse("{")
    assert drawn(document, Range(Place(1, 2, 1), Place(1, 2, 1))) == ["1 | {", "  |  ^"]


def test_of_several_lines_the_first_is_underlined_to_its_end() -> None:
    document = parse('{"a": {\n"b": 1}}')
    assert drawn(document, Range(Place(1, 7, 6), Place(2, 8, 15))) == ['1 | {"a": {', "  |       ^"]


def test_a_place_outside_the_file_is_drawn_at_its_edge() -> None:
    document = parse("{}\n")
    assert drawn(document, Range(Place(9, 9, 99), Place(9, 10, 100))) == ["2 |", "  | ^"]


def test_one_line_is_shown_rather_than_dots() -> None:
    document = parse('{\n"a": 1,\n"b": 1,\n"c": 1,\n"d": 2\n}')
    where = place(document, '"d"')
    assert drawn(document, where, context=(3,)) == ['3 | "b": 1,', '4 | "c": 1,', '5 | "d": 2', "  | ^^^"]
    assert drawn(document, where, context=(2,)) == ['2 | "a": 1,', "...", '5 | "d": 2', "  | ^^^"]
    assert drawn(document, where, context=(0, 5, 6, 77)) == ['5 | "d": 2', "  | ^^^"]


def test_the_sections_around_a_place_the_nearest_three() -> None:
    document = parse('{\n"a": [{\n"b": {\n"c": {\n"d": {\n"e": 1}}}}]}')
    assert sections(document, document.text.index("1")) == [4, 5, 6]
    assert sections(document, document.text.index('"b"')) == [2, 3]
    assert sections(document, 0) == []


def test_a_label_stands_beside_or_below() -> None:
    document = parse('{"a": 1}')
    where = place(document, '"a"')
    assert drawn(document, where, "short")[1:] == ["  |  ^^^ short"]
    long = "a label that is too long for its line"
    assert drawn(document, where, long, width=40)[1:] == ["  |  ^^^ a label that is too long for", "  |      its line"]
    assert drawn(document, where, long, width=24)[1:] == ["  |  ^^^", "  | a label that is too", "  | long for its line"]


@pytest.mark.parametrize("width", [24, 40, 80, 120])
@pytest.mark.parametrize("letter", ["x", "型", "e\u0301"])
def test_a_long_line_is_cut_around_the_place(width: int, letter: str) -> None:
    document = parse(f'{{"a": "{letter * 500}", "b": 77, "c": "{letter * 500}"}}')
    text, carets = drawn(document, place(document, "77"), width=width)
    assert "77" in text
    assert text[4] == text[-1] == "…"
    assert columns(text) <= width
    assert columns(text[: text.index("77")]) == carets.index("^")
    assert carets.count("^") == 2
