"""docs/memory.md shows what the measurements of the suite give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tables_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/memory_table.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
