"""The command that writes all generated files, where its tools are missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import generate


def test_without_ruff_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(generate, "formatter", lambda: None)
    monkeypatch.setattr(generate, "run", lambda *_, **__: pytest.fail("it ran a generator"))
    assert generate.main(["frameworks"]) == 1
    assert capsys.readouterr().err == "requires ruff, which formats what is generated: pip install -e '.[dev]'\n"


def test_ruff_need_not_be_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate.importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(generate.shutil, "which", lambda _: None)
    assert generate.formatter() == [sys.executable, "-m", "ruff"]
    monkeypatch.setattr(generate.importlib.util, "find_spec", lambda _: None)
    assert generate.formatter() is None
