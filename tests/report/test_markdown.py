"""Markdown: tables for GitHub, in which nothing from a file is anything but text."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from dslint.config.context import Context
from dslint.diagnostics import Effect
from dslint.lint.results import FileResult, Results
from dslint.report.markdown import LIMIT

from . import readers
from .scenes import SCENES, files, found, suppressed, written

NASTY = (
    "<script>alert(1)</script> & &amp; <!-- [x](http://evil) ![i](y) | a \\| b `code` *b* _i_ ~~s~~ $x$ @team a@b.cd "
    "#12 x/y#3 GH-4 !5 %6 ^7 https://evil.example www.evil.example :tada: 0123abc 0123456789012345678901234567890123abcdef [^1] </details>\n"
    "# head\n- item\n1. one\n    code\n| a | b |\n| --- | --- |\n\n```\nfence"
)


@pytest.mark.parametrize("scene", SCENES)
def test_it_is_what_it_should_be(scene: str) -> None:
    results = SCENES[scene]()
    rows = readers.markdown(written(results, "markdown"))
    assert len(rows) == len(results.diagnostics) + sum(file.error is not None for file in results.files)


def nasty() -> Results:
    one = found("a|b <i>.json", "DS103", "n", Effect.SLOW, NASTY, help=NASTY)
    return Results(Context(), (FileResult("a|b <i>.json", "ds_config", None, (one,), note=NASTY),))


def test_it_reads_as_it_was_written() -> None:
    assert readers.markdown(written(nasty(), "markdown")) == [f"{NASTY}\n{NASTY}"]


class Rendered(HTMLParser):
    """The tags of a page and its pieces of text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_renderer_makes_nothing_of_it() -> None:
    renderer = pytest.importorskip("markdown_it")
    page = renderer.MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(written(nasty(), "markdown"))
    rendered = Rendered(page)
    assert set(rendered.tags) == {"h3", "h4", "table", "thead", "tbody", "tr", "th", "td", "br", "wbr", "ul", "li"}
    assert (rendered.tags.count("tr"), rendered.tags.count("td"), rendered.tags.count("li")) == (2, 4, 1)
    assert not any(readers.LINKED.search(text) for text in rendered.texts if "dslint:" not in text)


def test_remarks_are_folded_where_they_are_many() -> None:
    assert "<details>" not in written(suppressed(), "markdown")
    many = tuple(FileResult(f"{number}.json", "template", note="a template.") for number in range(300))
    text = written(Results(Context(), (*files().files, *many)), "markdown")
    readers.markdown(text)
    assert "<summary>302 remarks</summary>\n\n- " in text
    assert text.endswith("- and 102 more\n\n</details>\n")


def test_a_table_per_file_that_has_findings() -> None:
    text = written(files(), "markdown")
    assert [line for line in text.split("\n") if line.startswith("####")] == ["#### b.json", "#### ds.json", "#### x.json"]


def test_the_loudest_stay_where_not_all_fit() -> None:
    effects = (Effect.SLOW, Effect.SILENT, Effect.IGNORED)
    results = Results(
        Context(),
        tuple(
            FileResult(
                f"{number}.json", "ds_config", None, tuple(found(f"{number}.json", "DS103", "n", effect, "模" * 900) for effect in effects)
            )
            for number in range(200)
        ),
    )
    text = written(results, "markdown")
    assert len(text.encode()) <= LIMIT < 1024 * 1024
    shown = [text.count(f"| {severity} |") for severity in ("error", "warning", "info")]
    assert shown[0] == 200
    assert 100 < shown[1] < 200
    assert shown[2] == 0
    assert f"\n{600 - sum(shown)} findings omitted: the step summary is full.\n" in text
