"""The site, built once, and a browser to look at it with."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from tests.browsing import missing
from tests.site.playing import Play

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site, with the playground in it if node is installed. The processes of a run share it."""
    if importlib.util.find_spec("material") is None:
        missing("mkdocs-material")
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    folder = shared / "built-site"
    with (shared / "built-site.lock").open("w") as held:
        lock(held)
        if not (folder / "index.html").exists():
            _build(folder)
    return folder


def lock(file: IO[str]) -> None:
    """Wait until no other process builds the site."""
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX)


def _build(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "scripts/build_site.py", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
        """Say nothing."""


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Where the site is served, with a slash at the end."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def playground(site: Path) -> Path:
    """The folder of the playground in the site."""
    folder = site / "playground"
    if not folder.exists():
        missing("what the playground is built with (node, npm and its packages)")
    return folder


@pytest.fixture(scope="session")
def opened_playground(browser: Browser, address: str, playground: Path) -> Iterator[Play]:
    """The playground in a browser, opened once: Python takes seconds to start."""
    play = Play(browser, address)
    yield play
    play.context.close()


@pytest.fixture
def play(opened_playground: Play) -> Iterator[Play]:
    """The playground on a laptop by day. At the end no other host was contacted, and no script failed."""
    opened_playground.look()
    yield opened_playground
    opened_playground.check()
