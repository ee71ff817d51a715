"""A browser for the tests that look at pages."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def missing(what: str) -> None:
    """Skip the test, or fail it where a run must have what it needs."""
    if os.environ.get("REQUIRE_BROWSER"):
        pytest.fail(f"{what} is not installed")
    pytest.skip(f"{what} is not installed")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a window: one for all tests of a process, because Playwright starts only once in a thread."""
    if importlib.util.find_spec("playwright") is None:
        missing("playwright")
    program = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if program is None:
        missing("Chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=[*QUIET])
        yield chromium
        chromium.close()
