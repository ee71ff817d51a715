"""Widths, wrapping, and what is made visible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dslint.report.style import Style, columns, paragraphs, visible, wrap


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain é 模型", "plain é 模型"),
        ("a\tb", "a    b"),
        ("\x1b[31m\x07\n\r\x7f", "␛[31m␇␊␍␡"),
        ("\x9b\u202e\u200b\ufeff\u2028\u00a0\ud800", "<U+009B><U+202E><U+200B><U+FEFF><U+2028><U+00A0><U+D800>"),
    ],
)
def test_nothing_reaches_the_terminal_unseen(text: str, expected: str) -> None:
    assert visible(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("abc", 3),
        ("a\tb", 6),
        ("模型", 4),
        ("é", 1),
        ("e\u0301", 1),
        ("\uff46\uff55", 4),
        ("한", 2),
        ("\u1112\u1161\u11ab", 2),
        ("🚀", 2),
        ("\x1b", 1),
    ],
)
def test_columns(text: str, expected: int) -> None:
    assert columns(text) == expected


@given(st.text(), st.text())
def test_columns_add_up(one: str, other: str) -> None:
    assert columns(one + other) == columns(one) + columns(other)


@given(st.text(), st.integers(1, 100))
def test_wrapping_keeps_every_word_and_the_width(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert " ".join(lines).split(" ") == text.split(" ") or "  " in text or text.startswith(" ")
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(columns(line) <= width or " " not in line.strip(" ") for line in lines)


def test_a_path_is_never_broken() -> None:
    assert wrap("see /a/very/long/path/to/a/config.json there", 10) == ["see", "/a/very/long/path/to/a/config.json", "there"]


def test_line_breaks_of_a_message_are_kept() -> None:
    assert paragraphs("one\r\ntwo\nthree four", 10) == ["one", "two", "three four"]


def test_colour_is_asked_for() -> None:
    assert Style(color=True, width=80).paint("x", "red", "bold") == "\x1b[31;1mx\x1b[0m"
    assert Style(color=False, width=80).paint("x", "red", "bold") == "x"
