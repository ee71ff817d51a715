"""`dslint playground`: it serves a built page to this machine, and says what to do where there is none."""

from __future__ import annotations

import threading
import urllib.request
from pathlib import Path

import pytest

from dslint.cli.playground import PACKAGE, find_page, serve
from dslint.errors import UserError
from tests.command import dslint


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "playground").mkdir()
    (tmp_path / "playground" / "worker.js").write_text("1", encoding="utf-8")
    (tmp_path / "playground" / "a.wasm").write_bytes(b"\0asm")
    return tmp_path


def test_without_a_page_it_says_what_to_do(tmp_path: Path) -> None:
    done = dslint("playground", cwd=tmp_path)
    assert done.returncode == 2
    assert "python scripts/build_playground.py" in done.stderr
    assert 'pip install "deepspeed-lint[playground]"' in done.stderr


def test_the_page_is_found_in_the_site_and_by_itself(site: Path, tmp_path: Path) -> None:
    assert find_page(site) == (site, "playground/")
    assert find_page(site / "playground") == (site / "playground", "")
    with pytest.raises(UserError):
        find_page(tmp_path / "nothing")


def test_an_installed_page_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / PACKAGE / "page"
    page.mkdir(parents=True)
    (page.parent / "__init__.py").write_text("", encoding="utf-8")
    (page / "worker.js").write_text("1", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert find_page(None) == (page, "")


@pytest.mark.slow
def test_files_have_the_types_that_browsers_require(site: Path) -> None:
    with serve(site, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            types = {
                name: urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/playground/{name}").headers["Content-Type"]
                for name in ("a.wasm", "worker.js")
            }
        finally:
            server.shutdown()
            thread.join()
    assert types == {"a.wasm": "application/wasm", "worker.js": "text/javascript"}
    assert server.server_address[0] == "127.0.0.1"


def test_a_used_port_is_an_error(site: Path) -> None:
    with serve(site, 0) as server:
        done = dslint("playground", "--site", str(site), "--port", str(server.server_port), cwd=site.parent)
    assert done.returncode == 2
    assert "pass another --port" in done.stderr
