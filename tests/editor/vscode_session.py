"""VS Code itself with the extension: its server in Node, its window in Chromium."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Error, Locator, Page
from playwright.sync_api import TimeoutError as NotYet

from tests.editor.programs import ROOT, npm, program

PATIENCE = 60_000
"""Milliseconds to wait for what should appear."""

SETTINGS: dict[str, Any] = {
    "dslint.interpreter": sys.executable,
    "editor.codeActionsOnSave": {"source.fixAll.dslint": "explicit"},
    "editor.minimap.enabled": False,
    "security.workspace.trust.enabled": False,
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "workbench.startupEditor": "none",
    "workbench.activityBar.location": "hidden",
    "workbench.layoutControl.enabled": False,
    "window.menuBarVisibility": "hidden",
    "extensions.autoCheckUpdates": False,
}
"""Settings of the user: dslint from this checkout, and no dialogs or downloads."""
SETTINGS_FILE = Path("data", "data", "User", "settings.json")


class VsCode:
    """A window of VS Code."""

    def __init__(self, page: Page, workspace: Path) -> None:
        self.page = page
        self.workspace = workspace

    def configure(self, changes: dict[str, Any]) -> None:
        """Change settings of the workspace."""
        file = self.workspace / ".vscode" / "settings.json"
        file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | changes), encoding="utf-8")

    def open(self, name: str) -> None:
        """Open a file from the explorer."""
        self.page.get_by_role("treeitem", name=name).first.dblclick(timeout=PATIENCE)
        self.page.locator(".tab.active", has_text=name).wait_for(timeout=PATIENCE)

    def run(self, command: str) -> None:
        """Run a command from the palette."""
        self.page.keyboard.press("F1")
        box = self.page.locator(".quick-input-widget input")
        box.wait_for(timeout=PATIENCE)
        box.fill(f">{command}")
        self.page.locator(".quick-input-list .monaco-list-row", has_text=command.rpartition(": ")[2]).first.click(timeout=PATIENCE)

    def choose(self, title: str, item: str) -> None:
        """Choose an item of the quick pick with this title."""
        self.page.locator(".quick-input-title", has_text=title).wait_for(timeout=PATIENCE)
        row = self.page.locator(".quick-input-list .monaco-list-row").filter(has=self.page.get_by_text(item, exact=True))
        row.first.click(timeout=PATIENCE)

    def answer(self, text: str) -> None:
        """Answer the question of an input box."""
        box = self.page.locator(".quick-input-widget input:visible")
        box.wait_for(timeout=PATIENCE)
        box.fill(text)
        box.press("Enter")

    def rows(self, widget: str, expected: str) -> list[str]:
        """The rows of a list that pops up, once one has the expected text."""
        self.page.locator(f"{widget} .monaco-list-row", has_text=expected).first.wait_for(timeout=PATIENCE)
        return self.texts(f"{widget} .monaco-list-row")

    def status(self, expected: str) -> Locator:
        """The item of the status bar that has the expected text."""
        item = self.page.locator(".statusbar-item", has_text=expected).first
        item.wait_for(timeout=PATIENCE)
        return item

    def focus(self, name: str) -> None:
        """Go to the tab of an open file."""
        self.page.locator(".tab", has_text=name).first.click(timeout=PATIENCE)

    def go_behind(self, key: str) -> None:
        """Place the cursor into the value of a key, at the end of its line."""
        self.page.locator(".view-line", has_text=f'"{key}"').first.click(timeout=PATIENCE)
        self.page.keyboard.press("End")
        self.page.keyboard.press("ArrowLeft")
        self.page.keyboard.press("ArrowLeft")

    def wait_for_text(self, expected: str) -> None:
        """Wait until the open file has a text on one line."""
        end = time.monotonic() + PATIENCE / 1000
        while expected not in self.text():
            assert time.monotonic() < end, self.text()
            self.page.wait_for_timeout(100)

    def gone(self, selector: str, text: str) -> None:
        """Wait until no element of a kind has a text."""
        self.page.locator(selector, has_text=text).first.wait_for(state="detached", timeout=PATIENCE)

    def webview(self, expected: str) -> str:
        """The text of a page that the extension opened, once it has the expected words."""
        end = time.monotonic() + PATIENCE / 1000
        while True:
            for frame in self.page.frames[1:]:
                with contextlib.suppress(Error):  # a frame that is being replaced
                    if expected in (text := frame.inner_text("body", timeout=1000)):
                        return text
            assert time.monotonic() < end, expected
            self.page.wait_for_timeout(100)

    def picture(self, file: Path) -> None:
        """Keep a picture of the window."""
        self.page.screenshot(path=file)

    def problems(self, expected: str) -> list[str]:
        """The rows of the panel of problems, once one has the expected text."""
        self.page.locator(".markers-panel .monaco-list-row", has_text=expected).first.wait_for(timeout=PATIENCE)
        return self.texts(".markers-panel .monaco-list-row")

    def hover(self, word: str, expected: str) -> str:
        """The text of the box that opens over a word, once it has the expected text."""
        self.word(word).hover(timeout=PATIENCE)
        box = self.page.locator(".monaco-hover:visible", has_text=expected).first
        box.wait_for(timeout=PATIENCE)
        return box.inner_text()

    def hover_at_cursor(self, keys: tuple[str, ...], expected: str) -> str:
        """The text of the box that a command opens at the place that keys lead to, once it has the expected text.

        The editor scrolls to its cursor itself, where a pointer may miss a word that the window is too narrow for.
        """

        def ask() -> None:
            self.run("View: Focus Active Editor Group")
            for key in keys:
                self.page.keyboard.press(key)
            self.run("Show or Focus Hover")

        return self.ask(ask, self.page.locator(".monaco-hover:visible", has_text=expected).first)

    def fixes(self, key: str, expected: str) -> list[str]:
        """The rows of the menu of fixes behind a key, once one has the expected text.

        VS Code itself asks for fixes a quarter of a second after the cursor has moved, for its light bulb, and drops for that what was
        asked before and is not answered yet.
        """

        def ask() -> None:
            self.go_behind(key)
            self.page.wait_for_timeout(1_000)
            self.page.keyboard.press("Control+.")

        self.ask(ask, self.page.locator(".action-widget .monaco-list-row", has_text=expected).first)
        return self.texts(".action-widget .monaco-list-row")

    def ask(self, action: Callable[[], None], shown: Locator) -> str:
        """Act again until something is shown, and return its text.

        What VS Code opens shows what was known when it opened: on a busy machine a menu or a box may come before the extension's answer.
        """
        end = time.monotonic() + PATIENCE / 1000
        while True:
            action()
            try:
                shown.wait_for(timeout=5_000)
                return shown.inner_text()
            except NotYet:
                if time.monotonic() > end:
                    raise
            self.page.keyboard.press("Escape")

    def word(self, text: str) -> Locator:
        """A word of the open file."""
        return self.page.locator(".view-line span", has_text=text).last

    def text(self) -> str:
        """The lines of the open file that are in the window."""
        lines = self.page.locator(".editor-instance .view-line").all()
        ordered = sorted(lines, key=lambda line: float(line.evaluate("one => parseFloat(one.style.top)")))
        return "\n".join(line.inner_text().replace("\xa0", " ") for line in ordered)

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements of a kind."""
        return [element.inner_text() for element in self.page.locator(selector).all()]


