"""Where plug-ins are not imported from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dslint.registry.plugins import _installed_only


def test_nothing_is_imported_from_pythonpath(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with _installed_only():
        assert str(tmp_path) in sys.path
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with _installed_only():
        assert str(tmp_path) not in sys.path
    assert str(tmp_path) in sys.path
