"""Expected outputs, kept as files. `UPDATE_GOLDEN=1 pytest tests/report` writes them anew; read the diff before it is committed."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check(name: str, text: str) -> None:
    """Compare a text with the file of this name."""
    file = FOLDER / f"{name}.txt"
    data = text.encode("utf-8", "surrogatepass")
    if os.environ.get("UPDATE_GOLDEN") or os.environ.get("DSLINT_UPDATE_GOLDEN"):
        file.write_bytes(data)
    assert data.decode("utf-8", "surrogatepass") == file.read_bytes().decode("utf-8", "surrogatepass").replace("\r\n", "\n")
