"""JUnit XML."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

import pytest

from dslint.config.context import Context
from dslint.diagnostics import Effect, Place, Range
from dslint.lint.results import FileResult, Results

from . import readers
from .scenes import SCENES, files, found, hostile, suppressed, written


@pytest.mark.parametrize("scene", SCENES)
def test_it_is_valid_and_there_is_a_suite_per_file(scene: str) -> None:
    results = SCENES[scene]()
    assert len(readers.junit(written(results, "junit"))) == len(results.files)


def outcomes(results: Results) -> list[tuple[str | None, str | None, list[str]]]:
    root = readers.junit(written(results, "junit"))
    return [
        (case.get("classname"), case.get("name"), [outcome.tag for outcome in case]) for suite in root for case in suite.iter("testcase")
    ]


def test_what_came_of_each_file() -> None:
    assert outcomes(files()) == [
        ("a.json", "no findings", []),
        ("accelerate.yaml", "no findings", []),
        ("b.json", "DS001 syntax-error", ["failure"]),
        ("ds.json", "DS911 precision-differs", ["failure"]),
        ("t.json", "template", ["skipped"]),
        ("x.json", "unreadable", ["error"]),
    ]


def test_what_is_suppressed_is_skipped() -> None:
    assert outcomes(suppressed()) == [
        ("a.json", "DS501 offload-param-below-stage-3", ["failure"]),
        ("a.json", "DS501 offload-param-below-stage-3 (suppressed)", ["skipped"]),
        ("a.json", "DS201 batch-size-product (suppressed)", ["skipped"]),
        ("b.json", "no findings", []),
        ("b.json", "DS501 offload-param-below-stage-3 (suppressed)", ["skipped"]),
    ]


def test_a_rule_that_spoke_twice_is_one_test_with_both_places() -> None:
    first, second = (
        found("a.json", "DS103", "n", effect, message, range=Range(Place(line, 1, 0), Place(line, 2, 1)))
        for line, effect, message in ((2, Effect.SLOW, "one"), (5, Effect.IGNORED, "two"))
    )
    root = readers.junit(written(Results(Context(), (FileResult("a.json", "ds_config", None, (first, second)),)), "junit"))
    (failure,) = root.iter("failure")
    assert (failure.get("type"), failure.get("message")) == ("warning", "one (and 1 more finding)")
    assert "a.json:2:1: info\none\n" in (failure.text or "")
    assert "a.json:5:1: warning\ntwo\n" in (failure.text or "")


def test_characters_that_xml_forbids_are_seen() -> None:
    text = written(hostile(), "junit")
    assert not any(character in text for character in "\x00\x07\x1b\u202e\ud800")
    (suite,) = fromstring(text)
    assert suite.get("name") == "evil␛[31m␊::error::x<U+202E>.json"
    assert "half a character: <U+D800>" in "".join(suite.itertext())
