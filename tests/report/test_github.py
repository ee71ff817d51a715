"""Annotations, as GitHub's runner would read them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dslint.config.context import Context
from dslint.diagnostics import Effect, Place, Range
from dslint.lint.results import FileResult, Results
from dslint.report.github import command, escape
from dslint.source.parse import parse

from .runner import Command, read
from .scenes import files, found, hostile, written


@given(st.text(st.characters(exclude_characters=" \t")), st.text())
def test_the_runner_reads_what_was_meant(value: str, message: str) -> None:
    line = command("error", {"file": value, "line": "1"}, message)
    assert "\n" not in line
    assert "\r" not in line
    assert read(line)[0] == [Command("error", {"file": value, "line": "1"}, message)]


def test_what_is_escaped_already_stays_so() -> None:
    assert escape("100%0A") == "100%250A"
    assert escape("a:b,c") == "a:b,c"
    assert escape("a:b,c", in_property=True) == "a%3Ab%2Cc"


def test_columns_only_within_one_line() -> None:
    broken, agree, unreadable = read(written(files(), "github"))[0]
    assert broken.properties == {"file": "b.json", "line": "3", "endLine": "5", "title": "DS001 syntax-error"}
    assert agree.properties == {
        "file": "ds.json",
        "line": "1",
        "endLine": "1",
        "col": "11",
        "endColumn": "26",
        "title": "DS911 precision-differs",
    }
    assert unreadable.properties == {"file": "x.json", "title": "dslint"}


def many(count: int, *effects: Effect) -> Results:
    places = [Range(Place(1, number, number - 1), Place(1, number + 1, number)) for number in range(1, count + 1)]
    diagnostics = tuple(
        found("a.json", "DS103", f"n{number}", effect, f"m of {chr(97 + number)}", range=place)
        for number, place in enumerate(places)
        for effect in effects
    )
    return Results(Context(), (FileResult("a.json", "ds_config", parse("{}"), diagnostics),))


def test_no_more_than_github_shows_and_the_loudest_first() -> None:
    commands, log = read(written(many(12, Effect.SLOW, Effect.SILENT, Effect.IGNORED), "github"))
    assert [c.name for c in commands] == ["error"] * 10 + ["warning"] * 10 + ["notice"] * 10
    assert log[-2] == "6 findings not annotated: GitHub shows 10 of each severity per step."
    assert sum(line.startswith("error[") for line in log) == 12


def test_what_is_all_shown_needs_no_words() -> None:
    commands, log = read(written(many(10, Effect.SLOW), "github"))
    assert len(commands) == 10
    assert "annotated" not in "\n".join(log)


def test_the_log_is_the_full_report_and_holds_no_commands() -> None:
    commands, log = read(written(hostile(), "github"))
    assert {c.name for c in commands} == {"warning"}
    assert "\n".join(log) == written(hostile(), "full")
    assert any(line.endswith("set-env name=X::y") and not line.startswith("::") for line in log)


@pytest.mark.parametrize(
    ("path", "expected"),
    [("sub/ds.json", "work/sub/ds.json"), ("../ds.json", "ds.json"), ("../../ds.json", "../../ds.json"), ("<stdin>", None)],
)
def test_paths_start_at_the_root(path: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "repository"
    (repository / "work").mkdir(parents=True)
    monkeypatch.chdir(repository / "work")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(repository))
    results = Results(Context(), (FileResult(path, "ds_config", None, (found(path, "DS103", "n", Effect.SLOW, "m"),)),))
    (annotation,) = read(written(results, "github"))[0]
    assert annotation.properties.get("file") == expected


def test_an_annotation_says_what_happens_and_what_to_write() -> None:
    diagnostic = found("a.json", "DS501", "n", Effect.IGNORED, "found.", help="do this.", url="https://example.org")
    (annotation,) = read(written(Results(Context(), (FileResult("a.json", "ds_config", None, (diagnostic,)),)), "github"))[0]
    assert annotation.message == "found.\neffect: What is written has no effect\nhelp: do this.\nhttps://example.org"
