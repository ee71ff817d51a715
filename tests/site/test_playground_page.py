"""The playground as a page: without a network, by day and by night, on a phone, with a keyboard and a screen reader, and how large it is."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.site.accessible import serious_violations
from tests.site.playing import ROOT, Play, read

sys.path.insert(0, str(ROOT / "scripts"))
from playground_link import fragment

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.site

LARGEST = 9_000_000
"""The bytes that a first visit may transfer, compressed."""

TABS = ("check", "show", "estimate", "fit", "diagnose", "upgrade")
CONFIG = {"ds_config.json": read("broken.json")}
FACTS = {"world-size": "8", "gpu": "h100", "model": "llama-3-8b"}


def test_it_works_without_a_network_after_the_first_visit(play: Play) -> None:
    play.page.get_by_text("Works offline").wait_for()
    play.context.set_offline(True)
    try:
        play.page.reload()
        play.ready()
        assert play.page.locator(".verdict").count() > 0
    finally:
        play.context.set_offline(False)


def test_the_editor_does_not_wait_for_python(browser: Browser, address: str, playground: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.route("**/pyodide/**", lambda _: None)  # never answered
    page.goto(f"{address}{playground.name}/index.html")
    page.locator(".cm-content").click()
    page.keyboard.insert_text("typed")
    assert "typed" in page.locator(".cm-content").inner_text()
    assert "Loading Python" in page.locator("#status").inner_text()
    context.close()


def test_day_and_night(play: Play) -> None:
    def brightness() -> int:
        colors: str = play.page.evaluate("getComputedStyle(document.querySelector('.cm-editor')).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colors)[:3]))

    assert brightness() > 600
    play.look(scheme="dark")
    assert brightness() < 200
    for pressed, bright in (("Theme: System", True), ("Theme: Light", False), ("Theme: Dark", False)):
        play.page.get_by_role("button", name=pressed).click()
        assert (brightness() > 600) == bright
    play.look()
    assert brightness() > 600, "the theme is that of the system again"


@pytest.mark.parametrize("tab", TABS)
def test_nothing_sticks_out_on_a_phone(play: Play, tab: str) -> None:
    play.look(width=390, height=844)
    play.open(fragment(CONFIG, FACTS, tab=tab, log=read("logs/out-of-memory.log")))
    chosen = play.page.get_by_role("tab", selected=True).bounding_box()
    assert chosen is not None
    assert chosen["x"] + chosen["width"] <= 390, "the selected tab is not cut off"
    assert play.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert play.page.get_by_role("tabpanel").is_visible()


@pytest.mark.parametrize(
    ("tab", "first"), [("check", ".finding"), ("estimate", ".answer"), ("fit", ".answer"), ("show", ".filter"), ("diagnose", ".answer")]
)
def test_the_answer_is_above_the_fold_on_a_phone(play: Play, tab: str, first: str) -> None:
    play.look(width=390, height=664)  # what a browser leaves of a phone of 844
    play.page.locator("#run-facts").evaluate("details => { details.open = false }")  # as on a phone
    play.open(fragment(CONFIG, FACTS, tab=tab, log=read("logs/out-of-memory.log")))
    box = play.page.locator(first).first.bounding_box()
    assert box is not None
    assert box["y"] + 100 < 664, "its first lines are visible"


def test_the_keyboard_reaches_everything(play: Play) -> None:
    page = play.page
    play.open(fragment(CONFIG))
    page.get_by_role("tab", name="Check").focus()
    for key, tab in (
        ("ArrowRight", "Effective config"),
        ("End", "Upgrade"),
        ("ArrowRight", "Check"),
        ("ArrowLeft", "Upgrade"),
        ("Home", "Check"),
    ):
        page.keyboard.press(key)
        assert page.get_by_role("tab", selected=True).inner_text().startswith(tab)
        assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
    play.settled()
    page.locator(".cm-content").focus()
    page.keyboard.press("F8")  # to the next finding
    page.locator(".cm-tooltip, .cm-diagnostic").first.wait_for()
    page.keyboard.press("Tab")  # the editor is not a trap
    assert not page.evaluate("document.activeElement.classList.contains('cm-content')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("tab", TABS)
def test_axe_finds_no_serious_violation(play: Play, scheme: Literal["light", "dark"], tab: str) -> None:
    play.look(scheme=scheme)
    play.open(fragment(CONFIG, FACTS, tab=tab, log=read("logs/out-of-memory.log")))
    assert serious_violations(play.page) == []


def test_a_first_visit_transfers_little(playground: Path) -> None:
    files = [path for path in playground.rglob("*") if path.is_file()]
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) < LARGEST


def test_the_types_are_right(playground: Path) -> None:
    assert playground.exists(), "the packages were installed to build it"
    done = subprocess.run(
        ["npm", "run", "--silent", "types"], cwd=ROOT / "playground", capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout
