"""The HTML report of `dslint check` in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.command import dslint

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.site


def test_the_filter(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"train_micro_batch_size_per_gpu": 4, "elasticity": {}, "x": 1}', encoding="utf-8")
    (tmp_path / "b.json").write_text('{"train_micro_batch_size_per_gpu": 4, "elasticity": {}}', encoding="utf-8")
    report = tmp_path / "report.html"
    report.write_text(dslint("check", "a.json", "b.json", "--output-format", "html", cwd=tmp_path).stdout, encoding="utf-8")
    page = browser.new_page(viewport={"width": 390, "height": 800})
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.goto(report.as_uri())
    shown = page.locator("article:visible")
    assert shown.count() == 3
    page.fill("input[type=search]", "b.json")
    assert shown.count() == 1
    page.fill("input[type=search]", "")
    page.uncheck("input[value=error]")
    assert shown.count() == 1
    page.check("input[value=error]")
    page.select_option("select[name=by]", "rule")
    assert page.locator("section h2").first.inner_text().startswith("DS1")
    assert page.locator("section").count() == 2
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert problems == []
    page.close()
