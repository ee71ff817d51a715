"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engine.fixtures import engine

__all__ = ["engine"]

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def root() -> Path:
    """The top of the checkout."""
    return ROOT


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No colour and no annotations because of the machine the tests happen to run on."""
    for name in [*os.environ]:
        if name in ("NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "GITHUB_WORKSPACE", "COLUMNS") or name.startswith("DSLINT_"):
            monkeypatch.delenv(name)