def install(folder: Path, package: Path) -> Path:
    """Install VS Code and the extension; returns the folder of VS Code."""
    shutil.copy(ROOT / "tests" / "editor" / "vscode" / "package.json", folder)
    quietly = ("install", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--silent")
    npm(folder, *quietly, "--no-package-lock")
    code = folder / "node_modules" / "code-server" / "lib" / "vscode"
    npm(code, *quietly)
    (folder / SETTINGS_FILE).parent.mkdir(parents=True)
    (folder / SETTINGS_FILE).write_text(json.dumps(SETTINGS), encoding="utf-8")
    subprocess.run(_command(folder, "--install-extension", str(package)), cwd=code, check=True, capture_output=True, timeout=120)
    return code


@contextlib.contextmanager
def session(browser: Browser, folder: Path, code: Path, workspace: Path) -> Iterator[VsCode]:
    """A window with a folder open."""
    port = _free_port()
    options = ("--host", "127.0.0.1", "--port", str(port), "--without-connection-token", "--accept-server-license-terms")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "log.txt").open("wb") as log:
        server = subprocess.Popen(_command(folder, *options), cwd=code, env=environment, stdout=log, stderr=log)
    try:
        _wait_for(f"http://127.0.0.1:{port}/version")
        page = browser.new_page(viewport={"width": 1200, "height": 760})
        page.goto(f"http://127.0.0.1:{port}/?folder={workspace}")
        yield VsCode(page, workspace)
        page.close()
    finally:
        server.terminate()
        server.wait(30)


def _command(folder: Path, *options: str) -> list[str]:
    folders = ("--server-data-dir", str(folder / "data"), "--extensions-dir", str(folder / "extensions"))
    return [program("node"), "out/server-main.js", *folders, *options]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _wait_for(address: str) -> None:
    end = time.monotonic() + PATIENCE / 1000
    while True:
        try:
            with urllib.request.urlopen(address):
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
