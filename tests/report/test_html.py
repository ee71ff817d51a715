"""The page of a repository: nothing on it is markup but its own, and its filter works in a browser."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from dslint.config.context import Context
from dslint.diagnostics import Effect
from dslint.lint.results import FileResult, Results
from dslint.not_judged import of_note
from tests.command import dslint

from .scenes import SCENES, found, written

NASTY = '<script>alert(1)</script> & &amp; "quoted" \' </pre></article><!-- \x1b[31m \u202e --> <img src=x onerror=y>\n'
LLAMA = (
    '{"model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 16, '
    '"num_key_value_heads": 16, "vocab_size": 32000, "max_position_embeddings": 2048}'
)


class Page(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.mark.parametrize("scene", SCENES)
def test_every_finding_is_on_it(scene: str) -> None:
    results = SCENES[scene]()
    page = Page(written(results, "html"))
    shown = [(article["data-rule"], article["data-severity"]) for article in page.of("article")]
    assert shown == [(one.code, one.severity.value) for one in results.diagnostics]


def test_nothing_from_a_file_is_markup() -> None:
    one = found(NASTY, "DS103", NASTY, Effect.SLOW, NASTY, help=NASTY)
    result = FileResult(NASTY, "ds_config", None, (one,), error=NASTY, not_judged=(of_note(NASTY),))
    page = Page(written(Results(Context(), (result,)), "html"))
    assert not page.of("img")
    assert len(page.of("script")) == 1
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert page.text.count("<script>alert(1)</script>") >= 4
    assert not {"\x1b", "\u202e"} & set(page.text)


def test_it_loads_nothing() -> None:
    page = Page(written(SCENES[next(iter(SCENES))](), "html"))
    assert not [attributes for _, attributes in page.tags if attributes.keys() & {"src", "href", "action"}]
    (policy,) = (meta["content"] for meta in page.of("meta") if meta.get("http-equiv"))
    assert str(policy).startswith("default-src 'none'")


def test_memory_and_what_was_not_checked(tmp_path: Path) -> None:
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}', encoding="utf-8")
    (tmp_path / "model.json").write_text(LLAMA, encoding="utf-8")
    (tmp_path / "run.sh").write_text("deepspeed train.py --deepspeed_config $CONFIG\n", encoding="utf-8")
    facts = ("--model", "model.json", "--gpu", "h100", "--world-size", "8")
    page = Page(dslint("check", ".", *facts, "--output-format", "html", cwd=tmp_path).stdout)
    assert "fits in 79" in page.text
    assert "run.sh" in page.text.partition("Not checked")[2]


def test_backticks_are_code_and_the_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = found("a.json", "DS103", "x", Effect.SLOW, "`a` is <b>", help="Write `1`.")
    result = Results(Context(), (FileResult("a.json", "ds_config", None, (one,)),))
    monkeypatch.setattr("sys.argv", ["/usr/bin/dslint", "check", "a b.json", "--env", "TOKEN=s3cret", "--env=KEY=s3cret"])
    text = written(result, "html")
    assert "<p><code>a</code> is &lt;b&gt;</p>" in text
    assert "Write <code>1</code>." in text
    assert "<code>dslint check &#x27;a b.json&#x27; --env TOKEN=... --env=KEY=...</code>" in text
    assert "s3cret" not in text
    monkeypatch.setattr("sys.argv", ["/usr/bin/pytest", "tests"])
    assert "pytest" not in written(result, "html")
