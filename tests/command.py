"""Runs the command line as a person would: in a process of its own. Outputs in JSON are held to their published schemas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.report.outputs import assert_valid

ROOT = Path(__file__).resolve().parent.parent


# For a process to be interrupted: one that was started in the background of a script ignores SIGINT, and so would its children.
INTERRUPTIBLE = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from dslint.cli import main; main()",
]


def dslint(*arguments: str | os.PathLike[str], env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `dslint`; both streams come back as text. However it ends, it ends without a traceback."""
    options.setdefault("errors", "backslashreplace")
    words = list(map(os.fspath, arguments))
    done = subprocess.run(
        [sys.executable, "-m", "dslint", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", **(env or {})},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=300,
        **options,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert_valid(words, done.stdout)
    return done
