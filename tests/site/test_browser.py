"""The site as people see it: in Chromium, on a laptop and on a phone, by day and by night."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from dslint.diagnostics import Effect
from tests.site.accessible import serious_violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.site

Scheme = Literal["light", "dark"]
Open = Callable[..., "Page"]
LAPTOP, PHONE = (1280, 800), (390, 844)


@pytest.fixture
def show(browser: Browser, address: str) -> Iterator[Open]:
    """Opens a page of the site. At the end nothing must have been asked of another machine, and no script must have failed."""
    contexts = []
    elsewhere: list[str] = []
    errors: list[str] = []

    def open_page(path: str, size: tuple[int, int] = LAPTOP, scheme: Scheme = "light") -> Page:
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: elsewhere.append(request.url) if not request.url.startswith((address, "data:")) else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert elsewhere == []
    assert errors == []


@pytest.mark.parametrize(
    ("words", "found"),
    [("DS501", "rules/DS501.html"), ("offload-param-below-stage-3", "rules/DS501.html"), ("overlap_comm", "keys/zero_optimization.html")],
)
def test_search_finds(show: Open, address: str, words: str, found: str) -> None:
    page = show("index.html")
    page.fill("input[data-md-component=search-query]", words)
    results = page.locator(".md-search-result__link")
    results.first.wait_for()
    links = [str(link.get_attribute("href")).removeprefix(address).partition("?")[0] for link in results.all()[:12]]
    assert found in links
    results.nth(links.index(found)).click()
    page.wait_for_url(re.compile(re.escape(found)))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("offload", "keys/zero_optimization.html"),
        ("zero3 oom", "memory.html"),
        ("loss scale", "keys/fp16.html"),
        ("auto", "auto.html"),
        ("out of memory", "memory.html"),
        ("hang", "diagnose.html"),
        ("nvme", "keys/zero_optimization.html"),
        ("upgrade", "upgrading/index.html"),
        ("baseline", "suppressing.html"),
        ("ignore a rule", "suppressing.html"),
        ("disable rule", "suppressing.html"),
        ("oom", "memory.html"),
        ("Extra inputs are not permitted", "diagnose.html"),
        ("unsafe-fixes", "fixing.html"),
    ],
)
def test_the_page_that_an_expert_would_open_is_among_the_first_three(show: Open, address: str, words: str, expected: str) -> None:
    page = show("index.html")
    page.fill("input[data-md-component=search-query]", words)
    found = page.locator(".md-search-result__item")
    found.first.wait_for()
    links = [str(one.locator("a").first.get_attribute("href")).removeprefix(address).partition("?")[0] for one in found.all()[:3]]
    assert expected in links


def test_each_letter_finds_words(show: Open) -> None:
    from playwright.sync_api import expect

    page = show("index.html")
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    box, answer = page.locator("input[data-md-component=search-query]"), page.locator(".md-search-result__meta")
    box.focus()
    for letter in "abcdefghijklmnopqrstuvwxyz0123456789":
        box.press(letter)
        expect(answer).to_have_text(re.compile(r"^\s*\d+ matching"), timeout=30_000)
        box.press("Backspace")
        expect(answer).to_have_text(re.compile("Type to start"), timeout=30_000)
    assert said == []


def test_the_index_of_rules_is_filtered(show: Open) -> None:
    page = show("rules/index.html?find=offload_param")
    rows, said = page.locator("article table tbody tr:visible"), page.locator("#rule-filter output")
    some = rows.count() - len(Effect)  # the table of effects stays
    assert 3 < some < 60
    assert said.inner_text() == f"{some} rules"
    assert page.locator("h2:visible").count() < 10
    page.fill("#rule-filter input[name=q]", "")
    every = rows.count() - len(Effect)
    assert every > 300
    page.select_option("#rule-filter select[name=effect]", "crash")
    crashes = rows.count() - 6
    assert 0 < crashes < every
    page.check("#rule-filter input[name=fix]")
    assert 0 < rows.count() - 6 < crashes
    page.select_option("#rule-filter select[name=chapter]", "Precision")
    assert page.locator("h2:visible").count() == 1


def test_a_rule_page_shows_its_example_and_what_dslint_says(show: Open) -> None:
    page = show("rules/DS501.html")
    blocks = page.locator("article pre").all_inner_texts()
    assert '"offload_param": {"device": "cpu"}' in blocks[0]
    assert blocks[1].startswith("warning[DS501] offload-param-below-stage-3")
    assert page.locator("article pre").first.is_visible()
    page.locator("article a", has_text="zero_optimization.offload_param").click()
    page.locator("#zero_optimizationoffload_param").wait_for(state="visible")


def test_day_and_night(show: Open) -> None:
    def brightness(page: Page) -> int:
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", color)[:3]))

    assert brightness(show("index.html", scheme="light")) > 600
    night = show("index.html", scheme="dark")
    assert brightness(night) < 200
    night.locator("label[for^=__palette]:visible").click()  # by hand: light, whatever the system says
    assert brightness(night) > 600


PAGES = (
    "index",
    "rules/index",
    "rules/DS501",
    "rules/DS904",
    "keys/index",
    "keys/zero_optimization",
    "keys/optimizer",
    "settings",
    "auto",
    "tutorial",
    "api",
    "tested",
)


@pytest.mark.parametrize("path", PAGES)
def test_nothing_sticks_out_on_a_phone(show: Open, site: Path, path: str) -> None:
    page = show(f"{path}.html", size=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    assert page.locator("article h1").is_visible()


def test_rules_are_on_the_first_screen_of_a_phone(show: Open) -> None:
    page = show("rules/index.html", size=PHONE)
    box = page.get_by_role("link", name="DS001", exact=True).first.bounding_box()
    assert box is not None
    assert box["y"] + 100 < PHONE[1]
    assert page.evaluate("[...document.querySelectorAll('article table')].every(table => table.scrollWidth <= innerWidth)")


def test_the_menu_of_a_phone_leads_to_the_rules(show: Open) -> None:
    page = show("index.html", size=PHONE)
    page.locator("label.md-header__button[for=__drawer]").click()
    page.locator(".md-nav--primary label.md-nav__link, .md-nav--primary a.md-nav__link", has_text="Rules").first.click()
    page.get_by_role("link", name="Rules").first.wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["index", "rules/index", "rules/DS501", "keys/index", "settings", "auto"])
def test_axe_finds_no_serious_violation(show: Open, playground: Path, path: str, scheme: Scheme) -> None:
    assert serious_violations(show(f"{path}.html", scheme=scheme)) == []


@pytest.mark.parametrize("path", ["index", "rules/index", "rules/DS501", "keys/top-level", "keys/zero_optimization", "keys/optimizer"])
def test_headings_are_in_order(show: Open, path: str) -> None:
    levels = show(f"{path}.html").evaluate("[...document.querySelectorAll('article :is(h1,h2,h3,h4)')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels
