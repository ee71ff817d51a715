"""Every test stands in a folder of its own: from this repository, dslint would read its thousand programs for what launches a file."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
