"""Many cases in one test: none of them is lost."""

from __future__ import annotations

import pytest

from tests.cases import table


def notes_of(group: BaseExceptionGroup[BaseException]) -> list[str]:
    return [note for error in group.exceptions for note in error.__notes__]


def test_each_failing_case_of_a_table_is_named() -> None:
    tried = []

    @table("number, word", [(1, "one"), (2, "two"), (3, "three")], ids=lambda row: row[1])
    def test(number: int, word: str) -> None:
        tried.append(word)
        assert number == 2

    with pytest.raises(BaseExceptionGroup, match="2 cases fail") as raised:
        test()
    assert tried == ["one", "two", "three"]
    assert notes_of(raised.value) == ["in the case one", "in the case three"]


def test_what_pytest_raises_itself_ends_no_other_case() -> None:
    """A case that skips, or in which `pytest.raises` fails, must not hide the cases before and after it."""

    @table("kind", ["assertion", "skip", "nothing raised", "passes", "assertion"])
    def test(kind: str) -> None:
        assert kind != "assertion"
        if kind == "skip":
            pytest.skip("not here")
        if kind == "nothing raised":
            with pytest.raises(ValueError, match="never"):
                pass

    with pytest.raises(BaseExceptionGroup) as raised:
        test()
    assert notes_of(raised.value) == [f"in the case {kind!r}" for kind in ("assertion", "skip", "nothing raised", "assertion")]


def test_a_table_without_cases_is_refused() -> None:
    with pytest.raises(AssertionError, match="tests nothing"):
        table("number", [])
